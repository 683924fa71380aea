"""Reports on disk and on the terminal: a pure function of results, nothing here trains or reads data."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from dpflbench.errors import DpflbenchError
from dpflbench.execution.store import Results, write_atomically
from dpflbench.report import labels
from dpflbench.report.accounts import cost_table, epsilon_table
from dpflbench.report.comparison import winner_sentence
from dpflbench.report.evidence import best_round_table, difference_table, gap_table
from dpflbench.report.export import cells_csv, summary_csv, write_parquet
from dpflbench.report.latex import latex_report
from dpflbench.report.paper import paper_tables
from dpflbench.report.table import Table, as_markdown, as_text
from dpflbench.report.tables import utility_tables
from dpflbench.report.view import View, view
from dpflbench.report.whopays import who_pays_table

FORMATS = ("html", "markdown", "csv", "latex", "parquet", "png", "pdf")


def all_tables(v: View) -> list[Table]:
    """Every table of a report, in reading order."""
    found = [*utility_tables(v), *paper_tables(v), difference_table(v), epsilon_table(v), who_pays_table(v), best_round_table(v),
             cost_table(v), gap_table(v)]
    return [table for table in found if table is not None and (table.rows or table.notes)]


def summary_table(results: Results) -> str:
    """The terminal's report: the utility tables, what is missing and why, and who won."""
    v = view(results)
    width = max(80, shutil.get_terminal_size((132, 24)).columns)
    parts = [as_text(table, width) for table in utility_tables(v)]
    parts += [f"unreadable record: {labels.clean(p)}" for p in v.problems]
    return "\n\n".join([*parts, winner_sentence(v)]) + "\n"


def markdown_report(v: View) -> str:
    """The whole report as one Markdown text."""
    head = f"# {labels.markdown(v.name)}\n\n{labels.markdown(winner_sentence(v))}\n"
    return "\n".join([head, *(as_markdown(table) for table in all_tables(v))])


def _markdown(v: View, out: Path) -> list[Path]:
    write_atomically(out / "report.md", markdown_report(v))
    return [out / "report.md"]


def _csv(v: View, out: Path) -> list[Path]:
    write_atomically(out / "summary.csv", summary_csv(v))
    write_atomically(out / "cells.csv", cells_csv(v))
    return [out / "summary.csv", out / "cells.csv"]


def _latex(v: View, out: Path) -> list[Path]:
    write_atomically(out / "tables.tex", latex_report(all_tables(v)))
    return [out / "tables.tex"]


def _html(v: View, out: Path) -> list[Path]:
    from dpflbench.report.html import html_report

    write_atomically(out / "index.html", html_report(v, all_tables(v)))
    return [out / "index.html"]


def _figures(v: View, out: Path, kinds: Sequence[str]) -> list[Path]:
    from dpflbench.report.charts import all_charts
    from dpflbench.report.figures import draw_all

    return draw_all(all_charts(v), v.algorithms, out / "figures", kinds)


WRITERS: dict[str, Callable[[View, Path], list[Path]]] = {"html": _html, "markdown": _markdown, "csv": _csv, "latex": _latex,
                                                          "parquet": write_parquet}


def check_formats(formats: Sequence[str]) -> None:
    """DpflbenchError names a format there is not."""
    unknown = [f for f in formats if f not in FORMATS]
    if unknown:
        raise DpflbenchError(f"--format {labels.short(unknown[0])}: unknown; allowed: {', '.join(FORMATS)}")


def write_report(results: Results, out: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write a report in the given formats; returns the files, the one to read first at the front."""
    check_formats(formats)
    v = view(results)
    out.mkdir(parents=True, exist_ok=True)
    paths = [path for name in WRITERS if name in formats for path in WRITERS[name](v, out)]
    kinds = [kind for kind in ("png", "pdf") if kind in formats]
    return paths + (_figures(v, out, kinds) if kinds else [])
