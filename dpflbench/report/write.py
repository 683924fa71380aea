"""Reports on disk and on the terminal: a pure function of results, nothing here trains or reads data."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dpflbench.errors import DpflbenchError
from dpflbench.report import labels
from dpflbench.report.accounts import cost_table, epsilon_table
from dpflbench.report.chart import Chart
from dpflbench.report.charts import all_charts
from dpflbench.report.comparison import winner_sentence
from dpflbench.report.drawing import Drawing
from dpflbench.report.evidence import best_round_table, difference_table, gap_table
from dpflbench.report.export import cells_csv, summary_csv, write_parquet
from dpflbench.report.figures import figure_path
from dpflbench.report.latex import latex_report
from dpflbench.report.paper import paper_tables
from dpflbench.report.table import Table, as_markdown, as_text
from dpflbench.report.tables import utility_tables
from dpflbench.report.view import View, view
from dpflbench.report.whopays import who_pays_table
from dpflbench.results.cells import Results
from dpflbench.results.store import write_atomically

FORMATS = ("html", "markdown", "csv", "latex", "parquet", "png", "pdf")


@dataclass(frozen=True)
class Report:
    """All tables and charts of some results, each made once."""

    view: View
    pictures: bool = False  # whether PNG figures will lie beside it

    @cached_property
    def tables(self) -> list[Table]:
        """Every table, in reading order."""
        v = self.view
        found = [
            *utility_tables(v),
            *paper_tables(v),
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
        return all_charts(self.view)


def summary_table(results: Results) -> str:
    """The terminal's report: the utility tables, what is missing and why, and who won."""
    v = view(results)
    width = max(80, shutil.get_terminal_size((132, 24)).columns)
    parts = [as_text(table, width) for table in utility_tables(v)]
    parts += [f"unreadable record: {labels.clean(p)}" for p in v.problems]
    return "\n\n".join([*parts, winner_sentence(v)]) + "\n"


def markdown_report(report: Report, figures: bool = False) -> str:
    """The whole report as one Markdown text, with the PNG figures beside it if there are any."""
    head = f"# {labels.markdown(report.view.name)}\n\n{labels.markdown(winner_sentence(report.view))}\n"
    pictures = [
        f"## {labels.markdown(chart.title)}\n\n"
        f"![{labels.markdown(chart.title)}]({figure_path(chart, Path('figures'), 'png')})\n\n"
        f"{labels.markdown(chart.caption)}\n"
        for chart in report.charts
        if figures
    ]
    tables = [as_markdown(table) for table in report.tables]
    utility = sum(table.key.startswith("utility") for table in report.tables)
    return "\n".join([head, *tables[:utility], *pictures, *tables[utility:]])


def _markdown(report: Report, out: Path) -> list[Path]:
    write_atomically(out / "report.md", markdown_report(report, figures=report.pictures))
    return [out / "report.md"]


def _csv(report: Report, out: Path) -> list[Path]:
    write_atomically(out / "summary.csv", summary_csv(report.view))
    write_atomically(out / "cells.csv", cells_csv(report.view))
    return [out / "summary.csv", out / "cells.csv"]


def _latex(report: Report, out: Path) -> list[Path]:
    write_atomically(out / "tables.tex", latex_report(report.tables))
    return [out / "tables.tex"]


def _html(report: Report, out: Path) -> list[Path]:
    from dpflbench.report.html import html_report

    write_atomically(out / "index.html", html_report(report.view, report.tables, report.charts))
    return [out / "index.html"]


def _parquet(report: Report, out: Path) -> list[Path]:
    return write_parquet(report.view, out)


WRITERS: dict[str, Callable[[Report, Path], list[Path]]] = {
    "html": _html,
    "markdown": _markdown,
    "csv": _csv,
    "latex": _latex,
    "parquet": _parquet,
}


def check_formats(formats: Sequence[str]) -> None:
    """DpflbenchError names a format there is not."""
    unknown = [f for f in formats if f not in FORMATS]
    if unknown:
        raise DpflbenchError(f"--format {labels.short(unknown[0])}: unknown; allowed: {', '.join(FORMATS)}")


def write_report(results: Results, out: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write a report in the given formats; returns the files, the one to read first at the front."""
    check_formats(formats)
    report = Report(view(results), "png" in formats)
    out.mkdir(parents=True, exist_ok=True)
    kinds = [kind for kind in ("png", "pdf") if kind in formats]
    if not kinds:
        return [path for name in WRITERS if name in formats for path in WRITERS[name](report, out)]
    drawing = Drawing(report.charts, report.view.algorithms, out / "figures", kinds)  # begins beside what follows
    paths = [path for name in WRITERS if name in formats for path in WRITERS[name](report, out)]
    return paths + drawing.finish()
