"""Reports on disk and on the terminal: a pure function of results, nothing here trains or reads data."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from dpflbench.report.charts.trust import trust_chart, trust_names
from dpflbench.report.charts.tuned import tuning_charts
from dpflbench.report.charts.why import gap_charts, why_chart
from dpflbench.report.charts.winners import rank_chart, rank_table, winner_chart
from dpflbench.report.downloads import downloads
from dpflbench.report.export import cells_csv, summary_csv, write_parquet
from dpflbench.report.headline import headline
from dpflbench.report.latex import PREAMBLE, latex_files
from dpflbench.report.sections import section_contents
from dpflbench.report.tables.claims import claims_table
from dpflbench.report.tables.costs import cost_table, epsilon_table
from dpflbench.report.tables.differences import best_round_table, difference_table
from dpflbench.report.tables.gap_parts import gap_parts_table
from dpflbench.report.tables.gaps import gap_table
from dpflbench.report.tables.table import Table, as_markdown, as_text, wrapped
from dpflbench.report.tables.tuned import tuned_table, tuning_csv
from dpflbench.report.tables.utility import utility_tables
from dpflbench.report.tables.who_pays import who_pays_table
from dpflbench.report.tables.why import why_table
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
            tuned_table(v),
            why_table(v),
            gap_parts_table(v),
            epsilon_table(v),
            who_pays_table(v),
            best_round_table(v),
            cost_table(v),
            rank_table(v),
            gap_table(v),
            claims_table(v),
        ]
        return [table for table in found if table is not None and (table.rows or table.notes)]

    @cached_property
    def charts(self) -> list[Chart]:
        """Every chart the results allow, in reading order."""
        v = self.view
        found = [
            rounds_chart(v),
            trust_chart(v),
            *sweep_charts(v),
            winner_chart(v),
            rank_chart(v),
            *tuning_charts(v),
            why_chart(v),
            *gap_charts(v),
            *who_pays_charts(v),
            participation_chart(v),
            selection_chart(v),
            time_chart(v),
            *(c for c in self.added if isinstance(c, Chart)),
        ]
        return [chart for chart in found if chart is not None and chart.panels]

    @cached_property
    def looks(self) -> dict[str, Look]:
        """How each algorithm, and each way to trust, looks in all of them."""
        return {**trust_names(self.view), **looks(self.view)}


def summary_table(results: Results, why: bool = False) -> str:
    """The terminal's report: the utility tables, what was tuned, what is missing and why, who won, and on request what
    explains it.
    """
    v = view(results)
    width = max(80, shutil.get_terminal_size((132, 24)).columns)
    parts = [as_text(table, width) for table in utility_tables(v)]
    parts += [as_text(table, width) for table in [tuned_table(v)] if table is not None]
    parts += [labels.clean(p) for p in v.problems]
    parts += [as_text(table, width) for table in (why_table(v), gap_parts_table(v)) if why and table is not None]
    parts += [wrapped(labels.clean(line.text, 2000), width) for line in headline(v)]
    return "\n\n".join(parts) + "\n"


def markdown_report(contents: Contents) -> str:
    """The whole report as one Markdown text, with the PNG figures beside it if there are any."""
    v = contents.view
    lines = [labels.markdown(line.text) for line in headline(v)]
    head = (
        f"# {labels.markdown(v.name)}\n\n" + "\n".join(f"- {line}" if len(lines) > 1 else line for line in lines) + "\n"
    )
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


TEXTS: dict[str, dict[str, Callable[[Contents], str]]] = {  # format → file name → its text
    "markdown": {"report.md": markdown_report},
    "csv": {"summary.csv": lambda c: summary_csv(c.view), "cells.csv": lambda c: cells_csv(c.view)},
}


def write_latex(contents: Contents, folder: Path) -> list[Path]:
    """Write one file a table, and one that shows them all; tables of an earlier report do not stay behind."""
    plain = replace(contents.view, report=replace(contents.view.report, sections=[]))
    added = [t for t in contents.added if isinstance(t, Table)]
    texts = latex_files(plain, lambda view: Contents(view, contents.catalogue).tables, added)
    folder.mkdir(exist_ok=True)
    for old in set(folder.glob("*.tex")) - {folder / name for name in texts}:
        if old.read_text(encoding="utf-8", errors="replace").startswith(PREAMBLE):
            old.unlink()
    for name, text in texts.items():
        write_atomically(folder / name, text)
    return [folder / name for name in texts]


def check_formats(formats: Sequence[str]) -> None:
    """DpflbenchError names a format there is not."""
    unknown = [f for f in formats if f not in FORMATS]
    if unknown:
        raise DpflbenchError(f"--format {labels.short(unknown[0])}: unknown; allowed: {', '.join(FORMATS)}")


def write_report(
    results: Results,
    out: Path,
    formats: Sequence[str] = FORMATS,
    catalogue: Catalogue | None = None,
    folders: Sequence[Path] = (),  # that the results come from: a page inside one links its records
) -> list[Path]:
    """Write a report in the given formats; returns the files, the one to read first at the front."""
    check_formats(formats)
    contents, paths = Contents(view(results), catalogue, "png" in formats), []
    out.mkdir(parents=True, exist_ok=True)
    texts = [item for each in TEXTS if each in formats for item in TEXTS[each].items()]
    texts += [("tuning.csv", lambda c: tuning_csv(c.view))] if contents.view.tuned and "csv" in formats else []
    for name, make in texts:
        paths.append(out / name)
        write_atomically(paths[-1], make(contents))
    if "latex" in formats:
        paths += write_latex(contents, out / "tables")
    if "parquet" in formats:
        paths += write_parquet(contents.view, out)
    kinds = [kind for kind in KINDS if kind in formats]
    if kinds:
        (out / "figures").mkdir(exist_ok=True)
        paths += [p for c in contents.charts for p in write_figure(c, contents.looks, out / "figures", kinds)]
    runs = {f: [run for run in results.records if results.folders.get(run, str(f)) == str(f)] for f in folders}
    return [*_write_page(contents, out, paths, runs), *paths] if "html" in formats else paths


def _write_page(
    contents: Contents, out: Path, paths: Sequence[Path], folders: Mapping[Path, Sequence[str]]
) -> list[Path]:
    """The page and the suite it shows; last, for it links everything else."""
    from dpflbench.report.page import html_report, suite_text

    v, page, suite = contents.view, out / "index.html", out / "suite.yaml"
    write_atomically(suite, suite_text(v))
    beside = downloads([*paths, suite], out, folders)
    write_atomically(page, html_report(v, contents.tables, contents.charts, contents.looks, beside))
    return [page, suite]
