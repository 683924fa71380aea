"""Rows that do not stand, or could have been spoilt, are marked wherever they are shown, and never called best."""

import csv
import json
from dataclasses import replace

import pytest
from harness import run_of
from places import KEY, place
from suite_runs import carry_out, planned_of
from typer.testing import CliRunner

from dpflbench.api.folders import read
from dpflbench.canonical import content_digest
from dpflbench.cli import app
from dpflbench.execution.attempt import execute
from dpflbench.judges.exposed import exposed, remark
from dpflbench.judges.marks import marked
from dpflbench.judges.verify import rulings, verify
from dpflbench.results.record import dumps
from dpflbench.results.rulings import NOT_AS_CLAIMED
from dpflbench.results.store import Store
from dpflbench_algorithms.accountants import GaussianDP
from dpflbench_algorithms.mechanisms import Gaussian

runner = CliRunner()


class Thin(Gaussian):
    """Nine tenths of its noise."""

    def noised(self, value, scale, draws):
        return super().noised(value, 0.9 * scale, draws)


class AsPrinted(GaussianDP):
    """The prices of somebody's reading, which are no proof."""

    name = "as_printed"
    unproved = "the sensitivity is half of what it is"


@pytest.fixture
def folder(tiny, tmp_path):
    """A folder of two algorithms, carried out by the command."""
    tiny["algorithms"] = ["DPSGD", "WeiAvg"]
    (tmp_path / "suite.yaml").write_text(json.dumps(tiny))
    ended = runner.invoke(app, ["run", str(tmp_path / "suite.yaml"), "-o", str(tmp_path / "out"), "-q"])
    assert ended.exit_code == 0, ended.output
    assert "Marked" not in ended.output
    return tmp_path / "out"


def tamper(folder, algorithm):
    """The record of one algorithm with a better result, its digest made anew."""
    store = Store(folder)
    for run, record in store.results().records.items():
        if record.algorithm == algorithm:
            final = {**record.final, "utility_global": 99.0}
            store.path(run).write_text(dumps(replace(record, final=final)))
            return run
    raise AssertionError(algorithm)


def test_a_run_ends_with_verification_and_a_tampered_row_is_marked_in_every_form_and_never_best(folder, tmp_path):
    run = tamper(folder, "WeiAvg")
    ended = runner.invoke(app, ["run", str(tmp_path / "suite.yaml"), "-o", str(folder), "-q"])
    assert ended.exit_code == 1
    assert "Marked: 1 wrong" in ended.output
    assert "(wrong)" in ended.output
    report = folder / "report"
    assert "(wrong)" in (report / "index.html").read_text()
    assert "(wrong)" in (report / "report.md").read_text()
    assert any("wrong" in path.read_text() for path in (report / "tables").glob("*.tex"))
    with (report / "summary.csv").open() as file:
        rows = {row["algorithm"]: row["mark"] for row in csv.DictReader(file)}
    assert rows == {"DPSGD": "", "WeiAvg": "wrong"}
    assert "WeiAvg is the best" not in ended.output
    again = runner.invoke(app, ["report", str(folder), "-o", str(tmp_path / "again"), "-f", "csv"])
    assert "(wrong)" in again.output
    assert run in Store(folder).results().records


def test_a_stranger_s_server_code_is_marked_beside_a_known_key_or_in_one_process_with_data(tiny, catalogue):
    run = run_of(tiny, catalogue, "DPSGD")
    own = execute(run, catalogue, place(noise_origin="given"))
    assert exposed(own) == ""  # built in
    theirs = {**own.plugins, "aggregator median": "their-package 1.2 0123456789abcdef"}
    assert exposed(replace(own, plugins=theirs)) == "predictable noise"
    drawn = execute(run, catalogue, place(noise_key=KEY))
    assert exposed(replace(drawn, plugins=theirs)) == "not isolated"
    apart = replace(drawn, plugins=theirs, measured={**drawn.measured, "isolation": "process, Landlock 7"})
    assert exposed(apart) == ""
    assert exposed(replace(apart, measured={**apart.measured, "leftovers": "3 tensors"})) == "keeps data"


@pytest.mark.parametrize(("kind", "mark"), [(Thin, "odd noise"), (Gaussian, None)])
def test_a_stranger_s_mechanism_is_held_against_its_ledger_while_it_runs(tiny, tmp_path, catalogue, kind, mark):
    """Nobody has to ask for it: the row is marked and never best, and `verify` says why without playing it again."""
    theirs = replace(catalogue.parts["mechanisms"]["gaussian"], factory=kind, distribution="their-package")
    noise = {**catalogue.parts["mechanisms"], "gaussian": theirs}
    catalogue = replace(catalogue, parts={**catalogue.parts, "mechanisms": noise})
    tiny["algorithms"] = ["DPSGD"]
    tiny["federation"] |= {"rounds": 60, "cohort": 6}  # 5,400 draws
    store = Store(tmp_path / "r")
    carry_out(planned_of(tiny, tmp_path, catalogue), store, catalogue)
    results = store.results()
    (run, record), *_ = results.records.items()
    assert record.status == "done"
    assert set(marked(results, catalogue).marks.values()) == ({mark} if mark else set())
    (finding,) = (f for f in verify(results, catalogue) if f.run == run)
    said = [p for p in finding.problems if p.startswith("while it ran its noise was not what its ledger says (")]
    assert bool(said) == bool(mark)
    assert finding.ruling.verdict == ("wrong" if mark else "ok")


def test_what_client_code_left_behind_is_wrong_and_what_could_have_been_is_remarked(folder, catalogue):
    results = Store(folder).results()
    run, record = next(iter(results.records.items()))
    kept = replace(record, measured={**record.measured, "leftovers": "round 2: a tensor"})
    spoilt = replace(results, records={**results.records, run: kept})
    assert marked(spoilt, catalogue).marks == {run: "keeps data"}
    assert rulings(spoilt, catalogue)[run].verdict == "wrong"
    theirs = {**record.plugins, "aggregator median": "their-package 1.2 0123456789abcdef"}
    known = {**record.facts, "noise": {**record.facts["noise"], "origin": "given"}}
    seen = replace(record, plugins=theirs, facts=known)
    assert remark(seen) == "marked: its noise key was known before the run, and their-package 1.2 saw its messages"
    beside = replace(record, plugins=theirs, measured={**record.measured, "isolation": "none"})
    assert remark(beside) == "marked: their-package 1.2 ran in one process with the data"
    assert remark(record) == ""


def test_unverified_is_told_apart_from_wrong(folder, catalogue):
    """Records of other sources than these: nothing is wrong with them, and nobody here can say more."""
    results = Store(folder).results()
    records, ids = {}, {}
    for run, record in results.records.items():
        sources = {**record.plugins, "dpflbench": "0" * 16}
        ids[run] = content_digest([record.config, sources, record.facts["data_digest"]])[:20]
        noise = {**record.facts["noise"], "run": ids[run]}
        records[ids[run]] = replace(record, id=ids[run], plugins=sources, facts={**record.facts, "noise": noise})
    cells = tuple(replace(cell, run=ids[cell.run]) for cell in results.manifest.cells)
    older = replace(results, manifest=replace(results.manifest, cells=cells), records=records)
    assert set(marked(older, catalogue).marks.values()) == {"unverified"}
    assert marked(older, catalogue, doubts=False).marks == {}


@pytest.mark.parametrize("copies", [1, 2])
def test_what_nobody_here_can_price_is_marked_and_stands_no_recount(tiny, tmp_path, catalogue, copies):
    """Without the accountant nobody can say that it is not private as claimed: that is no reason to rank it."""
    theirs = replace(catalogue.parts["accountants"]["gdp"], name="as_printed", factory=AsPrinted)
    prices = {**catalogue.parts["accountants"], "as_printed": theirs}
    there = replace(catalogue, parts={**catalogue.parts, "accountants": prices})
    tiny["algorithms"] = ["FedSGD", "DPSGD"]
    tiny["privacy"]["mechanism"] = {"name": "gaussian", "accountant": {"name": "as_printed"}}
    store = Store(tmp_path / "r")
    carry_out(planned_of(tiny, tmp_path, there), store, there)
    results = store.results()
    private = {run for run, record in results.records.items() if record.private}
    assert marked(results, there).marks == dict.fromkeys(private, NOT_AS_CLAIMED)
    gone = read(*[tmp_path / "r"] * copies)
    assert gone.marked.marks == dict.fromkeys(private, "unverified")
    assert "(unverified)" in gone.summary()
    assert "DPSGD is the best" not in gone.summary()
    if copies == 1:
        found = gone.verify()
        assert (found.verdict, found.exit_code, found.standing) == (
            "unverified",
            3,
            len(results.records) - len(private),
        )
        assert f"{len(private)} that nobody here can price" in found.lines[0]
        (finding, *_) = (f for f in found.findings if f.run in private)
        assert finding.summary.endswith("releases that nobody here can price")


def test_a_second_accountant_is_asked_as_long_as_patience_lasts(folder, catalogue, monkeypatch):
    asked, real = [], GaussianDP.second_opinion
    monkeypatch.setattr(GaussianDP, "second_opinion", lambda *given: asked.append(1) or real(*given))
    results = Store(folder).results()
    assert {r.verdict for r in rulings(results, catalogue).values()} == {"ok"}
    assert len(asked) == len(results.records)
    asked.clear()
    assert {r.verdict for r in rulings(results, catalogue, patience=0.0).values()} == {"ok"}
    assert asked == []
