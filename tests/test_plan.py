"""Suite to runs: content-addressed ids, pairing, impossible cells, refusals with a reason."""

import copy
from pathlib import Path

import pytest
import yaml

from dpflbench import suite_reading as suites
from dpflbench.errors import DataError, SuiteError
from dpflbench.planning import plan_suite


def planned(folder: Path, body: dict, catalogue):
    path = folder / "s.yaml"
    path.write_text(yaml.safe_dump(body, sort_keys=False))
    return plan_suite(suites.load(path), catalogue, None)


def problems_of(folder: Path, body: dict, catalogue) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        planned(folder, body, catalogue)
    return [p.split("s.yaml: ", 1)[1] for p in caught.value.problems]


def test_ids_do_not_depend_on_the_order_of_keys_algorithms_or_axes(tmp_path, tiny, catalogue):
    tiny["axes"] = {"privacy.epsilon.high": [1, 6], "task.holdout": [0.1, 0.2]}
    other = dict(reversed(copy.deepcopy(tiny).items()))
    other["algorithms"] = tiny["algorithms"][::-1]
    other["axes"] = {"task.holdout": [0.2, 0.1], "privacy.epsilon.high": [6, 1]}
    other["privacy"] = dict(reversed(tiny["privacy"].items()))
    assert set(planned(tmp_path, tiny, catalogue).runs) == set(planned(tmp_path, other, catalogue).runs)


def test_a_default_written_out_is_the_same_run(tmp_path, tiny, catalogue):
    ids = set(planned(tmp_path, tiny, catalogue).runs)
    tiny["federation"] |= {"momentum": 0.0, "local": "full_step"}
    tiny["privacy"]["mechanism"] = {"name": "gaussian", "accountant": {"name": "gdp", "composition": "exact"}}
    tiny["task"]["split"] = "official"
    assert set(planned(tmp_path, tiny, catalogue).runs) == ids


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("federation", "rounds", 7),
        ("federation", "weight_decay", 0.1),
        ("privacy", "clip", 2.0),
        ("task", "holdout", 0.3),
    ],
)
def test_what_changes_an_outcome_changes_the_id(tmp_path, tiny, catalogue, section, key, value):
    tiny["algorithms"] = ["DPSGD"]
    before = set(planned(tmp_path, tiny, catalogue).runs)
    tiny[section][key] = value
    assert before.isdisjoint(planned(tmp_path, tiny, catalogue).runs)


def test_other_data_is_another_run(tmp_path, tiny, catalogue, blobs):
    import numpy as np

    before = set(planned(tmp_path, tiny, catalogue).runs)
    arrays = dict(np.load(blobs))
    arrays["x_test"] = arrays["x_test"] + 1e-3
    np.savez(tmp_path / "other.npz", **arrays)
    tiny["task"]["dataset"]["path"] = str(tmp_path / "other.npz")
    assert before.isdisjoint(planned(tmp_path, tiny, catalogue).runs)


def test_fedsgd_runs_once_for_all_mechanisms_and_budgets_and_stands_in_every_column(tmp_path, tiny, catalogue):
    tiny["axes"] = {"privacy.mechanism": ["gaussian", "laplace"], "privacy.epsilon.high": [1, 6]}
    plan = planned(tmp_path, tiny, catalogue)
    cells = [c for c in plan.manifest.cells if c.algorithm == "FedSGD"]
    assert len(cells) == 4
    assert len({c.run for c in cells}) == 1


def test_laplace_runs_do_not_depend_on_delta(tmp_path, tiny, catalogue):
    tiny["privacy"]["mechanism"] = "laplace"
    tiny["algorithms"] = ["DMLDP"]
    before = set(planned(tmp_path, tiny, catalogue).runs)
    tiny["privacy"]["delta"]["value"] = 1e-7
    assert set(planned(tmp_path, tiny, catalogue).runs) == before


def test_a_mechanism_an_algorithm_does_not_take_is_an_explained_gap_when_it_comes_from_an_axis(
    tmp_path, tiny, catalogue
):
    tiny["axes"] = {"privacy.mechanism": ["gaussian", "laplace"]}
    gaps = [c for c in planned(tmp_path, tiny, catalogue).manifest.cells if c.run is None]
    assert [(c.algorithm, c.coordinates["privacy.mechanism"]) for c in gaps] == [("DPSGD", "laplace")]
    assert gaps[0].reason == "DPSGD is defined for gaussian noise only, not for laplace"


def test_and_an_error_when_the_suite_itself_says_so(tmp_path, tiny, catalogue):
    tiny["privacy"]["mechanism"] = "laplace"
    assert problems_of(tmp_path, tiny, catalogue) == [
        "algorithms[1]: DPSGD is defined for gaussian noise only, not for laplace"
    ]


@pytest.mark.parametrize(
    ("section", "change", "message"),
    [
        ("federation", {"cohort": 9}, "federation.cohort: 9 of 8 clients; allowed: 1 to 8"),
        ("federation", {"rounds": 0}, "federation.rounds: 0; allowed: 1 or more"),
        ("federation", {"momentum": 1.0}, "federation.momentum: 1.0; allowed: 0 to below 1"),
        ("federation", {"lr": {"initial": 0.0}}, "federation.lr: initial 0.0, decay inf; both must be positive"),
        (
            "federation",
            {"local": "full_stop"},
            "federation.local: unknown local update 'full_stop'; did you mean 'full_step'?",
        ),
        (
            "privacy",
            {"epsilon": {"kind": "constant", "value": 0.0}},
            "privacy.epsilon: ranges over 0; allowed: above 0 and finite",
        ),
        (
            "privacy",
            {"epsilon": {"kind": "uniform", "low": -1.0, "high": 1.0}},
            "privacy.epsilon: ranges over -1 to 1; allowed: above 0 and finite",
        ),
        (
            "privacy",
            {"delta": {"kind": "constant", "value": 1.0}},
            "privacy.delta: ranges over 1; allowed: [0, 1), and above 0 for gaussian noise",
        ),
        ("privacy", {"delta": None}, "privacy.delta: missing; accountant 'gdp' needs one"),
        ("privacy", {"clip": {"laplace": 1.0}}, "privacy.clip: no bound for mechanism 'gaussian'; found laplace"),
        ("privacy", {"clip": 0.0}, "privacy.clip: 0; allowed: above 0 and finite"),
        (
            "privacy",
            {"mechanism": "gausian"},
            "privacy.mechanism: unknown mechanism 'gausian'; did you mean 'gaussian'?",
        ),
        ("task", {"model": "sofmax"}, "task.model: unknown model 'sofmax'; did you mean 'softmax'?"),
        ("task", {"dataset": {"name": "mnits"}}, "task.dataset: unknown dataset 'mnits'; did you mean 'mnist'?"),
        (
            "task",
            {"partition": {"kind": "dirichlet", "alhpa": 1.0}},
            "task.partition.alhpa: unknown; did you mean 'alpha'?",
        ),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(tmp_path, tiny, catalogue, section, change, message):
    tiny[section] |= change
    assert message in problems_of(tmp_path, tiny, catalogue)


def test_a_misspelt_parameter_of_a_part_is_named_with_its_place_in_the_file(tmp_path, tiny, catalogue):
    tiny["algorithms"] = ["FedSGD", "DPSGD", {"use": "FedSGD", "as": "clipped", "with": {"clp": True}}, "WeiAgv"]
    assert problems_of(tmp_path, tiny, catalogue) == [
        "algorithms[2].with.clp: unknown; did you mean 'clip'?",
        "algorithms[3].use: unknown algorithm 'WeiAgv'; did you mean 'WeiAvg'?",
    ]


def test_a_combination_from_yaml_alone_is_a_run_like_any_other(tmp_path, tiny, catalogue):
    tiny["algorithms"] = [
        {"use": "compose", "as": "mine", "with": {"selector": "uniform", "aggregator": "epsilon_weighted"}},
        {"use": "compose", "as": "bad", "with": {"slector": "uniform", "aggregator": "maen"}},
    ]
    assert problems_of(tmp_path, tiny, catalogue) == [
        "algorithms[1].with.slector: unknown; did you mean 'selector'?",
        "algorithms[1].with.aggregator: unknown aggregator 'maen'; did you mean 'mean'?",
    ]
    tiny["algorithms"].pop()
    (run,) = planned(tmp_path, tiny, catalogue).runs.values()
    assert run.config["algorithm"] == {
        "name": "compose",
        "selector": {"name": "uniform"},
        "aggregator": {"name": "epsilon_weighted"},
        "transform": {"name": "identity", "norm_local": False},
    }


def test_run_ids_do_not_depend_on_where_suite_and_data_lie(tmp_path, tiny, catalogue, blobs, monkeypatch):
    tiny["task"]["dataset"]["path"] = "data/own.npz"
    ids = []
    for name in ("one", "two"):
        (tmp_path / name / "data").mkdir(parents=True)
        (tmp_path / name / "data" / "own.npz").write_bytes(blobs.read_bytes())
        found = list(planned(tmp_path / name, tiny, catalogue).runs)
        ids.append(found)
    assert ids[0] == ids[1]
    monkeypatch.chdir(tmp_path / "one" / "data")
    assert list(planned(tmp_path / "one", tiny, catalogue).runs) == ids[0]
    (tmp_path / "two" / "data" / "own.npz").unlink()
    with pytest.raises(DataError, match=f"npz: looked for {tmp_path}/two/data/own.npz, not found"):
        planned(tmp_path / "two", tiny, catalogue)
    elsewhere = plan_suite(suites.load(tmp_path / "two" / "s.yaml"), catalogue, tmp_path / "one")
    assert list(elsewhere.runs) == ids[0]  # found in the data folder
