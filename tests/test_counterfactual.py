"""Counterfactual runs: the same plan and weights without noise, or without clip too; never private, never ranked."""

import csv
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from harness import record_of, run_of
from places import place
from record_factory import make_results
from suite_runs import carry_out, planned_of
from tiny import tiny_suite

from dpflbench.api.run_suite import explain_table
from dpflbench.api.showing import shown
from dpflbench.counterfactual import counterfactual, counterfactuals
from dpflbench.execution.apart import possible
from dpflbench.execution.attempt import execute
from dpflbench.execution.cleaning import leftovers
from dpflbench.execution.executors import in_this_process
from dpflbench.execution.stopping import Stop
from dpflbench.report.charts.draw import draw
from dpflbench.report.charts.why import gap_charts
from dpflbench.report.latex_layout import parts
from dpflbench.report.tables.gap_parts import gap_parts_table, splits
from dpflbench.report.tables.table import Item
from dpflbench.report.view import view
from dpflbench.report.write import summary_table, write_report
from dpflbench.results.cells import Results
from dpflbench.results.store import Store


def replayed(record, catalogue, without, **rest):
    """The record of a run played again."""
    return execute(counterfactual(record, without, catalogue), catalogue, place(**rest))


def test_dpsgd_without_noise_and_clip_is_fedsgd_to_the_bit(tiny, catalogue):
    private, free = (record_of(tiny, catalogue, use) for use in ("DPSGD", "FedSGD"))
    again = replayed(private, catalogue, "noise_and_clip")
    assert again.status == "done", again.reason
    assert again.facts["final_model"] == free.facts["final_model"] != private.facts["final_model"]


@pytest.mark.parametrize(
    "use",
    ["WeiAvg", "PFA", "PRIVATEFL", "DPFL-BCS", "Robust-HDP", "Power-of-choice", "Uniform-minimum", "IDP-clipping"],
)
@pytest.mark.parametrize("without", ["noise", "noise_and_clip"])
def test_every_algorithm_is_played_again_with_the_plan_and_the_weights_it_had(tiny, catalogue, use, without):
    given = {"probe_rounds": 2} if use == "DPFL-BCS" else {}
    private = record_of(tiny, catalogue, use, **given)
    again = replayed(private, catalogue, without)
    assert again.status == "done", again.reason
    assert np.array_equal(again.clients["uses"], private.clients["uses"])
    if private.facts["why"]["weights"] != "reported":  # whoever weighs by what it sees, sees something else
        assert again.clients["weight"] == pytest.approx(private.clients["weight"], rel=1e-6)
    assert again.facts["final_model"] != private.facts["final_model"]


def test_a_plan_made_of_noisy_losses_is_the_private_runs_own(tiny, catalogue):
    run = run_of(tiny, catalogue, "Power-of-choice")
    found = [execute(run, catalogue, place(noise_key=bytes([k]) * 16)) for k in range(1, 6)]
    assert len({tuple(private.clients["uses"]) for private in found}) > 1  # noise decides
    for private in found:
        again = replayed(private, catalogue, "noise", noise_key=bytes(16))
        assert np.array_equal(again.clients["uses"], private.clients["uses"])
        assert [n["horizon"] for n in again.notes] == [n["horizon"] for n in private.notes]


def test_the_clip_stays_where_only_noise_is_left_out(tiny, catalogue):
    tiny["privacy"]["clip"] = 0.01
    private, free = (record_of(tiny, catalogue, use) for use in ("DPSGD", "FedSGD"))
    moved = [r.final["loss"] for r in (replayed(private, catalogue, "noise"), free)]
    assert moved[0] > 1.05 * moved[1]  # steps of a hundredth learn next to nothing
    tiny["privacy"]["clip"] = 1e6
    loose = replayed(record_of(tiny, catalogue, "DPSGD"), catalogue, "noise")
    assert loose.final["loss"] == pytest.approx(free.final["loss"], rel=1e-4)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_a_counterfactual_claims_no_privacy_and_has_an_id_of_its_own(tiny, catalogue, mechanism):
    tiny["privacy"]["mechanism"] = mechanism
    private = record_of(tiny, catalogue, "WeiAvg")
    found = [replayed(private, catalogue, without) for without in ("noise", "noise_and_clip")]
    assert len({r.id for r in (private, *found)}) == 3
    for record in found:
        assert not record.private
        assert np.isinf(record.clients["epsilon_spent"]).all()
        assert record.events == {}
        assert record.facts["noise"] == {}
        assert "noise_efficiency" not in record.facts
        assert record.config["counterfactual"]["of"] == private.id
        assert np.array_equal(record.clients["epsilon"], private.clients["epsilon"])  # WeiAvg weighs by budgets


@pytest.mark.skipif(not possible(), reason="processes cannot be forked here")
def test_server_code_apart_replays_to_the_bit(tiny, catalogue):
    private = record_of(tiny, catalogue, "Robust-HDP")
    assert replayed(private, catalogue, "noise", isolated=True).digest == replayed(private, catalogue, "noise").digest


@pytest.fixture(scope="module")
def explained(blobs, tmp_path_factory, catalogue):
    """A suite carried out, and what explains it; for reading."""
    folder = tmp_path_factory.mktemp("explained")
    body = {**tiny_suite(blobs), "algorithms": ["FedSGD", "DPSGD", "WeiAvg"], "seeds": 2}
    planned, store = planned_of(body, folder, catalogue), Store(folder / "results")
    carry_out(planned, store, catalogue)
    explain_table(planned, store, catalogue, in_this_process(catalogue, place()), Stop(), shown(False))
    return planned, store


def test_counterfactuals_are_kept_found_again_and_in_no_table_but_their_own(explained, catalogue):
    planned, store = explained
    results = store.results()
    assert set(results.records) == set(planned.runs)
    assert {k: set(v) for k, v in results.counterfactuals.items()} == {
        r.id: {"noise", "noise_and_clip"} for r in results.records.values() if r.private
    }
    before = {p: p.stat().st_mtime_ns for p in (store.root / "records").glob("*.json")}
    assert len(before) == 6 + 2 * 4
    explain_table(planned, store, catalogue, in_this_process(catalogue, place()), Stop(), shown(False))
    assert {p: p.stat().st_mtime_ns for p in (store.root / "records").glob("*.json")} == before
    bare = Results(results.manifest, results.records)
    assert summary_table(results) == summary_table(bare)
    assert [x for x in leftovers(store, stale=True) if "does not ask for" in x.reason] == []


def test_the_parts_of_a_real_gap_add_up_and_dpsgd_loses_nothing_by_selection(explained):
    _, store = explained
    v = view(store.results())
    found = {s.group.algorithm: s for s in splits(v)}
    assert list(found) == ["DPSGD", "WeiAvg"]
    for name, split in found.items():
        (column,) = v.columns
        free, own = (v.group(column, a).values for a in ("FedSGD", name))
        assert split.gap == pytest.approx([free[s] - own[s] for s in v.seeds])
    assert found["DPSGD"].parts[0].tolist() == [0.0, 0.0]


def test_a_link_to_a_record_of_somebody_else_explains_nothing(explained, tmp_path):
    store = Store(shutil.copytree(explained[1].root, tmp_path / "results"))
    links = store.counterfactuals()
    first, second = sorted(links)[:2]
    store.write_counterfactuals({first: links[second]})
    assert store.results().counterfactuals == {}


def synthetic():
    """FedSGD 92, DPSGD 74 and a seed's tenth; without noise 88, without clip too 91."""
    results = make_results(("FedSGD", "DPSGD"), seeds=3)
    found = {}
    for run, record in results.records.items():
        if record.private:
            less = {"noise_and_clip": 91.0, "noise": 88.0}
            seed = record.config["seed"] / 10 + (record.config["seed"] == 2)
            found[run] = {
                k: replace(record, private=False, final={**record.final, "utility_global": v + seed})
                for k, v in less.items()
            }
    return Results(results.manifest, results.records, counterfactuals=found)


def test_the_table_splits_a_gap_by_hand():
    table = gap_parts_table(view(synthetic()))
    (row,) = table.rows
    assert table.header[2] == "gap to FedSGD"
    assert [item.value for item in row[2:6]] == pytest.approx([18.0, 1 - 1 / 3, 3.0, 14 + 1 / 3])
    assert row[3].text == "0.67 (−0.77 to 2.10)"  # Student's t of 1, 1, 0
    assert gap_parts_table(view(make_results(("FedSGD", "DPSGD"), seeds=3))) is None


def test_small_costs_have_the_decimals_of_large_ones_and_their_intervals_fit_a_page_of_latex():
    whole = synthetic()
    less = {
        run: {**found, "noise_and_clip": replace(found["noise"], final={"utility_global": value})}
        for (run, found), value in zip(whole.counterfactuals.items(), (91.99, 92.07, 92.17), strict=True)
    }
    table = gap_parts_table(view(replace(whole, counterfactuals=less)))
    assert table.rows[0][3].text == "0.02 (−0.01 to 0.05)"
    long = tuple(Item(text) for text in ("gaussian, ε max 6", "PRIVATEFL-BCS", *["69.28 (65.40 to 73.16)"] * 4, "8"))
    ((_, fit),) = parts(replace(table, rows=(long,)))
    assert fit.wrapped == {}


def test_a_counterfactual_that_diverged_is_named_below_the_table():
    whole = synthetic()
    run = min(whole.counterfactuals)
    less = whole.counterfactuals[run]
    spoilt = {**less, "noise_and_clip": replace(less["noise_and_clip"], status="diverged")}
    table = gap_parts_table(view(replace(whole, counterfactuals={**whole.counterfactuals, run: spoilt})))
    assert table.rows[0][-1].text == "2"
    seed = whole.records[run].config["seed"]
    assert table.notes == (f"DPSGD (all) without noise and clip: diverged in seed {seed}",)


def test_the_bars_of_a_gap_are_stacked_from_zero_and_end_at_the_gap(tmp_path):
    (chart,) = gap_charts(view(synthetic()))
    (panel,) = chart.panels
    assert [(b.low, b.high) for b in panel.bars] == [
        (0.0, pytest.approx(2 / 3)),
        (pytest.approx(2 / 3), pytest.approx(11 / 3)),
        (pytest.approx(11 / 3), pytest.approx(18.0)),
    ]
    assert panel.marks[0].x == pytest.approx(18.0)
    edges = re.findall(r'class="e" fill-opacity="([\d.]+)"', draw(chart, {}, 320)[0].body)
    assert edges == ["1", "0.55", "0.2"]
    write_report(synthetic(), tmp_path)
    for kind in ("svg", "png", "pdf"):
        assert (tmp_path / "figures" / f"gap-parts.{kind}").is_file()
    assert "Where the gap comes from" in (tmp_path / "report.md").read_text()
    (row,) = [r for r in csv.DictReader((tmp_path / "summary.csv").open()) if r["algorithm"] == "DPSGD"]
    assert [float(row[f"gap_{name}"]) for name in ("selection", "clipping", "noise")] == pytest.approx(
        [2 / 3, 3.0, 14 + 1 / 3]
    )


def test_only_private_runs_that_ended_well_are_explained(tiny, tmp_path, catalogue):
    tiny["algorithms"] = ["FedSGD", "DPSGD"]
    planned, store = planned_of(tiny, tmp_path, catalogue), Store(tmp_path / "results")
    carry_out(planned, store, catalogue)
    results = store.results()
    failed = {k: replace(r, status="failed") for k, r in results.records.items()}
    assert counterfactuals(Results(results.manifest, failed), catalogue) == ({}, {})


@pytest.mark.parametrize("use", ["DP-FedAvg", "DP-SCAFFOLD", "DP-Ditto", "DP-MR-MTL"])
def test_local_training_is_played_again_too_and_no_limit_is_claimed_for_sampled_releases(tiny, catalogue, use):
    tiny["federation"] |= {"local": {"kind": "minibatch", "steps": 2, "batch": 20, "lr": 0.2}}
    private = record_of(tiny, catalogue, use)
    assert "noise_efficiency" not in private.facts
    assert private.facts["data_coverage"] == pytest.approx(1.0)
    for without in ("noise", "noise_and_clip"):
        again = replayed(private, catalogue, without)
        assert again.status == "done", again.reason
        assert np.array_equal(again.clients["uses"], private.clients["uses"])
