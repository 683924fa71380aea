"""Where a table goes in a paper: how wide it is, and where it is broken.

It fits a column or, as table*, both of a two-column paper at 10 points. What is too wide is set smaller, then its long
texts are wrapped, then its columns are dealt out to several tables; what is too long for a page becomes several too.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from dpflbench.report.latex_text import KNOWN, SIZES, text_width
from dpflbench.report.tables.table import Item, Table

COLUMN, TEXT = 229.0, 469.0  # points: those of the article class; IEEE, ACM and ICML have more
SEP = 4.0  # left and right of a column
LONG = 80.0  # points from which on a text may be wrapped
LINES = {r"\small": 38, r"\footnotesize": 45}  # of rows that a page has room for beside a caption
SETTING = "column"  # the header of the label that names a setting


@dataclass(frozen=True, slots=True)
class Fit:
    """Where a table goes, and how."""

    wide: bool  # across both columns
    size: str
    wrapped: dict[int, float]  # column → points, of columns whose text is wrapped


def impossible(item: Item) -> bool:
    """Whether this cell cannot be: it is a dash with a note."""
    return item.text == "impossible" and bool(item.mark)


def _item_width(item: Item) -> float:
    raised = 0.7 * (len(item.mark) * 5 if len(item.mark) <= 8 else 5) if item.mark else 0.0
    return text_width("–" if impossible(item) else item.text, item.bold) + raised


def head_words(title: str) -> list[str]:
    """The pieces a head may be broken into: signs stay with the word before them, a value with its symbol."""
    bound = KNOWN.sub(lambda found: found[0].replace(" ", "\n"), title)
    return [piece.replace("\n", " ") for piece in re.split(r" (?=\w|\()", bound)]


def columns_wide(table: Table) -> list[float]:
    """Points that each column needs at 10 points; heads may be broken between words."""
    out = []
    for i, head in enumerate(table.header):
        body = max((_item_width(row[i]) for row in table.rows), default=0.0)
        levels = head.split("\n")
        words = levels if len(levels) > 1 else head_words(head)
        third = 0.0 if len(levels) > 1 else text_width(head) / 3
        out.append(max([body, third, *(text_width(word) for word in words)]))
    return out


def words_wide(table: Table) -> list[float]:
    """Points of the longest word of each column: it cannot be narrower."""
    return [
        max((text_width(word, bold=True) for row in table.rows for word in row[i].text.split(" ")), default=0.0)
        for i in range(len(table.header))
    ]


def without_constants(table: Table) -> Table:
    """The table without columns that say the same in every row: a note says it."""

    def same(i: int) -> bool:
        return (
            i > 1 and len({row[i].text for row in table.rows}) == 1 and not re.match(r"[\d+−–∞]", table.rows[0][i].text)
        )

    gone = [i for i in range(len(table.header)) if len(table.rows) > 1 and same(i)]
    kept = [i for i in range(len(table.header)) if i not in gone]
    notes = tuple(f"{table.header[i].capitalize()}: {table.rows[0][i].text}." for i in gone)
    return replace(
        table,
        header=tuple(table.header[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in table.rows),
        labels=table.labels - sum(i < table.labels for i in gone),
        notes=(*notes, *table.notes),
    )


def layout(widths: Sequence[float], least: Sequence[float]) -> Fit | None:
    """Where columns of such widths fit, the smallest place first; None if nowhere, not even with long texts wrapped."""
    gaps = 2 * SEP * (len(widths) - 1)
    for wide, room in ((False, COLUMN), (True, TEXT)):
        for size, factor in SIZES.items():
            if sum(widths) * factor + gaps <= room:
                return Fit(wide, size, {})
    size, factor = next(reversed(SIZES.items()))
    long = {i: w * factor for i, w in enumerate(widths) if w * factor > LONG and w > least[i]}
    floor = {i: max(LONG / 2, least[i] * factor) for i in long}
    left = TEXT - gaps - sum(w * factor for i, w in enumerate(widths) if i not in long) - sum(floor.values())
    if not long or left < 0:
        return None
    # what is left goes by the square root: a long reason gets more than a short one, but not all
    share = {i: math.sqrt(w) for i, w in long.items()}
    return Fit(True, size, {i: min(long[i], floor[i] + left * s / sum(share.values())) for i, s in share.items()})


def blocks(table: Table, widths: Sequence[float], least: Sequence[float]) -> list[list[int]]:
    """Which columns stand in one table: its labels and as many others as fit, at least one."""
    first = list(range(table.labels))
    out = [list(first)]
    for i in range(table.labels, len(table.header)):
        longer = [*out[-1], i]
        if len(longer) > table.labels + 1 and layout([widths[k] for k in longer], [least[k] for k in longer]) is None:
            out.append(list(first))
        out[-1].append(i)
    return out


def pages(table: Table, plan: Fit) -> list[list[tuple[Item, ...]]]:
    """Rows in parts that fit a page, of about one length, broken between settings where there are some."""

    def high(row: tuple[Item, ...]) -> int:
        factor = SIZES[plan.size]
        return max([1, *(math.ceil(_item_width(row[i]) * factor / w * 1.1) for i, w in plan.wrapped.items())])

    room = LINES[plan.size] - (0 if plan.wide else 4)  # captions are longer in a column
    alike = [list(g) for _, g in groupby(table.rows, key=lambda row: row[0].text if grouped(table) else id(row))]
    groups = [g[k : k + room - 2] for g in alike for k in range(0, len(g), room - 2)]
    total = sum(high(row) for g in groups for row in g) + 2 * len(groups) * grouped(table)
    aim = total / max(1, math.ceil(total / room))
    out: list[list[tuple[Item, ...]]] = [[]]
    used = 0.0
    for group in groups:
        need = sum(high(row) for row in group) + 2 * grouped(table)
        if out[-1] and (used + need / 2 > aim or used + need > room):
            out.append([])
            used = 0.0
        out[-1] += group
        used += need
    return out


def grouped(table: Table) -> bool:
    """Whether the first column names settings, which then stand above their rows."""
    return table.header[0] == SETTING and table.labels > 1


def parts(table: Table) -> list[tuple[Table, Fit]]:
    """The table, or the tables it has to be dealt out to, each with its place."""
    table = without_constants(table)
    start = 1 if grouped(table) else 0
    widths, least = columns_wide(table), words_wide(table)
    widths[0] = 0.0 if start else widths[0]
    out = []
    for chosen in blocks(table, widths, least):
        shown = chosen[start:]
        plan = layout([widths[i] for i in shown], [least[i] for i in shown]) or Fit(True, r"\footnotesize", {})
        piece = replace(
            table,
            header=tuple(table.header[i] for i in chosen),
            rows=tuple(tuple(row[i] for i in chosen) for row in table.rows),
        )
        placed = replace(plan, wrapped={k + start: w for k, w in plan.wrapped.items()})
        out += [(replace(piece, rows=tuple(rows)), placed) for rows in pages(piece, placed)]
    return out
