"""Sections: what a stranger's plugin adds to a report, and what happens when it cannot."""

from dataclasses import dataclass

import pytest
from record_factory import make_results
from typer.testing import CliRunner

from dpflbench.catalogue import KINDS, Catalogue, Part
from dpflbench.cli import app
from dpflbench.report.charts.chart import Chart, Lanes, Mark
from dpflbench.report.tables.table import Item, Table
from dpflbench.report.view import view
from dpflbench.report.write import Contents, write_report
from dpflbench.results.store import Store
from dpflbench.testing import ConformanceError, check_section


@dataclass(frozen=True)
class Votes:
    """How many cells each algorithm has, as a table and a chart."""

    least: int = 0

    def contents(self, view):
        names = [a for a in view.algorithms if len(view.columns) * len(view.seeds) >= self.least]
        rows = tuple((Item(name), Item(str(len(view.seeds)), len(view.seeds))) for name in names)
        marks = tuple(Mark(lane=i, x=float(i), marker="up", hint=name) for i, name in enumerate(names))
        lanes = Lanes(title="", x_label="votes", names=tuple(names), marks=marks)
        return [
            Table(key="votes", title="Votes", header=("algorithm", "votes"), rows=rows),
            Chart(key="votes", title="Votes drawn", caption="One each.", panels=(lanes,) if names else ()),
        ]


@dataclass(frozen=True)
class Broken:
    """A section with a fault."""

    def contents(self, view):
        return [1 / 0]


@dataclass(frozen=True)
class Careless:
    """A section that returns anything."""

    def contents(self, view):
        return ["a table"]


def catalogue_of(**factories) -> Catalogue:
    parts = {name: Part("sections", name, f, "own", "third-party", "1.0", __name__) for name, f in factories.items()}
    return Catalogue({kind: parts if kind == "sections" else {} for kind in KINDS})


def contents(*asked, **factories) -> Contents:
    return Contents(view(make_results(seeds=2, report={"sections": list(asked)})), catalogue_of(**factories))


def test_a_section_adds_tables_and_charts_under_its_own_name(tmp_path):
    found = contents({"name": "mine", "least": 1}, mine=Votes)
    table = next(t for t in found.tables if t.key == "mine-votes")
    assert [row[0].text for row in table.rows] == ["FedSGD", "DPSGD", "WeiAvg", "DPFL-BCS"]
    assert [c.key for c in found.charts][-1] == "mine-votes"
    results = make_results(seeds=2, report={"sections": ["mine"]})
    paths = write_report(results, tmp_path, ["html", "png"], catalogue_of(mine=Votes))
    assert tmp_path / "figures" / "mine-votes.png" in paths
    assert 'id="fig-mine-votes"' in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    ("factory", "why"),
    [
        (Broken, "not shown: ZeroDivisionError: division by zero"),
        (Careless, "not shown: it holds a str; allowed: Table and Chart"),
    ],
)
def test_a_section_that_fails_is_a_line_of_the_report_and_not_its_end(factory, why):
    found = contents("mine", mine=factory)
    (note,) = (t.notes[0] for t in found.tables if t.title == "Section mine")
    assert note.startswith(why)
    assert found.tables[0].key == "utility"


def test_sections_are_checked_like_other_parts():
    check_section(Votes)
    with pytest.raises(ConformanceError, match=r"section Broken: contents\(view\) without any record raises ZeroDivis"):
        check_section(Broken)
    with pytest.raises(ConformanceError, match="section Careless: contents holds a str; expected Table and Chart only"):
        check_section(Careless)


def test_a_report_asks_the_plugin_of_the_sections_name(tmp_path):
    results = make_results(seeds=1, report={"sections": ["ma2024"]})
    store = Store(tmp_path)
    store.write_manifest(results.manifest)
    for record in results.records.values():
        store.write(record)
    answer = CliRunner().invoke(app, ["report", str(tmp_path), "-q", "-f", "markdown"])
    assert answer.exit_code == 0, answer
    assert "claims under exact accounting" in (tmp_path / "report" / "report.md").read_text()
