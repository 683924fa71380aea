"""Tables and figures as they are shown: text for a terminal, Markdown and SVG for a notebook, files for a paper."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpflbench.errors import DpflbenchError
from dpflbench.report import labels
from dpflbench.report.charts.chart import Chart
from dpflbench.report.charts.files import KINDS, WIDTHS, Format, figure, figure_path, write_figure
from dpflbench.report.charts.frame import Looks
from dpflbench.report.tables.table import Table, as_markdown, as_text
from dpflbench.report.view import View
from dpflbench.results.store import writing
from dpflbench.schema import suggest


@dataclass(frozen=True, slots=True)
class TableView:
    """Tables that belong together, with lines below them."""

    tables: tuple[Table, ...]
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n\n".join([*(as_text(table) for table in self.tables), *map(labels.clean, self.lines)])

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return "\n".join([*(as_markdown(table, 4) for table in self.tables), *map(labels.markdown, self.lines)])


@dataclass(frozen=True, slots=True)
class FigureView:
    """A figure of a report; a notebook shows it."""

    chart: Chart
    looks: Looks
    format: Format

    @property
    def name(self) -> str:
        """Its name, which is that of its files."""
        return name_of(self.chart)

    @property
    def caption(self) -> str:
        """What it shows."""
        return labels.clean(self.chart.caption)

    @property
    def svg(self) -> str:
        """The drawing."""
        return figure(self.chart, self.looks, self.format)

    def save(self, folder: str | Path = ".", formats: Sequence[str] = ("pdf",)) -> list[Path]:
        """Write it into a folder; the files."""
        for kind in formats:
            if kind not in KINDS:
                raise DpflbenchError(f"--format {labels.short(kind)}: unknown; allowed: {', '.join(KINDS)}")
        with writing(Path(folder)) as out:
            out.mkdir(parents=True, exist_ok=True)
            return write_figure(self.chart, self.looks, out, formats, self.format)

    def _repr_svg_(self) -> str:
        return self.svg


def name_of(chart: Chart) -> str:
    """What a figure is called, and its files."""
    return figure_path(chart, Path(), "svg").stem


def inches(width: str | float) -> float:
    """A width in inches, from its name or number."""
    try:
        found = WIDTHS[width] if isinstance(width, str) and width in WIDTHS else float(width)
    except ValueError:
        found = 0.0
    if not 1 <= found <= 40:
        raise DpflbenchError(f"--width {labels.short(width)}: allowed: {', '.join(WIDTHS)}, or 1 to 40 (inches)")
    return found


def chosen(view: View, only: Sequence[str], where: Iterable[str] | Mapping[str, object]) -> View:
    """The view with some algorithms and settings only; ranks and winners are then among those."""
    for name in only:
        if name not in view.algorithms:
            raise DpflbenchError(f"--only {labels.short(name)}: no such algorithm; {suggest(name, view.algorithms)}")
    if isinstance(where, Mapping):
        where = [f"{axis}={labels.axis_value(value)}" for axis, value in where.items()]
    asked = list(where)
    values = {c.key: [f"{axis}={labels.axis_value(v)}" for axis, v in c.coordinates.items()] for c in view.columns}
    columns = [c for c in view.columns if set(asked) <= set(values[c.key])]
    if not columns:
        known = dict.fromkeys(text for texts in values.values() for text in texts)
        raise DpflbenchError(f"--where {labels.short(' '.join(asked))}: no such setting; allowed: {', '.join(known)}")
    algorithms = tuple(a for a in view.algorithms if not only or a in only)
    return replace(view, algorithms=algorithms, columns=tuple(columns))
