"""The regression gate: what passes, what fails, and that nothing passes because nothing was looked at."""

import dataclasses
import itertools
import json
import math
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from honest import exchanged, remade
from places import place

from dpflbench import suite_reading as suites
from dpflbench.cli import main
from dpflbench.errors import DpflbenchError
from dpflbench.execution.attempt import execute
from dpflbench.execution.yardstick import numerics, reference, reference_seconds
from dpflbench.interfaces import PLAIN
from dpflbench.planning import plan_suite
from dpflbench.regression import Limits, baseline_of, compare, dump_baseline, load_baseline
from dpflbench.regression.output import as_junit, as_markdown
from dpflbench.results.cells import Results
from dpflbench.results.store import Store

TINY = {
    "name": "gate",
    "task": {"dataset": {"name": "npz"}, "model": "softmax", "partition": {"kind": "iid"}, "holdout": 0.2},
    "federation": {"clients": 8, "cohort": 4, "rounds": 6, "lr": {"initial": 0.5, "decay": 20}},
    "privacy": {
        "paired_noise": True,  # whatever folder the data lies in, the same numbers
        "mechanism": "gaussian",
        "clip": 1.0,
        "epsilon": {"kind": "uniform", "low": 0.5, "high": 4.0},
        "delta": 1e-5,
    },
    "axes": {"privacy.mechanism": ["gaussian", "laplace"]},
    "seeds": 3,
    "algorithms": ["FedSGD", "DPSGD", "WeiAvg"],
}


@pytest.fixture(scope="module")
def results(blobs, catalogue, tmp_path_factory):
    """Three algorithms, two mechanisms, three seeds, really run."""
    path = tmp_path_factory.mktemp("gate") / "gate.yaml"
    body = {**TINY, "task": {**TINY["task"], "dataset": {"name": "npz", "path": str(blobs)}}}
    path.write_text(yaml.safe_dump(body))
    planned = plan_suite(suites.load(path), catalogue, None)
    return Results(planned.manifest, {run.id: timed(execute(run, catalogue, place())) for run in planned.runs.values()})


def timed(record):
    """The record with times one can reckon with: how busy this machine was does not belong into a test of the gate."""
    assert record.measured["cpu_seconds"] > 0
    assert record.measured["reference_seconds"] > 0
    return dataclasses.replace(record, measured={**record.measured, "cpu_seconds": 0.5, "reference_seconds": 0.01})


def changed(results, change):
    """The results with every record changed by `change(record)`; None drops it."""
    records = {key: new for key, record in results.records.items() if (new := change(record)) is not None}
    return Results(results.manifest, records)


def utility_plus(record, gain):
    """Another utility after the last round, in a record that hangs together: tenths of a point need 1000 examples."""
    curve = record.rounds["utility_global"].copy()
    curve[-1] += gain
    if record.metric.unit != "%":
        return told(record, record.rounds["round"], curve, curve)
    record = dataclasses.replace(record, facts={**record.facts, "n_test": 1000 if gain % 1 else record.facts["n_test"]})
    return told(record, record.rounds["round"], curve, record.rounds["loss"])


def told(record, rounds, curve, loss):
    """The record with that curve, and what follows from it."""
    best = int(curve.argmax() if record.metric.higher_is_better else curve.argmin())
    final = {
        "utility_global": float(curve[-1]),
        "utility_mean_phi": float(curve[-1]),
        "loss": float(loss[-1]),
        "best_utility_global": float(curve[best]),
        "best_round": float(rounds[best]),
    }
    curves = {"round": rounds, "utility_global": curve, "loss": loss}
    return dataclasses.replace(record, rounds=curves, final={**record.final, **final})


def only(name, change):
    return lambda record: change(record) if record.algorithm == name else record


def failures(comparison):
    return [(c.tier, c.name, c.message) for c in comparison.failed]


def test_results_pass_against_themselves_in_every_tier(results):
    comparison = compare(results, baseline_of(results))
    assert failures(comparison) == []
    assert {c.tier for c in comparison.checks} == {"coverage", "utility", "numerics", "privacy", "run time"}
    assert {c.verdict for c in comparison.checks} == {"ok"}
    cells = [c for c in comparison.checks if c.tier == "utility"]
    assert len(cells) == 5  # FedSGD and WeiAvg under both mechanisms, DPSGD under one
    assert all(c.message == "unchanged" and c.figures.seeds == 3 for c in cells)


def test_a_baseline_file_says_the_same_as_the_folder_it_was_made_of(results, tmp_path):
    path = tmp_path / "baseline.json"
    path.write_text(dump_baseline(baseline_of(results)))
    again = load_baseline(path)
    assert dump_baseline(again) == path.read_text()
    assert failures(compare(results, again)) == []
    assert path.stat().st_size < 4000  # small enough to commit
    store = Store(tmp_path / "folder")
    store.write_manifest(results.manifest)
    for record in results.records.values():
        store.write(record)
    assert dump_baseline(load_baseline(store.root)) == path.read_text()


def test_a_lost_point_fails_and_the_other_algorithms_pass(results):
    worse = changed(results, only("WeiAvg", lambda r: utility_plus(r, -1.0)))
    found = failures(compare(worse, baseline_of(results)))
    assert [(tier, name) for tier, name, _ in found] == [
        ("utility", "WeiAvg (gaussian)"),
        ("utility", "WeiAvg (laplace)"),
    ]
    assert found[0][2] == "−1.00 points over 3 seeds, a loss beyond 0.50 points; a paired t-test sees it"


@pytest.mark.parametrize(("gain", "word"), [(-0.4, "within tolerance"), (0.0, "unchanged"), (2.0, "not worse")])
def test_a_small_loss_and_any_gain_pass(results, gain, word):
    comparison = compare(changed(results, lambda r: utility_plus(r, gain)), baseline_of(results))
    assert failures(comparison) == []
    assert {c.message for c in comparison.checks if c.tier == "utility"} == {word}


def test_a_loss_that_seeds_cannot_tell_from_chance_is_noted_and_passes(results):
    # differences -6, +5, -2: mean -1, standard error 3.2
    steps = {0: -6.0, 1: 5.0, 2: -2.0}
    comparison = compare(changed(results, lambda r: utility_plus(r, steps[r.config["seed"]])), baseline_of(results))
    assert failures(comparison) == []
    notes = {c.message for c in comparison.checks if c.tier == "utility"}
    assert notes == {"−1.00 points over 3 seeds: beyond 0.50 points, but seeds differ too much to tell; add seeds"}


def test_with_two_seeds_the_tolerance_alone_decides(results):
    steps = {0: -6.0, 1: 4.0, 2: math.nan}
    manifest = dataclasses.replace(
        results.manifest,
        cells=[c for c in results.manifest.cells if c.seed < 2],
        suite={**results.manifest.suite, "seeds": [0, 1]},
    )
    few = Results(manifest, results.records)
    worse = changed(few, lambda r: utility_plus(r, steps[r.config["seed"]]))
    found = failures(compare(worse, baseline_of(few)))
    assert len(found) == 5
    assert found[0][2].endswith("a loss beyond 0.50 points; too few seeds to blame chance")


def test_for_an_error_lower_is_better_and_the_tolerance_is_relative(results):
    from dpflbench.results.record import MSE

    def as_errors(record):
        flat = np.full(len(record.rounds["round"]), 200.0)
        record = dataclasses.replace(record, metric=MSE, facts={**record.facts, "n_classes": 0})
        return told(record, record.rounds["round"], flat, flat)

    errors = changed(results, as_errors)
    assert failures(compare(changed(errors, lambda r: utility_plus(r, 0.9)), baseline_of(errors))) == []  # 0.45 %
    assert failures(compare(changed(errors, lambda r: utility_plus(r, -50.0)), baseline_of(errors))) == []
    assert len(failures(compare(changed(errors, lambda r: utility_plus(r, 1.1)), baseline_of(errors)))) == 5  # 0.55 %


def test_a_missing_run_fails(results):
    lost = changed(results, lambda r: None if r.algorithm == "DPSGD" and r.config["seed"] == 1 else r)
    assert failures(compare(lost, baseline_of(results))) == [
        ("coverage", "DPSGD (gaussian)", "seed 1: not run: there is no record yet")
    ]


def test_a_missing_algorithm_fails(results):
    manifest = dataclasses.replace(
        results.manifest, cells=[c for c in results.manifest.cells if c.algorithm != "DPSGD"]
    )
    found = failures(compare(Results(manifest, results.records), baseline_of(results)))
    assert (
        "coverage",
        "DPSGD (gaussian)",
        "seed 0: not in the table; seed 1: not in the table; seed 2: not in the table",
    ) in found


def test_a_failed_and_a_disqualified_run_fail(results):
    broken = changed(
        results, only("DPSGD", lambda r: dataclasses.replace(r, status="failed", reason="out of memory", final={}))
    )
    found = failures(compare(broken, baseline_of(results)))
    assert found[0] == ("coverage", "DPSGD (gaussian)", "; ".join(f"seed {s}: failed: out of memory" for s in range(3)))
    cheat = changed(
        results, only("DPSGD", lambda r: dataclasses.replace(r, status="disqualified", reason="spent", final={}))
    )
    assert (
        "coverage",
        "DPSGD (gaussian)",
        "; ".join(f"seed {s}: disqualified, was done" for s in range(3)),
    ) in failures(compare(cheat, baseline_of(results)))


def test_a_new_algorithm_is_noted_and_passes(results):
    manifest = dataclasses.replace(
        results.manifest, cells=[c for c in results.manifest.cells if c.algorithm != "WeiAvg"]
    )
    comparison = compare(results, baseline_of(Results(manifest, results.records)))
    assert failures(comparison) == []
    assert sum(c.message == "new: not in the baseline" for c in comparison.checks) == 2


def test_nothing_measured_fails(results):
    empty = Results(dataclasses.replace(results.manifest, cells=[]), {})
    assert failures(compare(empty, baseline_of(empty)))[0][2].startswith("nothing was measured")
    assert any("nothing was measured" in message for _, _, message in failures(compare(empty, baseline_of(results))))


def test_other_budgets_fail_because_epsilon_is_not_equal(results):
    def richer(record):
        return dataclasses.replace(record, clients={**record.clients, "epsilon": record.clients["epsilon"] + 1.0})

    found = [
        f
        for f in failures(compare(changed(results, only("WeiAvg", richer)), baseline_of(results)))
        if f[0] == "utility"
    ]
    assert [m for _, _, m in found] == ["not at equal epsilon on equal data: budgets changed since the baseline"] * 2


def test_other_data_fails(results):
    other = changed(results, lambda r: dataclasses.replace(r, facts={**r.facts, "split_digest": "0" * 64}))
    found = [m for tier, _, m in failures(compare(other, baseline_of(results))) if tier == "utility"]
    assert found == ["not at equal epsilon on equal data: the data or its split changed since the baseline"] * 5


def other_model(record):
    return dataclasses.replace(record, facts={**record.facts, "final_model": "f" * 64})


def test_another_final_model_on_the_same_arithmetic_fails_where_numerics_are_strict(results):
    strict = Limits(strict_numerics=True)
    found = failures(compare(changed(results, only("FedSGD", other_model)), baseline_of(results), strict))
    assert [(tier, name) for tier, name, _ in found] == [
        ("numerics", "FedSGD (gaussian)"),
        ("numerics", "FedSGD (laplace)"),
    ]
    assert found[0][2].startswith("another final model for seeds 0, 1, 2 on the same arithmetic")


@pytest.mark.parametrize("gain", [2.0, 0.0, -0.4])
def test_another_final_model_whose_utility_passes_is_a_note(results, gain):
    other = changed(results, lambda r: utility_plus(other_model(r), gain))
    comparison = compare(other, baseline_of(results))
    assert failures(comparison) == []
    noted = {(c.verdict, c.message) for c in comparison.checks if c.tier == "numerics"}
    text = "another final model for seeds 0, 1, 2 on the same arithmetic, utility passes; if that is meant, "
    assert noted == {("skipped", text + "--update-baseline")}
    assert "5 noted, new or not comparable (another final model" in as_markdown(comparison)


def test_another_final_model_that_costs_utility_fails_in_both_tiers(results):
    worse = changed(results, only("DPSGD", lambda r: utility_plus(other_model(r), -2.0)))
    assert [tier for tier, _, _ in failures(compare(worse, baseline_of(results)))] == ["utility", "numerics"]


def test_another_final_model_of_runs_without_utility_fails(results):
    def diverged(record):
        return dataclasses.replace(record, status="diverged", reason="nan", final={})

    then = changed(results, only("DPSGD", diverged))
    found = failures(compare(changed(then, only("DPSGD", other_model)), baseline_of(then)))
    # verify, too, objects to runs that are called diverged and are not
    assert [name for tier, name, _ in found if tier == "numerics"] == ["DPSGD (gaussian)"]


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        ({"numerics": "another", "versions": {"torch": "1.0"}}, "torch 1.0 now"),
        ({"numerics": "another"}, "another device, CPU or thread count"),
        ({"device": "cuda"}, "another device, CPU or thread count"),
    ],
)
def test_a_model_from_other_arithmetic_is_not_comparable_and_does_not_fail(results, measured, why):
    elsewhere = changed(results, lambda r: dataclasses.replace(other_model(r), measured={**r.measured, **measured}))
    comparison = compare(elsewhere, baseline_of(results))
    assert failures(comparison) == []
    messages = {c.message for c in comparison.checks if c.tier == "numerics"}
    assert all(m.startswith("not comparable: ") and m.endswith(why) for m in messages)


def test_an_overspending_run_fails_by_the_second_accountant(results):
    def quieter(record):
        return dataclasses.replace(record, events={**record.events, "scale": record.events["scale"] / 2})

    found = failures(compare(changed(results, only("DPSGD", quieter)), baseline_of(results)))
    assert [tier for tier, _, _ in found] == ["privacy"] * 3
    assert found[0][1] == "DPSGD (gaussian), seed 0"


def slower(factor):
    return lambda r: dataclasses.replace(r, measured={**r.measured, "cpu_seconds": factor * r.measured["cpu_seconds"]})


def test_a_slowdown_fails_by_algorithm_and_the_reference_step_forgives_a_slow_machine(results):
    found = failures(compare(changed(results, only("WeiAvg", slower(3.0))), baseline_of(results)))
    assert found == [("run time", "WeiAvg", "3.00 times the baseline's, in reference steps, over 6 runs; allowed: 2")]
    assert (
        failures(
            compare(changed(results, only("WeiAvg", slower(3.0))), baseline_of(results), Limits(slowdown=math.inf))
        )
        == []
    )

    def busy(record):
        twice = {
            "cpu_seconds": 9 * record.measured["cpu_seconds"],
            "reference_seconds": 9 * record.measured["reference_seconds"],
        }
        return dataclasses.replace(record, measured={**record.measured, **twice})

    assert failures(compare(changed(results, busy), baseline_of(results))) == []


def test_one_disturbed_run_does_not_make_an_algorithm_slow(results):
    disturbed = changed(results, lambda r: slower(50.0)(r) if r.config["seed"] == 0 else r)
    assert failures(compare(disturbed, baseline_of(results))) == []


@pytest.mark.parametrize("value", [None, "fast", -1.0, 0, math.nan, math.inf, [1]])
def test_a_run_time_that_was_not_measured_is_not_compared(results, value):
    odd = changed(results, lambda r: dataclasses.replace(r, measured={**r.measured, "reference_seconds": value}))
    comparison = compare(odd, baseline_of(results))
    assert failures(comparison) == []
    assert {c.verdict for c in comparison.checks if c.tier == "run time"} == {"skipped"}


def test_the_reference_step_takes_time_and_always_computes_the_same():
    assert 0 < reference_seconds("cpu") < 1
    numerics.cache_clear()
    first = numerics(1)
    numerics.cache_clear()
    assert numerics(1) == first
    assert first != numerics(2)  # the number of threads decides how sums are cut
    assert set(reference("cpu")) == {"reference_seconds", "numerics", "cpu"}


def test_markdown_says_what_failed_first_and_escapes_names(results):
    manifest = dataclasses.replace(
        results.manifest,
        name="a|b <script>\x1b[2J",
        cells=[dataclasses.replace(c, algorithm=f"{c.algorithm} | x") for c in results.manifest.cells],
    )
    odd = Results(manifest, results.records)
    worse = changed(odd, lambda r: utility_plus(r, -3.0))
    text = as_markdown(compare(worse, baseline_of(odd)))
    assert text.startswith("## dpflbench: a\\|b \\<script\\>")
    assert "\x1b" not in text
    assert "✗" in text.splitlines()[0]
    assert "* **utility**, WeiAvg \\| x (gaussian): −3.00 points over 3 seeds" in text
    assert text.index("### Failed") < text.index("### Utility at equal epsilon") < text.index("### Other tiers")


def test_junit_counts_cases_and_is_valid_xml(results):
    manifest = dataclasses.replace(results.manifest, name="ctrl\x00\x1b & <b>")
    odd = Results(manifest, changed(results, only("WeiAvg", lambda r: utility_plus(r, -3.0))).records)
    root = ElementTree.fromstring(as_junit(compare(odd, baseline_of(results))))
    cases = root.findall("./testsuite/testcase")
    assert int(root.get("tests")) == len(cases)
    assert int(root.get("failures")) == len(root.findall(".//failure")) == 2
    assert {c.get("classname") for c in cases} == {
        f"dpflbench.{t}" for t in ("coverage", "utility", "numerics", "privacy", "run_time")
    }


def command(monkeypatch, capsys, *args):
    monkeypatch.setattr(sys, "argv", ["dpflbench", *map(str, args)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, capsys.readouterr()


@pytest.fixture
def folder(results, tmp_path):
    store = Store(tmp_path / "results")
    store.write_manifest(results.manifest)
    for record in results.records.values():
        store.write(record)
    return store.root


def test_the_command_updates_a_baseline_then_passes_then_fails(monkeypatch, capsys, folder, results, tmp_path):
    baseline, markdown, junit = tmp_path / "baseline.json", tmp_path / "summary.md", tmp_path / "junit.xml"
    code, printed = command(monkeypatch, capsys, "compare", folder, "--baseline", baseline)
    assert code == 2
    assert "no such baseline; --update-baseline makes one" in printed.err
    code, printed = command(monkeypatch, capsys, "compare", folder, "--baseline", baseline, "--update-baseline")
    assert code == 0
    code, printed = command(monkeypatch, capsys, "compare", folder, "--baseline", baseline)
    assert code == 0
    assert "✓ no regression" in printed.out
    store = Store(folder)
    for record in results.records.values():
        store.write(utility_plus(record, -2.0))
    code, printed = command(
        monkeypatch, capsys, "compare", folder, "--baseline", baseline, "--markdown", markdown, "--junit", junit
    )
    assert code == 1
    assert printed.out.count("failed  utility") == 5
    assert "✗ 5 checks failed" in markdown.read_text()
    assert ElementTree.parse(junit).getroot().get("failures") == "5"
    code, _ = command(monkeypatch, capsys, "compare", folder, "--baseline", baseline, "--tolerance", "3")
    assert code == 0


def test_a_baseline_of_another_suite_is_one_line(monkeypatch, capsys, folder, results, tmp_path):
    baseline = tmp_path / "baseline.json"
    baseline.write_text(dump_baseline(dataclasses.replace(baseline_of(results), name="other")))
    code, printed = command(monkeypatch, capsys, "compare", folder, "--baseline", baseline)
    assert code == 2
    assert printed.out == ""
    assert printed.err.splitlines() == [
        f"dpflbench: {folder}: results of suite '{results.manifest.name}', {baseline} of suite 'other'; give a "
        "baseline of the same suite, or make one of these results by --update-baseline"
    ]


def test_an_improvement_is_green_for_the_command_unless_numerics_are_strict(monkeypatch, capsys, folder, results):
    baseline = folder / "baseline.json"
    baseline.write_text(dump_baseline(baseline_of(results)))
    for record in results.records.values():
        Store(folder).write(utility_plus(other_model(record), 1.0))
    code, printed = command(monkeypatch, capsys, "compare", folder, "--baseline", baseline)
    assert (code, "✓ no regression" in printed.out) == (0, True)
    code, printed = command(monkeypatch, capsys, "compare", folder, "--baseline", baseline, "--strict-numerics")
    assert (code, "✗ 5 checks failed" in printed.out) == (1, True)


def test_an_incomplete_folder_is_no_baseline(monkeypatch, capsys, folder, tmp_path):
    next(iter((folder / "records").iterdir())).unlink()
    code, printed = command(
        monkeypatch, capsys, "compare", folder, "--baseline", tmp_path / "b.json", "--update-baseline"
    )
    assert code == 2
    assert "a baseline must be whole" in printed.err
    assert not (tmp_path / "b.json").exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda r: dataclasses.replace(r, plugins={**r.plugins, "dpflbench": "0" * 16}), "unverified: made with other"),
        (lambda r: dataclasses.replace(r, final={**r.final, "loss": 0.0}), "wrong: final.loss is 0"),
    ],
)
def test_what_is_not_verified_is_no_baseline(monkeypatch, capsys, results, tmp_path, change, why):
    for old, record in results.records.items():
        results = exchanged(results, old, remade(change(record)))
    store = Store(tmp_path / "results")
    store.write_manifest(results.manifest)
    for record in results.records.values():
        store.write(record)
    target = tmp_path / "b.json"
    code, printed = command(monkeypatch, capsys, "compare", store.root, "--baseline", target, "--update-baseline")
    assert code == 2
    assert "a baseline must be verified" in printed.err
    assert why in printed.err
    assert not target.exists()


def test_unverified_runs_are_counted_apart_from_those_that_stand(results):
    for old, record in results.records.items():
        plugins = {**record.plugins, "dpflbench": "0" * 16}
        results = exchanged(results, old, remade(dataclasses.replace(record, plugins=plugins)))
    comparison = compare(results, baseline_of(results))
    (check,) = [c for c in comparison.checks if c.tier == "privacy"]
    assert (check.name, check.verdict) == ("unverified", "skipped")
    assert check.message.startswith("12 runs, as ")


def test_an_edited_record_fails_the_gate(monkeypatch, capsys, folder, results, tmp_path):
    baseline = tmp_path / "b.json"
    baseline.write_text(dump_baseline(baseline_of(results)))
    path = next(iter((folder / "records").iterdir()))
    body = json.loads(path.read_text())
    body["final"]["utility_global"] = 99.9
    path.write_text(json.dumps(body))
    code, printed = command(monkeypatch, capsys, "compare", folder, "--baseline", baseline)
    assert code == 1
    assert "content does not match its digest" in printed.out


BROKEN = [
    "",
    "[]",
    "{}",
    "null",
    '{"schema": 2}',
    '{"schema": 1, "name": "x", "value": "u", "places": [{"algorithm": "a", "coordinates": {}, '
    f'"metric": ["m", "", true], "runs": [[0, "done", 1{"0" * 400}, "", "", "", 1, "", "", ""]]}}]}}',
    '{"schema": 1, "name": "x", "value": "u", "places": [1]}',
    '{"schema": 1, "name": "x", "value": "u", "places": {"a": 1}}',
    "[" * 100_000,
    "\ud800",
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_damaged_baseline_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "baseline.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(DpflbenchError, match="not a baseline") as caught:
        load_baseline(path)
    assert len(str(caught.value).splitlines()) == 1


def test_a_baseline_whose_done_runs_have_no_utility_is_refused(results, tmp_path):
    body = json.loads(dump_baseline(baseline_of(results)))
    for value in (None, math.nan, math.inf):
        body["places"][0]["runs"][0][2] = value
        (tmp_path / "b.json").write_text(json.dumps(body))
        with pytest.raises(DpflbenchError, match="a run that is done with utility"):
            load_baseline(tmp_path / "b.json")


def test_the_regression_suite_plans_every_built_in_algorithm_under_both_mechanisms(catalogue):
    planned = plan_suite(suites.load(Path(__file__).parent.parent / "suites" / "regression.yaml"), catalogue, None)
    cells = planned.manifest.cells
    own = {name: p.factory() for name, p in catalogue.parts["algorithms"].items() if p.distribution == "dpflbench"}
    built_in = {name for name, made in own.items() if made.rule == PLAIN and not made.trains}  # others need local steps
    built_in -= {"Similar-budgets", "DP-FedAvg-central", "IDP-FedAvg"}  # for a server that sees sums alone
    assert {c.algorithm for c in cells} == built_in
    pairs = set(itertools.product(built_in, ("gaussian", "laplace"))) - {("DPSGD", "laplace"), ("DMLDP", "gaussian")}
    assert {(c.algorithm, c.coordinates["privacy.mechanism"]) for c in cells if c.run} == pairs
    assert len({c.seed for c in cells}) >= 3
    assert np.all([c.reason for c in cells if c.run is None])


def executed(planned, catalogue):
    runs = sorted(planned.runs.values(), key=lambda run: run.config["seed"])  # runs of one seed share their data
    return Results(planned.manifest, {run.id: execute(run, catalogue, place()) for run in runs})


def test_noise_that_is_a_thousandth_larger_is_seen_by_the_models_and_not_by_utility(
    results, blobs, catalogue, tmp_path, monkeypatch
):
    from dpflbench_algorithms.mechanisms import Gaussian

    path = tmp_path / "gate.yaml"
    body = {**TINY, "task": {**TINY["task"], "dataset": {"name": "npz", "path": str(blobs)}}}
    path.write_text(yaml.safe_dump(body))
    noised = Gaussian.noised
    monkeypatch.setattr(
        Gaussian,
        "noised",
        lambda self, value, scale, draws: noised(self, value, scale * (1 + 1e-3), draws),  # a step of the grid
    )
    after = executed(plan_suite(suites.load(path), catalogue, None), catalogue)
    limits = Limits(slowdown=math.inf, strict_numerics=True)
    found = failures(compare(after, baseline_of(results), limits))
    assert [(tier, name) for tier, name, _ in found] == [
        ("numerics", "DPSGD (gaussian)"),
        ("numerics", "WeiAvg (gaussian)"),
    ]


def test_this_commit_passes_its_own_gate(catalogue):
    repo = Path(__file__).parent.parent
    if not (repo / "reports" / "baseline.json").exists():
        pytest.skip("there is no reports/baseline.json yet")
    after = executed(plan_suite(suites.load(repo / "suites" / "regression.yaml"), catalogue, None), catalogue)
    limits = Limits(slowdown=math.inf, strict_numerics=True)
    assert failures(compare(after, load_baseline(repo / "reports" / "baseline.json"), limits)) == []
