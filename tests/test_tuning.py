"""Equal tuning: one grid for all, tuning seeds and validation data nobody reports, a choice anybody can make again."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import yaml
from harness import record_of
from places import place
from suite_runs import carry_out, ended, fork, kill, planned_of
from tiny import tiny_suite
from typer.testing import CliRunner

from dpflbench import suite_reading as suites
from dpflbench.catalogue import load
from dpflbench.cli import app
from dpflbench.errors import SuiteError
from dpflbench.execution.attempt import execute
from dpflbench.execution.cleaning import leftovers
from dpflbench.judges.marks import marked
from dpflbench.judges.verify import verify
from dpflbench.planning import plan_suite
from dpflbench.report.charts.tuned import tuning_charts
from dpflbench.report.merge import Folder, merge
from dpflbench.report.tables.tuned import UNPAID, tuned_table
from dpflbench.report.view import view
from dpflbench.report.write import summary_table, write_report
from dpflbench.results.cells import Cell
from dpflbench.results.store import Store
from dpflbench.tuning import HOPELESS_GRID, WAITING, tuned

LR = "federation.lr.initial"


@pytest.fixture
def body(tiny):
    """A suite that tunes the learning rate of three algorithms over three values and two seeds."""
    tiny["tune"] = {LR: [0.01, 0.5, 2.0], "seeds": 2}
    tiny["privacy"]["noise_key"] = "0" * 32  # noise that hangs on nothing but the configuration
    return tiny


def run_whole(body, folder, catalogue):
    """A tuned suite carried out as `dpflbench run` does it, in two phases."""
    store = Store(folder / "results")
    first = planned_of(body, folder, catalogue)
    carry_out(first, store, catalogue)
    second = plan_suite(suites.load(folder / "suite.yaml"), catalogue, None, store.known)
    carry_out(second, store, catalogue)
    return first, second, store


@pytest.fixture(scope="module")
def done(blobs, tmp_path_factory):
    """One such suite, done."""
    folder = tmp_path_factory.mktemp("tuned")
    more = {"axes": {"privacy.epsilon.high": [2.0, 4.0]}, "seeds": 2, "tune": {LR: [0.01, 0.5, 2.0], "seeds": 2}}
    body = {**tiny_suite(blobs), **more}
    first, second, store = run_whole(body, folder, load())
    return body, first, second, store


def refused(body, catalogue, folder):
    with pytest.raises(SuiteError) as found:
        planned_of(body, folder, catalogue)
    return str(found.value)


def test_before_its_tuning_runs_a_suite_has_only_those_and_every_cell_waits(done):
    _, first, second, _ = done
    assert first.waits
    assert {cell.reason for cell in first.manifest.cells} == {WAITING}
    assert set(first.runs) == set(first.manifest.tuning_runs)
    assert len(first.runs) == 3 * 2 * (2 * 2 + 1)  # values, tuning seeds; two private algorithms in two columns, FedSGD
    assert not second.waits
    assert set(second.runs) == {*second.manifest.runs, *second.manifest.tuning_runs}


def test_every_algorithm_and_column_has_the_same_grid_and_tuning_seeds_from_1000_on(done):
    _, first, _, _ = done
    tried = {}
    for cell in first.manifest.tuning:
        tried.setdefault((cell.algorithm, cell.coordinates["privacy.epsilon.high"]), set()).add(
            (cell.coordinates[LR], cell.seed)
        )
    assert len(tried) == 6
    assert set(map(frozenset, tried.values())) == {frozenset((lr, s) for lr in (0.01, 0.5, 2.0) for s in (1000, 1001))}


def test_the_reported_runs_have_the_value_with_the_best_mean_on_validation_data(done):
    _, _, _second, store = done
    results = store.results()
    for cell in results.manifest.cells:
        means = {}
        for trial in results.manifest.tuning:
            same = trial.coordinates["privacy.epsilon.high"] == cell.coordinates["privacy.epsilon.high"]
            if trial.algorithm == cell.algorithm and same:
                utility = results.tuning[trial.run].final["utility_global"]
                means.setdefault(trial.coordinates[LR], []).append(utility)
        best = max(means, key=lambda value: np.mean(means[value]))
        assert results.records[cell.run].config["federation"]["lr"]["initial"] == best
    assert {r.config["task"]["split"] for r in results.records.values()} == {"official"}
    assert {r.config["task"]["split"] for r in results.tuning.values()} == {"validation"}


def test_a_tuning_run_is_judged_on_examples_that_clients_hold_out_and_trains_on_no_fewer(tiny, catalogue):
    reported = record_of(tiny, catalogue, "DPSGD")
    tiny["task"]["split"] = "validation"
    tuning = record_of(tiny, catalogue, "DPSGD")
    assert np.array_equal(tuning.clients["n_examples"], reported.clients["n_examples"])
    assert tuning.facts["n_test"] == tuning.clients["n_holdout"].sum() == 120
    assert tuning.final["utility_global"] == pytest.approx(tuning.final["utility_shared"])
    assert reported.facts["n_test"] == 100
    assert tuning.facts["split_digest"] == reported.facts["split_digest"]  # nothing but the test part has changed


@pytest.mark.parametrize("spoil", ["other labels", "other size", "huge values"])
def test_a_changed_test_set_changes_no_tuning_run_and_no_choice(body, catalogue, tmp_path, blobs, spoil):
    """The test set has no part in tuning: whatever stands in it, the same models, curves and choices come out."""
    with np.load(blobs) as found:
        arrays = {name: found[name] for name in found.files}
    body["task"]["dataset"] = {"name": "npz", "path": "data.npz", "features": {"kind": "pca", "components": 3}}
    body["algorithms"] = ["DPSGD", "WeiAvg"]
    outcomes = []
    for changed in (False, True):
        if changed and spoil == "other labels":
            arrays["y_test"] = (arrays["y_test"] + 1) % 3
        elif changed and spoil == "other size":
            arrays |= {"x_test": arrays["x_test"][:7] * 100, "y_test": arrays["y_test"][:7]}
        elif changed:
            arrays["x_test"] = np.full_like(arrays["x_test"], 1e30)
        np.savez(tmp_path / "data.npz", **arrays)
        planned = planned_of(body, tmp_path, catalogue)
        here = place(suite=tmp_path)
        records = {run: execute(made, catalogue, here) for run, made in planned.runs.items()}
        assert {r.status for r in records.values()} == {"done"}
        told = {(c.algorithm, c.coordinates[LR], c.seed): records[c.run] for c in planned.manifest.tuning}
        choices = tuned(planned.manifest.tuning, [LR], records.get, "utility_global")
        chosen = {key[1]: choice.chosen.values[LR] for key, choice in choices.items()}
        models = {key: (r.facts["final_model"], dict(r.final), r.facts["references"]) for key, r in told.items()}
        outcomes.append((chosen, models, {r.facts["data_digest"] for r in records.values()}))
    (chosen, models, digests), (chosen_again, models_again, digests_again) = outcomes
    assert digests != digests_again  # it did change
    assert models == models_again
    assert chosen == chosen_again


def record(utility, status="done", up=True):
    """As much of a record as a choice looks at."""
    from record_factory import make_results

    (found,) = make_results(("DPSGD",), seeds=1).records.values()
    metric = replace(found.metric, higher_is_better=up)
    return replace(found, status=status, metric=metric, final={"utility_global": utility} if status == "done" else {})


def choice(records):
    """What is chosen of tuning runs given as value → one record a seed."""
    cells = [Cell({LR: v}, "A", 1000 + i, f"{v}-{i}") for v, found in records.items() for i in range(len(found))]
    read = {f"{v}-{i}": r for v, found in records.items() for i, r in enumerate(found)}
    (found,) = tuned(cells, [LR], read.get, "utility_global").values()
    return found


def test_the_best_mean_is_chosen_and_of_equals_the_first():
    assert choice({1: [record(80.0), record(84.0)], 2: [record(83.0), record(83.0)]}).chosen.values == {LR: 2}
    assert choice({1: [record(80.0), record(84.0)], 2: [record(82.0), record(82.0)]}).chosen.values == {LR: 1}
    assert choice({1: [record(2.0, up=False)], 2: [record(1.0, up=False)]}).chosen.values == {LR: 2}


def test_a_value_that_diverged_once_is_out_and_one_that_failed_is_waited_for():
    well, gone = [record(50.0), record(50.0)], [record(90.0), record(0.0, "diverged")]
    assert choice({1: well, 2: gone}).chosen.values == {LR: 1}
    nothing = choice({1: gone, 2: gone})
    assert (nothing.chosen, nothing.reason) == (None, HOPELESS_GRID)
    waiting = choice({1: well, 2: [record(1.0), record(0.0, "failed")]})
    assert (waiting.chosen, waiting.reason) == (None, WAITING)
    assert choice({1: well, 2: [record(1.0), None]}).reason == WAITING


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seeds": [0, 1000]}, "seeds: 1000 beside tune, whose runs have the seeds from 1000 on"),
        ({"seeds": 1001}, "seeds: 1000 beside tune"),
        ({"tune": {LR: []}}, f"tune.{LR}: empty"),
        ({"tune": {LR: [1, 1]}}, "a value stands there twice"),
        ({"tune": {LR: [1, -1]}}, "lr: initial -1"),
        ({"tune": {"seeds": 2}}, "tune: empty"),
        ({"tune": {LR: [1], "seeds": 0}}, "tune.seeds: found 0"),
        ({"tune": [1]}, "tune: expected a mapping"),
        ({"tune": {"privacy.epsilon.high": [1, 9]}}, "every algorithm gets the same budgets, data and rounds; allowed"),
        ({"tune": {"federation.rounds": [1, 9]}}, "every algorithm gets the same budgets"),
        ({"tune": {"federation.lrs": [1, 9]}}, "every algorithm gets the same budgets"),
        (
            {"tune": {LR: [1]}, "axes": {"federation.lr": [{"initial": 1, "decay": 2}]}},
            "the axis federation.lr sets it",
        ),
        ({"tune": {LR: [1], "federation.lr": [{"initial": 1, "decay": 2}]}}, "federation.lr is tuned as well"),
        ({"report": {"value": "utility_personal"}}, "report.value: utility_personal beside tune"),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_a_line(body, catalogue, tmp_path, change, said):
    assert said in refused(body | change, catalogue, tmp_path)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (
            {"split": "paper"},
            "task.split: paper beside tune: what is a test example in one seed is tuned on in another",
        ),
        ({"split": "validation"}, "task.split: validation beside tune"),
        ({"holdout": 0.0}, "task.holdout: 0"),
    ],
)
def test_a_task_without_a_test_set_of_its_own_or_without_validation_data_is_refused(
    body, catalogue, tmp_path, task, said
):
    body["task"] |= task
    assert said in refused(body, catalogue, tmp_path)


def test_seeds_from_1000_on_are_nobodys_business_without_tuning(tiny, catalogue, tmp_path):
    assert len(planned_of(tiny | {"seeds": [1000]}, tmp_path, catalogue).runs) == 3


def test_a_suite_that_extends_another_replaces_its_grid_and_set_reaches_it(body, tmp_path):
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(body))
    (tmp_path / "top.yaml").write_text("name: top\nextends: base.yaml\ntune: {federation.momentum: [0, 0.5]}\n")
    assert dict(suites.load(tmp_path / "top.yaml").tune.grid) == {"federation.momentum": [0, 0.5]}
    changed = suites.load(tmp_path / "base.yaml", [f"tune.{LR}=[3, 4]", "tune.seeds=5"])
    assert (dict(changed.tune.grid), changed.tune.seeds) == ({LR: [3, 4]}, 5)


def test_two_tuned_paths_are_tried_in_all_combinations(body, catalogue, tmp_path):
    body["tune"] = {LR: [1, 2], "privacy.clip": [0.5, 1.0, 2.0], "seeds": 1}
    planned = planned_of(body, tmp_path, catalogue)
    of = {a: [c for c in planned.manifest.tuning if c.algorithm == a] for a in ("FedSGD", "DPSGD")}
    assert len({c.run for c in of["DPSGD"]}) == len(of["DPSGD"]) == 6
    assert len({c.run for c in of["FedSGD"]}) == 2  # a clip bound is nothing to it


def test_tuning_runs_are_cached_kept_by_clean_and_in_no_table_but_their_own(done, tmp_path):
    body, _, second, store = done
    before = {p: p.stat().st_mtime_ns for p in (store.root / "records").glob("*.json")}
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(body))
    again = plan_suite(suites.load(tmp_path / "suite.yaml"), load(), None, store.known)
    assert dict(again.runs) == dict(second.runs)
    carry_out(again, store, load())
    assert {p: p.stat().st_mtime_ns for p in (store.root / "records").glob("*.json")} == before
    assert [x for x in leftovers(store, stale=True) if "does not ask for" in x.reason] == []
    results = store.results()
    bare = replace(results, tuning={}, manifest=replace(results.manifest, tuning=()))
    kept = [view(r).groups.keys() for r in (results, bare)]
    assert kept[0] == kept[1]
    assert {seed for seed in view(results).seeds} == {0, 1}


def test_verify_stands_by_a_tuned_folder_and_recounts_its_tuning_runs(done):
    *_, store = done
    results = store.results()
    found = list(verify(results, load()))
    assert [f.problems for f in found if f.problems] == []
    assert {f.run for f in found} == {*results.records, *results.tuning}
    assert marked(results, load()).marks == {}


def test_verify_finds_a_reported_run_with_another_value_than_its_tuning_runs_give(done, catalogue):
    *_, store = done
    results = store.results()
    cell = next(c for c in results.manifest.cells if c.algorithm == "DPSGD")
    right = results.records[cell.run]
    asked = right.config["federation"]["lr"]["initial"]
    other = next(v for v in (0.01, 0.5, 2.0) if v != asked)
    federation = {**right.config["federation"], "lr": {**right.config["federation"]["lr"], "initial": other}}
    wrong = replace(right, config={**right.config, "federation": federation})
    found = list(verify(replace(results, records={**results.records, cell.run: wrong}), catalogue))
    (about,) = [f for f in found if f.run == cell.run]
    assert any(f"other federation settings; its tuning runs give {LR} {asked:g}" in p for p in about.problems), about


def test_verify_finds_a_tuning_run_on_the_test_set_and_what_it_chose_is_marked(done, catalogue):
    *_, store = done
    results = store.results()
    cell = next(c for c in results.manifest.tuning if c.algorithm == "DPSGD")
    honest = results.tuning[cell.run]
    peeked = replace(honest, config={**honest.config, "task": {**honest.config["task"], "split": "official"}})
    spoilt = replace(results, tuning={**results.tuning, cell.run: peeked})
    (about,) = [f for f in verify(spoilt, catalogue) if f.run == cell.run]
    assert any("other task settings" in p for p in about.problems)
    marks = marked(spoilt, catalogue).marks
    column = {"privacy.epsilon.high": cell.coordinates["privacy.epsilon.high"]}
    chosen = {c.run for c in results.manifest.cells if c.algorithm == "DPSGD" and dict(c.coordinates) == column}
    assert {run for run in marks if run in results.records} == chosen


def test_a_tuning_run_that_is_missing_leaves_cells_that_wait_and_nothing_wrong(done, catalogue):
    *_, store = done
    results = store.results()
    gone = next(c.run for c in results.manifest.tuning if c.algorithm == "WeiAvg")
    cells = [replace(c, run=None, reason=WAITING) if c.algorithm == "WeiAvg" else c for c in results.manifest.cells]
    partly = replace(
        results,
        manifest=replace(results.manifest, cells=cells),
        tuning={k: v for k, v in results.tuning.items() if k != gone},
    )
    found = list(verify(partly, catalogue))
    assert [f.problems for f in found if f.problems] == []
    assert sum(f.summary == WAITING for f in found) == 4
    assert {e.status for g in view(partly).groups.values() if g.algorithm == "WeiAvg" for e in g.endings} == {"not run"}


def test_the_report_has_the_tuned_table_the_choices_the_grid_and_what_is_not_accounted(done, tmp_path):
    *_, store = done
    results = store.results()
    v = view(results)
    table = tuned_table(v)
    assert len(table.rows) == 6
    assert UNPAID in table.notes
    for row, (column, name) in zip(table.rows, [(c, a) for c in v.columns for a in v.algorithms], strict=True):
        best = v.tuned[column.key, name].chosen
        assert row[2].value is None
        assert float(row[2].text) == best.values[LR]
        own = next(t for t in v.tuned[column.key, name].trials if t.values[LR] == 0.5)
        assert row[4].value == pytest.approx(best.mean - own.mean)
    (chart,) = tuning_charts(v)
    assert len(chart.panels) == 2
    lines = [s for s in chart.panels[0].series if s.line]
    assert [s.name for s in lines] == list(v.algorithms)
    assert all(s.x.tolist() == [0.01, 0.5, 2.0] for s in lines)
    assert UNPAID in " ".join(summary_table(results).split())  # a narrow terminal folds it
    write_report(results, tmp_path)
    for text in ((tmp_path / "report.md").read_text(), (tmp_path / "index.html").read_text()):
        assert "Chosen parameters" in text
        assert "Sensitivity to learning rate" in text
        assert "is not accounted" in text
    for kind in ("svg", "png", "pdf"):
        assert (tmp_path / "figures" / f"tuning-federation-lr-initial.{kind}").is_file()
    rows = list(csv.DictReader((tmp_path / "tuning.csv").open()))
    assert len(rows) == 2 * 3 * 3 * 2
    assert {row["seed"] for row in rows} == {"1000", "1001"}
    (row,) = [r for r in csv.DictReader((tmp_path / "summary.csv").open()) if r["algorithm"] == "DPSGD"][:1]
    assert row["tuned"].startswith(f"{LR}=")
    again = suites.load(tmp_path / "suite.yaml")
    assert (dict(again.tune.grid), again.tune.seeds) == ({LR: [0.01, 0.5, 2.0]}, 2)


def test_folders_tuned_over_other_grids_are_not_mixed_and_those_tuned_alike_are(done):
    *_, store = done
    one = store.results()
    other = replace(one, manifest=replace(one.manifest, suite={**one.manifest.suite, "tune": {LR: [1], "seeds": 2}}))
    with pytest.raises(Exception, match="tune: not the same in a and b"):
        merge([Folder("a", one), Folder("b", other)])
    both = merge([Folder("a", one), Folder("b", one)])
    assert {k: t.chosen.values for k, t in view(both).tuned.items()} == {
        k: t.chosen.values for k, t in view(one).tuned.items()
    }


def test_a_manifest_with_tuning_is_read_as_it_was_written(done):
    _, _, second, store = done
    assert store.manifest().tuning == tuple(second.manifest.tuning)
    body = json.loads((store.root / "suite.json").read_text())
    body["tuning"] = body["tuning"][:-1]
    edited = Store(store.root.parent / "edited")
    edited.root.mkdir(exist_ok=True)
    (edited.root / "suite.json").write_text(json.dumps(body))
    with pytest.raises(Exception, match="does not match its digest"):
        edited.manifest()


def test_run_plan_status_and_explain_know_both_phases(body, tmp_path):
    path, out, run = tmp_path / "suite.yaml", tmp_path / "out", CliRunner().invoke
    body["algorithms"] = ["DPSGD", "WeiAvg"]
    path.write_text(yaml.safe_dump(body))
    before = run(app, ["plan", str(path), "--results", str(out)]).output
    assert "2 runs for 2 cells" in before
    assert "12 tuning runs before them" in before
    assert "figures are those of the suite's own values" in before
    assert "14 to do take about" in before
    done = run(app, ["run", str(path), "-o", str(out), "--no-isolated"])
    assert done.exit_code == 0, done.output
    assert "[12/12]" in done.output
    assert "[2/2]" in done.output
    assert "Chosen parameters" in done.output
    status = run(app, ["status", str(out)]).output
    assert "2 of 2 runs have a record" in status
    assert "tuning: 12 of 12 runs have a record" in status
    assert "14 reused" in run(app, ["run", str(path), "-o", str(out), "--explain"]).output
    assert "Nothing is left to do" in run(app, ["plan", str(path), "--results", str(out)]).output
    assert "at these budgets" in run(app, ["plan", str(path), "--limit"]).output
    assert run(app, ["verify", str(out), "-q"]).exit_code == 0


def test_a_suite_that_is_killed_while_it_tunes_goes_on_and_ends_at_the_same_records(body, catalogue, tmp_path):
    body["algorithms"] = ["DPSGD"]
    whole = run_whole(body, tmp_path, catalogue)[2]
    store = Store(tmp_path / "killed")
    child = fork(lambda: carry_out(planned_of(body, tmp_path, catalogue), store, catalogue))
    while not list((store.root / "records").glob("*.json")):
        assert ended(child, 0.01) is None
    kill(child)
    assert 0 < len(list((store.root / "records").glob("*.json"))) < 7
    for _ in range(2):
        planned = plan_suite(suites.load(tmp_path / "suite.yaml"), catalogue, None, store.known)
        carry_out(planned, store, catalogue)
    digests = [
        {r.id: r.digest for r in (*s.results().tuning.values(), *s.results().records.values())} for s in (whole, store)
    ]
    assert digests[0] == digests[1]
