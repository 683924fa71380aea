"""A results folder in Python: numbers as data frames, tables, figures, and what others say of it."""

import math
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dpflbench.api.options import data_root
from dpflbench.api.status import FolderStatus, status_of
from dpflbench.api.verification import Verification
from dpflbench.api.views import FigureView, TableView, chosen, inches, name_of
from dpflbench.catalogue import Catalogue, load
from dpflbench.errors import DpflbenchError
from dpflbench.judges.marks import marked
from dpflbench.judges.replay import replay as play_again
from dpflbench.judges.replay import sample
from dpflbench.judges.verify import Finding, verify
from dpflbench.regression import Comparison, Limits, baseline_of, check_verified, compare, dump_baseline, load_baseline
from dpflbench.report import labels
from dpflbench.report.charts.files import PAPER, Format, check_font
from dpflbench.report.export import FRAMES, long_table
from dpflbench.report.headline import headline
from dpflbench.report.merge import Folder, merge
from dpflbench.report.tables.utility import utility_tables
from dpflbench.report.view import view
from dpflbench.report.write import FORMATS, Contents, check_formats, summary_table, write_report
from dpflbench.results.cells import Results
from dpflbench.results.record import Record
from dpflbench.results.store import Store, write_atomically, writing
from dpflbench.schema import suggest

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["cells", "rounds", "clients", "events", "summary"]


@dataclass(frozen=True, eq=False)
class ResultsFolder:
    """The results of a suite, or of several folders of one suite that were merged."""

    paths: tuple[Path, ...]
    results: Results = field(repr=False)  # as they were read
    catalogue: Catalogue = field(repr=False)
    doubts: bool = False  # whether tables mark what could not be verified, beside what is wrong

    @property
    def path(self) -> Path:
        """The folder; the first of several."""
        return self.paths[0]

    @property
    def records(self) -> Mapping[str, Record]:
        """Every readable record, by the id of its run."""
        return self.results.records

    @cached_property
    def marked(self) -> Results:
        """The results after their records were verified, with a mark where numbers do not stand."""
        if len(self.paths) > 1:  # each was, before they were merged
            return self.results
        return marked(self.results, self.catalogue, doubts=self.doubts)

    @cached_property
    def contents(self) -> Contents:
        """All tables and charts of a report."""
        return Contents(view(self.marked), self.catalogue)

    def frame(self, kind: Kind = "cells") -> "pd.DataFrame":
        """A data frame: `cells` has a row a cell of the table, `rounds` one an evaluated round, `clients` one a client
        of a cell, `events` one a release of a client, `summary` one an algorithm and column with its statistics.
        """
        if kind not in FRAMES:
            raise DpflbenchError(f"frame {labels.short(kind)}: unknown; {suggest(kind, FRAMES)}")
        seen = view(self.marked if kind == "summary" else self.results)
        found: pd.DataFrame = long_table(seen, kind).to_pandas()
        return found

    def summary(self, why: bool = False) -> str:
        """What `dpflbench run` prints: the utility tables, what is missing and why, who won."""
        return summary_table(self.marked, why)

    @property
    def tables(self) -> list[str]:
        """The names of all tables there are."""
        return [table.key for table in self.contents.tables]

    def table(self, name: str | None = None) -> TableView:
        """A table of the report by its name; without one utility, with who won below."""
        seen = self.contents.view
        if name is None:
            return TableView(tuple(utility_tables(seen)), tuple(line.text for line in headline(seen)))
        found = {table.key: table for table in self.contents.tables}
        if name not in found:
            raise DpflbenchError(f"table {labels.short(name)}: no such table; {suggest(name, found)}")
        return TableView((found[name],))

    @property
    def figures(self) -> list[str]:
        """The names of all figures there are."""
        return [name_of(chart) for chart in self.contents.charts]

    def figure(
        self,
        name: str,
        *,
        width: str | float = "column",
        only: Sequence[str] = (),
        where: Iterable[str] | Mapping[str, object] = (),
        font: str = PAPER.font,
        size: float = PAPER.letters,
        across: int = 0,
    ) -> FigureView:
        """A figure by its name, `column` (3.4 inches), `text` (7 inches) or so many inches wide, with these algorithms
        (`only`) and settings (`where={"privacy.mechanism": "gaussian"}`), in this font and size of letters.
        """
        check_font(font)
        wanted = Format(inches(width), size, font, across)
        part = Contents(chosen(self.contents.view, only, where), self.catalogue)
        charts = {name_of(chart): chart for chart in part.charts}
        if name not in charts:
            raise DpflbenchError(f"{labels.short(name)}: no such figure; {suggest(name, charts)}")
        return FigureView(charts[name], self.contents.looks, wanted)

    @property
    def target(self) -> Path:
        """Where its report goes if nobody says: below it, or here for several."""
        return self.path / "report" if len(self.paths) == 1 else Path("report")

    def report(self, out: str | Path | None = None, formats: Sequence[str] = FORMATS) -> list[Path]:
        """Write the report: tables, figures and one HTML page; the files, the one to read first at the front."""
        check_formats(formats)
        target = Path(out) if out is not None else self.target
        with writing(target, "; the records are whole, `dpflbench report` makes the report anew"):
            return write_report(self.marked, target, formats, self.catalogue, self.paths)

    def findings(
        self, replay: int | None = 0, seed: int = 0, data: str | Path | None = None
    ) -> tuple[list[str], Iterator[Finding]]:
        """The runs that are played again, and a finding for every run as soon as it is there."""
        root, again = data_root(data), sample(self._verifiable, replay, seed)
        play = lambda record: play_again(record, self.catalogue, root)  # noqa: E731
        return again, verify(self.results, self.catalogue, play, again)

    def verify(
        self, *, replay: int | None = 0, seed: int | None = None, data: str | Path | None = None
    ) -> Verification:
        """Every number recomputed from the records alone, by a second accountant where there is one; `replay` runs
        (None: all), drawn by `seed`, are played again to the last bit.
        """
        self._one("verify")
        seed = secrets.randbelow(1 << 32) if seed is None else seed
        again, findings = self.findings(replay, seed, data)
        return self.verdict(list(findings), seed, again)

    def compare(
        self,
        baseline: "str | Path | ResultsFolder",
        *,
        tolerance: float = 0.5,
        slowdown: float = 2.0,
        strict_numerics: bool = False,
    ) -> Comparison:
        """These results against a baseline file or other results: coverage, utility at equal epsilon, numerics,
        privacy, run time. `tolerance`: loss of utility that passes; `slowdown`: run time that does, 0 for any.
        """
        self._one("compare")
        if not tolerance >= 0 or not slowdown >= 0:
            raise DpflbenchError(f"compare: --tolerance {tolerance:g}, --slowdown {slowdown:g}; allowed: 0 or more")
        other = baseline.path if isinstance(baseline, ResultsFolder) else Path(baseline)
        then = load_baseline(other)
        if then.name != self.results.manifest.name:
            raise DpflbenchError(
                f"{self.path}: results of suite '{self.results.manifest.name}', {other} of suite '{then.name}'; give a "
                "baseline of the same suite, or make one of these results by --update-baseline"
            )
        return compare(self.results, then, Limits(tolerance, slowdown or math.inf, strict_numerics))

    def write_baseline(self, file: str | Path) -> Path:
        """Make these results a baseline; they must be verified."""
        self._one("compare")
        target = Path(file)
        if target.is_dir():
            raise DpflbenchError(f"--baseline {target}: a folder; --update-baseline writes a file")
        text = dump_baseline(baseline_of(self.results))
        check_verified(self.results)
        with writing(target):
            write_atomically(target, text)
        return target

    def status(self) -> FolderStatus:
        """How far the folder is at this moment."""
        self._one("status")
        return status_of(Store(self.path))

    @property
    def _verifiable(self) -> list[str]:
        """Every run that has a record, those that tuned the others too."""
        return [*self.records, *self.results.tuning]

    def verdict(self, findings: Sequence[Finding], seed: int, again: Sequence[str]) -> Verification:
        """The findings, counted."""
        return Verification(tuple(findings), len(self._verifiable), seed, len(again))

    def _one(self, what: str) -> None:
        if len(self.paths) > 1:
            raise DpflbenchError(f"{what}: {len(self.paths)} results folders; allowed: one at a time")

    def __str__(self) -> str:
        return self.summary()

    def _repr_markdown_(self) -> str:
        return self.table()._repr_markdown_()


def read(*folders: str | Path, without: Sequence[str] = ()) -> ResultsFolder:
    """The results in a folder; several are merged if only declared axes differ."""
    if not folders:
        raise DpflbenchError("read: no results folder given")
    paths, catalogue = tuple(map(Path, folders)), load(without)
    if len(paths) == 1:
        return ResultsFolder(paths, Store(paths[0]).results(), catalogue)
    found = [Folder(str(path), marked(Store(path).results(), catalogue, doubts=False)) for path in paths]
    return ResultsFolder(paths, merge(found), catalogue)
