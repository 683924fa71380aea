"""Table: rows of items that remember their number, and their plain, Markdown and CSV forms.

Items hold text, not markup: each form escapes for its own place.
"""

import csv
import io
import itertools
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dpflbench.report.labels import clean, markdown, number, signed, spreadsheet

PADDING = 2  # what tabulate adds to a head, beside the two spaces between columns


@dataclass(frozen=True, slots=True)
class Item:
    """One place of a table."""

    text: str
    value: float | None = None  # what it sorts by
    bold: bool = False
    mark: str = ""  # short signs behind the text: ≈, [1]
    hint: str = ""  # more words where there is room, such as a hover
    grey: bool = False  # shown, but not compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A titled table with notes."""

    key: str  # its anchor and file name
    title: str
    header: tuple[str, ...]  # may hold line breaks between levels
    rows: tuple[tuple[Item, ...], ...]
    caption: str = ""
    notes: tuple[str, ...] = ()
    labels: int = 1  # leading columns that name the row
    words: int = 0  # last columns that hold no figures


def figure(value: float, digits: int | None = None, unit: str = "") -> Item:
    """An item that is its number."""
    return Item(f"{number(value, digits)}{unit}", value)


def change(value: float, digits: int | None = None) -> Item:
    """An item that is a difference."""
    return Item(signed(value, digits), value)


def _marked(item: Item, escape: Callable[[object], str], bold: tuple[str, str]) -> str:
    text = escape(item.text)
    if item.bold:
        text = f"{bold[0]}{text}{bold[1]}"
    return f"{text} {escape(item.mark)}" if item.mark else text


def as_text(table: Table, width: int | None = None) -> str:
    """The table for a terminal, bold as a star; columns that do not fit into `width` go below, with the row names
    again, and prose wraps at words.
    """
    from tabulate import tabulate

    header = ["\n".join(clean(line) for line in title.split("\n")) for title in table.header]
    rows = _level([[_marked(item, clean, ("", " *")) for item in row] for row in table.rows], table)
    parts = []
    for chosen in _blocks(header, rows, table.labels, width):
        align = ["left" if i < table.labels else "right" for i in chosen]
        block = tabulate(
            [[row[i] for i in chosen] for row in rows],
            headers=[header[i] for i in chosen],
            tablefmt="simple",
            disable_numparse=True,
            preserve_whitespace=True,
            colalign=align if rows else None,
        )
        parts += ["", *(line.rstrip() for line in block.splitlines())]
    return "\n".join(
        [
            wrapped(clean(table.title), width),
            *([wrapped(clean(table.caption, 2000), width)] if table.caption else []),
            *parts,
            *(["", *(wrapped(clean(note, 2000), width) for note in table.notes)] if table.notes else []),
        ]
    )


def _level(rows: list[list[str]], table: Table) -> list[list[str]]:
    """Figures with room behind them where others of their column have a sign, so that all stand level."""
    for i in range(table.labels, len(table.header)):
        behind = [len(row[i]) - len(clean(items[i].text)) for row, items in zip(rows, table.rows, strict=True)]
        figures = [items[i].value is not None for items in table.rows]
        room = max((n for n, known in zip(behind, figures, strict=True) if known), default=0)
        for row, n, known in zip(rows, behind, figures, strict=True):
            row[i] += " " * (room - n) * known
    return rows


def wrapped(text: str, width: int | None) -> str:
    """One line of prose as lines of at most `width` letters, broken at words."""
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False) if width else text


def _blocks(header: Sequence[str], rows: Sequence[Sequence[str]], labels: int, width: int | None) -> list[list[int]]:
    """Which columns stand side by side: the labels and as many others as fit, at least one; columns with the same head
    of heads (a mechanism) stay together where they can.
    """
    wide = [
        2 + max([PADDING + len(line) for line in head.split("\n")] + [len(row[i]) for row in rows])
        for i, head in enumerate(header)
    ]
    first, room = list(range(labels)), (width or 10**9) + 2 - sum(wide[:labels])

    def fits(columns: Sequence[int]) -> bool:
        return sum(wide[i] for i in columns) <= room

    blocks: list[list[int]] = []
    for _, members in itertools.groupby(range(labels, len(header)), lambda i: header[i].split("\n")[0]):
        group = list(members)
        sizes = (math.ceil(len(group) / parts) for parts in range(1, len(group) + 1))
        size = next((n for n in sizes if all(fits(group[k : k + n]) for k in range(0, len(group), n))), 1)
        for k in range(0, len(group), size):
            piece = group[k : k + size]
            if not blocks or not fits([*blocks[-1], *piece]):
                blocks.append([])
            blocks[-1] += piece
    return [[*first, *block] for block in blocks] or [first]


def as_markdown(table: Table, level: int = 2) -> str:
    """The table for Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    header = [", ".join(markdown(part) for part in title.split("\n") if part) for title in table.header]
    align = ["---" if i < table.labels else "---:" for i in range(len(header))]
    rows = [line([_marked(item, markdown, ("**", "**")) for item in row]) for row in table.rows]
    caption = [markdown(table.caption), ""] if table.caption else []
    notes = ["", *(f"- {markdown(note)}" for note in table.notes)] if table.notes else []
    body = [line(header), line(align), *rows] if header else []
    return "\n".join([f"{'#' * level} {markdown(table.title)}", "", *caption, *body, *notes, ""])


def as_csv(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows as CSV: numbers in full precision, missing ones empty, text that is no formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([spreadsheet(name) for name in header])
    for row in rows:
        writer.writerow([_csv_value(value) for value in row])
    return out.getvalue()


def _csv_value(value: object) -> object:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return value if isinstance(value, int | float) else spreadsheet(value)
