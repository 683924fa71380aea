"""Table: rows of items that remember their number, and their plain, Markdown and CSV forms.

Items hold text, not markup: each form escapes for its own place.
"""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dpflbench.report.labels import clean, markdown, number, signed, spreadsheet


@dataclass(frozen=True, slots=True)
class Item:
    """One place of a table."""

    text: str
    value: float | None = None  # what it sorts by
    bold: bool = False
    mark: str = ""  # short signs behind the text: ≈, [1]
    hint: str = ""  # more words where there is room, such as a hover


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


def figure(value: float, digits: int = 2, unit: str = "") -> Item:
    """An item that is its number."""
    return Item(f"{number(value, digits)}{unit}", value)


def change(value: float) -> Item:
    """An item that is a difference."""
    return Item(signed(value), value)


def _marked(item: Item, escape: Callable[[object], str], bold: tuple[str, str]) -> str:
    text = escape(item.text)
    if item.bold:
        text = f"{bold[0]}{text}{bold[1]}"
    return f"{text} {escape(item.mark)}" if item.mark else text


def as_text(table: Table, width: int | None = None) -> str:
    """The table for a terminal, bold as a star; columns that do not fit into `width` go below, with the row names
    again.
    """
    from tabulate import tabulate

    header = ["\n".join(clean(line) for line in title.split("\n")) for title in table.header]
    rows = [[_marked(item, clean, ("", " *")) for item in row] for row in table.rows]
    parts = []
    for chosen in _blocks(header, rows, table.labels, width):
        align = ["left" if i < table.labels else "right" for i in chosen]
        parts += [
            "",
            tabulate(
                [[row[i] for i in chosen] for row in rows],
                headers=[header[i] for i in chosen],
                tablefmt="simple",
                disable_numparse=True,
                colalign=align if rows else None,
            ),
        ]
    return "\n".join(
        [
            clean(table.title),
            *([clean(table.caption, 2000)] if table.caption else []),
            *parts,
            *(["", *(clean(note, 2000) for note in table.notes)] if table.notes else []),
        ]
    )


def _blocks(header: Sequence[str], rows: Sequence[Sequence[str]], labels: int, width: int | None) -> list[list[int]]:
    """Which columns stand side by side: the labels and as many others as fit, at least one."""
    wide = [
        2 + max([len(line) for line in head.split("\n")] + [len(row[i]) for row in rows])
        for i, head in enumerate(header)
    ]
    first = list(range(labels))
    blocks, room = [list(first)], (width or 10**9) - sum(wide[:labels])
    left = room
    for i in range(labels, len(header)):
        if wide[i] > left and len(blocks[-1]) > labels:
            blocks.append(list(first))
            left = room
        blocks[-1].append(i)
        left -= wide[i]
    return blocks


def as_markdown(table: Table, level: int = 2) -> str:
    """The table for Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    header = [", ".join(markdown(part) for part in title.split("\n") if part) for title in table.header]
    align = ["---" if i < table.labels else "---:" for i in range(len(header))]
    rows = [line([_marked(item, markdown, ("**", "**")) for item in row]) for row in table.rows]
    caption = [markdown(table.caption), ""] if table.caption else []
    notes = ["", *(f"- {markdown(note)}" for note in table.notes)] if table.notes else []
    return "\n".join(
        [f"{'#' * level} {markdown(table.title)}", "", *caption, line(header), line(align), *rows, *notes, ""]
    )


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
