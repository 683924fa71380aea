"""The paper's suites carry its settings, number by number, and can be planned where the data is."""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from dpflbench.assembly import assemble
from dpflbench.errors import DataError
from dpflbench.planning import columns_of, plan_suite
from dpflbench.privacy import pld
from dpflbench.privacy.renyi_calibration import calibrate_rate
from dpflbench.suite_reading import load
from dpflbench.tasks.models import parameter_count

SUITES = Path(__file__).parent.parent / "suites" / "paper"
OTHERS = SUITES.parent / "others"
ALGORITHMS = ["FedSGD", "DPSGD", "DMLDP", "WeiAvg", "PFA", "PRIVATEFL", "DPFL-BCS", "PRIVATEFL-BCS"]


class Setting(NamedTuple):
    """One column of the paper's table of settings."""

    clip: float
    lr: tuple[float, float]
    epsilon: tuple[float, float]
    parameters: int
    shape: tuple[int, ...]
    outputs: int
    limit: int | None
    test: float | int  # share or number of test records


PAPER = {
    "lending": Setting(150, (0.02, 200), (0.1, 3), 11, (10,), 1, 40_000, 0.2),
    "mnist": Setting(20, (0.05, 200), (0.1, 3), 4_266, (1, 28, 28), 10, None, 10_000),
    "fashion": Setting(25, (0.05, 200), (0.5, 4), 61_706, (1, 28, 28), 10, None, 10_000),
    "femnist": Setting(25, (0.05, 200), (0.5, 4), 67_026, (1, 28, 28), 62, 80_526, 0.1),
    "cifar10": Setting(5, (0.2, 100), (1, 6), 272_474, (3, 32, 32), 10, None, 10_000),
}


def assemblies(suite, catalogue, mechanism="gaussian"):
    """The typed parts of every algorithm of a suite that takes the mechanism."""
    for entry in suite.entries:
        base = {**suite.base, "algorithm": {"name": entry.use, **entry.given}, "seed": 0}
        problems = []
        made = assemble({**base, "privacy": {**suite.base["privacy"], "mechanism": mechanism}}, catalogue, problems)
        assert problems == []
        yield entry.label, made


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_the_papers_settings_are_carried_exactly(name, mechanism, catalogue):
    suite, paper = load(SUITES / f"{name}.yaml"), PAPER[name]
    assert [entry.label for entry in suite.entries] == ALGORITHMS
    assert suite.axes == {"privacy.mechanism": ["gaussian", "laplace"]}
    for _, run in assemblies(suite, catalogue, mechanism):
        federation = run.federation
        assert (federation.clients, federation.cohort, federation.rounds) == (100, 20, 200)
        assert (federation.lr.initial, federation.lr.decay) == paper.lr
        assert federation.weight_decay == 2e-4
        assert federation.momentum == 0.0
        assert run.task.partition.alpha == 3.0
        assert (run.task.split, run.task.limit, run.task.holdout) == ("paper", paper.limit, 0.1)
        if run.algorithm.private:
            assert run.privacy.clip_norm == paper.clip
            assert run.privacy.epsilon.bounds() == paper.epsilon
            delta = run.privacy.delta
            assert delta is None if mechanism == "laplace" else delta.bounds() == (1e-5, 1e-4)


@pytest.mark.parametrize("name", PAPER)
def test_models_have_the_papers_parameter_counts(name, catalogue):
    paper = PAPER[name]
    _, run = next(assemblies(load(SUITES / f"{name}.yaml"), catalogue))
    assert parameter_count(run.task.model.build(paper.shape, paper.outputs)) == paper.parameters
    if isinstance(paper.test, float):
        assert run.task.dataset.test_share == paper.test


def test_estimation_lasts_ten_rounds_with_the_papers_loss_bounds(catalogue):
    for name in PAPER:
        for label, run in assemblies(load(SUITES / f"{name}.yaml"), catalogue):
            if label.endswith("BCS"):
                assert run.algorithm.selector.probe_rounds == 10
                assert run.algorithm.selector.loss_bound == (
                    150 if name == "lending" else None
                )  # None: ln(number of classes)


@pytest.mark.parametrize("name", [*PAPER, "femnist_writers"])
@pytest.mark.shared_data
def test_every_suite_can_be_planned(name, catalogue, shared_data):
    suite = load(SUITES / f"{name}.yaml")
    _, run = next(assemblies(suite, catalogue))
    if not run.task.dataset.availability(shared_data).found:
        pytest.skip(f"needs the data of {name}: {run.task.dataset.availability(shared_data).get}")
    planned = plan_suite(suite, catalogue, shared_data)
    cells = planned.manifest.cells
    assert len(cells) == 8 * 2 * len(suite.seeds)
    empty = {(cell.algorithm, cell.coordinates["privacy.mechanism"]) for cell in cells if cell.run is None}
    assert empty == {("DPSGD", "laplace"), ("DMLDP", "gaussian")}
    assert all(cell.reason for cell in cells if cell.run is None)
    assert len(planned.runs) == 13 * len(suite.seeds)  # FedSGD stands in both columns and runs once


def test_a_suite_whose_data_is_missing_is_refused_before_any_run(catalogue, tmp_path):
    with pytest.raises(DataError, match="fashion_mnist: looked for"):
        plan_suite(load(SUITES / "fashion.yaml"), catalogue, tmp_path)


@pytest.mark.parametrize("name", PAPER)
def test_quick_suites_differ_only_in_scale_and_say_so_in_their_name(name, catalogue):
    full, quick = load(SUITES / f"{name}.yaml"), load(SUITES / "quick" / f"{name}.yaml")
    assert "quick" in quick.name
    assert len(quick.seeds) < len(full.seeds)
    assert f"{len(quick.seeds)} seed" in quick.name
    assert [entry.label for entry in quick.entries] == ALGORITHMS
    (_, large), (_, small) = (next(assemblies(suite, catalogue)) for suite in (full, quick))
    assert (small.task.dataset, small.features, small.task.partition, small.task.model) == (
        large.task.dataset,
        large.features,
        large.task.partition,
        large.task.model,
    )
    assert small.federation.lr == large.federation.lr
    assert quick.base["privacy"] == full.base["privacy"]
    if small.federation.rounds != large.federation.rounds:
        assert f"{small.federation.rounds} of 200 rounds" in quick.name
    if small.task.limit != large.task.limit:
        assert f"{small.task.limit} of " in quick.name
    if small.federation.clients != large.federation.clients:
        assert f"{small.federation.clients} of 100 clients" in quick.name


# ---------------------------------------------------------------- rows of others, and the suite of local training


def test_the_row_of_rpdp_carries_its_settings_and_budgets_are_met_by_rates(catalogue):
    suite = load(OTHERS / "rpdp.yaml")
    runs = dict(assemblies(suite, catalogue))
    for run in runs.values():
        federation = run.federation
        assert (federation.clients, federation.cohort, federation.rounds) == (10, 5, 15)
        assert (federation.local.steps, federation.local.lr, federation.local.noise) == (50, 0.01, 12.373)
        assert federation.lr(0) == pytest.approx(50 * 0.01)  # the server takes the mean of where clients went
    assert runs["DP-FedAvg"].privacy.clip_norm == 1.0
    assert runs["DP-FedAvg"].privacy.delta.bounds() == (1e-4, 1e-4)
    listed, pareto = suite.axes["privacy.epsilon"]
    assert sorted(listed["values"]) == [0.1] * 7 + [1.0] * 2 + [5.0]
    assert (pareto["kind"], pareto["low"], pareto["high"]) == ("pareto", 0.1, 5.0)
    noisy = load(OTHERS / "rpdp_noise.yaml")
    assert noisy.axes == suite.axes
    _, run = next(assemblies(noisy, catalogue))
    assert (run.federation.local.calibrate, run.federation.local.noise, run.federation.local.steps) == (
        "noise",
        None,
        50,
    )


def test_a_client_rate_multiplied_in_spends_more_than_it_claims():
    """What suites/others/rpdp.yaml says: rates for half a client rate over 750 steps, and what the 375 steps of a
    client that is seen to take part in half of the rounds spend with them.
    """
    claimed, noise, delta = np.array([0.1, 1.0, 5.0]), 12.373, 1e-4
    both = calibrate_rate(claimed, delta, noise, 15 * 50)[1]
    spent = pld.epsilons(noise, np.minimum(1, 2 * both), 15 * 50 / 2, delta, "zero_out")
    np.testing.assert_allclose(spent, [0.13, 1.33, 6.54], atol=0.01)


def test_the_suite_of_local_training_has_every_algorithm_that_is_defined_there(catalogue):
    suite = load(OTHERS.parent / "local.yaml")
    assert suite.axes == {"task.partition.alpha": [0.1, 1.0], "federation.local.steps": [1, 5, 20]}
    assert len(suite.seeds) == 8
    runs = dict(assemblies(suite, catalogue))
    known = {name for name, part in catalogue.parts["algorithms"].items() if part.distribution == "dpflbench"}
    same = {"FedSGD", "DPSGD", "DMLDP", "compose"}  # FedAvg and DP-FedAvg by their other names; Laplace; parts
    sums = {"Similar-budgets", "DP-FedAvg-central", "IDP-FedAvg"}  # where the server sees sums alone
    assert known - same - sums == {entry.label for entry in suite.entries}
    assert all(run.federation.local.ruled for run in runs.values())


@pytest.mark.parametrize(("name", "cells"), [("rpdp", 24), ("rpdp_noise", 12), ("scaffold", 60)])
@pytest.mark.shared_data
def test_the_rows_of_others_can_be_planned(name, cells, catalogue, shared_data):
    planned = plan_suite(load(OTHERS / f"{name}.yaml"), catalogue, shared_data)
    assert len(planned.manifest.cells) == cells
    assert all(cell.run for cell in planned.manifest.cells)


# ---------------------------------------------------------------- the paper's sweeps


def points(name, catalogue):
    """Coordinates and parts of every point of a suite under every algorithm that runs there."""
    suite = load(SUITES / f"{name}.yaml")
    found = list(columns_of(suite, catalogue))
    assert [problem for c in found for problem in c.problems] == []
    return suite, [(c.coordinates, c.assembly) for c in found if c.assembly is not None and not c.reason]


@pytest.mark.parametrize(
    ("name", "case", "original"),
    [
        ("privacy", "Lending Club", "paper/lending"),
        ("skew", "Lending Club", "paper/lending"),
        ("selection", "Lending Club", "paper/lending"),
        ("privacy", "convex MNIST", "heterogeneity"),
        ("skew", "convex MNIST", "heterogeneity"),
        ("privacy_cnn", "MNIST CNN", "paper/mnist"),
        ("skew_cnn", "MNIST CNN", "paper/mnist"),
        ("selection", "MNIST", "paper/mnist"),
        ("selection", "Fashion-MNIST", "paper/fashion"),
        ("selection", "FEMNIST", "paper/femnist"),
        ("selection_cifar10", "CIFAR-10", "paper/cifar10"),
    ],
)
def test_a_sweep_varies_its_axes_and_nothing_else_of_the_suite_it_repeats(name, case, original, catalogue):
    at_paper = {"privacy.epsilon.high": 3, "task.partition.alpha": 3}
    suite, found = points(name, catalogue)
    here = {
        (at["privacy.mechanism"], run.algorithm.name): run.config
        for at, run in found
        if at["case"] == case and all(at[path] == value for path, value in at_paper.items() if path in at)
    }
    changes = ["privacy.epsilon.high=3.0", "task.partition.alpha=3.0"] if original == "heterogeneity" else []
    base = load(SUITES.parent / f"{original}.yaml", [f"axes={{privacy.mechanism: [{_mechanisms(suite)}]}}", *changes])
    theirs = {
        (c.coordinates["privacy.mechanism"], c.assembly.algorithm.name): c.assembly.config
        for c in columns_of(base, catalogue)
        if c.assembly is not None and not c.reason
    }
    assert here
    for key, config in here.items():
        for section in ("task", "federation", "privacy"):
            assert config.get(section) == theirs[key].get(section), (key, section)


def _mechanisms(suite):
    return ", ".join(suite.axes["privacy.mechanism"])


def test_the_sweeps_cover_the_papers_ranges_with_enough_seeds(catalogue):
    for name, axis, values in (
        ("privacy", "privacy.epsilon.high", [1, 2, 3, 4, 5, 6]),
        ("skew", "task.partition.alpha", [0.5, 1, 2, 3, 5, 8]),
    ):
        suite, small = load(SUITES / f"{name}.yaml"), load(SUITES / f"{name}_cnn.yaml")
        assert (suite.axes[axis], len(suite.seeds), [e.label for e in suite.entries]) == (values, 8, ALGORITHMS)
        assert (small.axes[axis], small.seeds) == (values, suite.seeds)
        assert [e.label for e in small.entries] == ["FedSGD", "DPSGD", "WeiAvg", "PFA", "DPFL-BCS"]
        assert {"name": "ma2024", "show": "claims"} in suite.report.sections
    for label, loss_bound in (("Lending Club", 150.0), ("convex MNIST", None)):
        _, found = points("privacy", catalogue)
        (run, *_) = [a for at, a in found if at["case"] == label and a.algorithm.name == "DPFL-BCS"]
        assert run.algorithm.selector.loss_bound is None  # the default: ln(classes), or the clip bound of a regression
        assert loss_bound is None or run.privacy.clip_norm == loss_bound


def test_one_command_runs_every_paper_suite_and_says_the_cost_first():
    repo = SUITES.parent.parent
    told = subprocess.run(["make", "-n", "paper"], cwd=repo, capture_output=True, text=True, check=True).stdout
    plans, runs = (re.findall(rf"dpflbench {verb} paper/(\w+)", told) for verb in ("plan", "run"))
    assert sorted(plans) == sorted(runs) == sorted(path.stem for path in SUITES.glob("*.yaml"))
    assert told.index("dpflbench plan paper/cifar10") < told.index("dpflbench run")
    assert runs[-1] == "cifar10"


@pytest.mark.parametrize(
    ("suites", "ran", "code", "said"),
    [
        ("mnist bad femnist worse", "mnist bad femnist worse", 2, "Not whole: bad worse"),
        ("bad stopped femnist", "bad stopped", 2, ""),
        ("mnist femnist", "mnist femnist", 0, ""),
    ],
)
def test_a_suite_that_does_not_end_well_stops_no_other_and_an_interrupt_all(tmp_path, suites, ran, code, said):
    command = tmp_path / "dpflbench"
    command.write_text(
        "#!/bin/sh\n"
        'echo "$1 $2" >> asked\n'
        'case "$1 $2" in "plan paper/mnist") echo "8 have their record. Nothing is left to do.";; '
        '"run paper/bad") exit 1;; "run paper/worse") exit 2;; "run paper/stopped") exit 130;; esac\n'
    )
    command.chmod(0o755)
    given = ["-f", SUITES.parent.parent / "Makefile", "-o", ".venv/.base", f"BIN={tmp_path}", f"PAPER={suites}"]
    ended = subprocess.run(["make", *given, "paper"], cwd=tmp_path, capture_output=True, text=True)
    asked = [line.split() for line in (tmp_path / "asked").read_text().splitlines()]
    assert [suite.removeprefix("paper/") for verb, suite in asked if verb == "run"] == ran.split()
    assert ended.returncode == code
    assert [line for line in ended.stderr.splitlines() if "whole" in line] == ([said] if said else [])
    assert ("Nothing is left to do." in ended.stdout) == ("mnist" in suites.split())


def test_five_data_sets_stand_in_one_table_and_no_picture_s_features_are_fitted(catalogue):
    suite = load(SUITES.parent / "datasets.yaml")
    assert (len(suite.seeds), suite.axes["privacy.mechanism"]) == (8, ["gaussian", "laplace"])
    found = list(columns_of(suite, catalogue))
    assert [problem for c in found for problem in c.problems] == []
    made = {c.coordinates["case"]: c.assembly for c in found if c.entry.use == "DPFL-BCS"}
    assert {case: a.config["task"]["dataset"]["name"] for case, a in made.items()} == {
        "Lending Club": "lending_club",
        "MNIST": "mnist",
        "Fashion-MNIST": "fashion_mnist",
        "FEMNIST": "femnist",
        "CIFAR-10": "cifar10",
    }
    assert {case: getattr(a.features, "fitted", True) for case, a in made.items()} == {
        case: case == "Lending Club" for case in made
    }
    assert {type(a.task.model).__name__ for a in made.values()} == {"Linear", "Softmax"}  # both convex
