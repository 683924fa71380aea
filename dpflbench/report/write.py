"""Reports on disk and on the terminal: a pure function of results, nothing here trains or reads data."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dpflbench.catalogue import Catalogue
from dpflbench.errors import DpflbenchError
from dpflbench.report import labels
from dpflbench.report.charts.chart import Chart
from dpflbench.report.charts.clients import participation_chart, selection_chart, who_pays_charts
from dpflbench.report.charts.curves import rounds_chart, sweep_charts, time_chart
from dpflbench.report.charts.files import KINDS, figure_path, write_figure
from dpflbench.report.charts.looks import Look, looks
from dpflbench.report.charts.winners import rank_chart, winner_chart
from dpflbench.report.comparison import winner_sentence
from dpflbench.report.export import cells_csv, summary_csv, write_parquet
from dpflbench.report.latex import latex_report
from dpflbench.report.sections import section_contents
from dpflbench.report.tables.costs import cost_table, epsilon_table
from dpflbench.report.tables.differences import best_round_table, difference_table
from dpflbench.report.tables.gaps import gap_table
from dpflbench.report.tables.table import Table, as_markdown, as_text
from dpflbench.report.tables.utility import utility_tables
from dpflbench.report.tables.who_pays import who_pays_table
from dpflbench.report.view import View, view
from dpflbench.results.cells import Results
from dpflbench.results.store import write_atomically

FORMATS = ("html", "markdown", "csv", "latex", "parquet", *KINDS)


@dataclass(frozen=True)
class Contents:
    """All tables and charts of some results, each made once."""

    view: View
    catalogue: Catalogue | None = None  # where sections come from; looked for if not given
    pictures: bool = False  # whether PNG figures will lie beside it

    @cached_property
    def added(self) -> list[Table | Chart]:
        """What plugins add."""
        return section_contents(self.view, self.catalogue)

    @cached_property
    def tables(self) -> list[Table]:
        """Every table, in reading order."""
        v = self.view
        found = [
            *utility_tables(v),
            *(t for t in self.added if isinstance(t, Table)),
            difference_table(v),
            epsilon_table(v),
            who_pays_table(v),
            best_round_table(v),
            cost_table(v),
            gap_table(v),
        ]
        return [table for table in found if table is not None and (table.rows or table.notes)]

    @cached_property
    def charts(self) -> list[Chart]:
        """Every chart the results allow, in reading order."""
        v = self.view
        found = [
            rounds_chart(v),
            *sweep_charts(v),
            winner_chart(v),
            rank_chart(v),
            *who_pays_charts(v),
            participation_chart(v),
            selection_chart(v),
            time_chart(v),
            *(c for c in self.added if isinstance(c, Chart)),
        ]
        return [chart for chart in found if chart is not None and chart.panels]

    @cached_property
    def looks(self) -> dict[str, Look]:
        """How each algorithm looks in all of them."""
        return looks(self.view)


def summary_table(results: Results) -> str:
    """The terminal's report: the utility tables, what is missing and why, and who won."""
    v = view(results)
    width = max(80, shutil.get_terminal_size((132, 24)).columns)
    parts = [as_text(table, width) for table in utility_tables(v)]
    parts += [f"unreadable record: {labels.clean(p)}" for p in v.problems]
    return "\n\n".join([*parts, winner_sentence(v)]) + "\n"


def markdown_report(contents: Contents) -> str:
    """The whole report as one Markdown text, with the PNG figures beside it if there are any."""
    v = contents.view
    head = f"# {labels.markdown(v.name)}\n\n{labels.markdown(winner_sentence(v))}\n"
    pictures = [
        f"## {labels.markdown(chart.title)}\n\n"
        f"![{labels.markdown(chart.title)}]({figure_path(chart, Path('figures'), 'png')})\n\n"
        f"{labels.markdown(chart.caption)}\n"
        for chart in contents.charts
        if contents.pictures
    ]
    tables = [as_markdown(table) for table in contents.tables]
    utility = sum(table.key.startswith("utility") for table in contents.tables)
    return "\n".join([head, *tables[:utility], *pictures, *tables[utility:]])


def _html(contents: Contents) -> str:
    from dpflbench.report.page import html_report

    return html_report(contents.view, contents.tables, contents.charts, contents.looks)


TEXTS: dict[str, dict[str, Callable[[Contents], str]]] = {  # format → file name → its text
    "html": {"index.html": _html},
    "markdown": {"report.md": markdown_report},
    "csv": {"summary.csv": lambda c: summary_csv(c.view), "cells.csv": lambda c: cells_csv(c.view)},
    "latex": {"tables.tex": lambda c: latex_report(c.tables)},
}


def check_formats(formats: Sequence[str]) -> None:
    """DpflbenchError names a format there is not."""
    unknown = [f for f in formats if f not in FORMATS]
    if unknown:
        raise DpflbenchError(f"--format {labels.short(unknown[0])}: unknown; allowed: {', '.join(FORMATS)}")


def write_report(
    results: Results, out: Path, formats: Sequence[str] = FORMATS, catalogue: Catalogue | None = None
) -> list[Path]:
    """Write a report in the given formats; returns the files, the one to read first at the front."""
    check_formats(formats)
    contents, paths = Contents(view(results), catalogue, "png" in formats), []
    out.mkdir(parents=True, exist_ok=True)
    for name, make in [item for each in TEXTS if each in formats for item in TEXTS[each].items()]:
        paths.append(out / name)
        write_atomically(paths[-1], make(contents))
    if "parquet" in formats:
        paths += write_parquet(contents.view, out)
    kinds = [kind for kind in KINDS if kind in formats]
    if kinds:
        (out / "figures").mkdir(exist_ok=True)
        paths += [p for c in contents.charts for p in write_figure(c, contents.looks, out / "figures", kinds)]
    return paths
