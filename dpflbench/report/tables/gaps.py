"""Cells without a result: why, in words for a footnote and as a table."""

from collections.abc import Sequence

from dpflbench.report import labels
from dpflbench.report.tables.table import Item, Table
from dpflbench.report.view import Ending, Group, View


def gap_lines(endings: Sequence[Ending]) -> list[str]:
    """Why there is no value, seeds with the same reason together: `diverged in seeds 1 and 4: ...`."""
    found: dict[tuple[str, str], list[str]] = {}
    for ending in endings:
        found.setdefault((ending.status, ending.reason), []).append(str(ending.seed))
    lines = []
    for (status, reason), seeds in found.items():
        which = "" if status == "impossible" else f" in seed{'s' * (len(seeds) != 1)} {labels.listing(seeds)}"
        lines.append(f"{status}{which}: {reason}")
    return lines


def gap_text(endings: Sequence[Ending]) -> str:
    """What stands in a cell without any value."""
    return " / ".join(dict.fromkeys(e.status for e in endings)) or "–"


def gap_table(view: View) -> Table | None:
    """Every cell without a value and why; None if there is none."""
    found: dict[tuple[str, str, str], list[tuple[Group, int]]] = {}
    for group in view.groups.values():
        for gap in group.gaps:
            found.setdefault((group.algorithm, gap.status, gap.reason), []).append((group, gap.seed))
    rows = []
    for (algorithm, status, reason), places in found.items():
        where = "; ".join(dict.fromkeys(group.column.title for group, _ in places))
        seeds = sorted({seed for _, seed in places})
        which = "all" if status == "impossible" or len(seeds) == len(view.seeds) else ", ".join(map(str, seeds))
        rows.append(tuple(Item(text) for text in (algorithm, where, which, status, reason)))
    if not rows and not view.problems:
        return None
    return Table(
        key="gaps",
        title="Cells without a result, and why",
        header=("algorithm", "where", "seeds", "what", "why"),
        rows=tuple(rows),
        notes=view.problems,
        labels=5,
    )
