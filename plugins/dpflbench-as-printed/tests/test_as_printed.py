"""Readings that are not private as claimed run as claimed, and no judge lets one pass."""

import math
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import numpy as np
import pytest
import torch
from dpflbench_as_printed import BudgetSplit
from dpflbench_as_printed.prices import ForcedNorm, GaussianAsPrinted, PureAsPrinted, stretch

from dpflbench.assembly import assemble
from dpflbench.catalogue import load
from dpflbench.cli.audit import _audited_run
from dpflbench.execution.attempt import execute, prepare
from dpflbench.execution.prepare import Place
from dpflbench.federation.simulate import initial_state, rounds
from dpflbench.interfaces import Event
from dpflbench.judges.marks import marked
from dpflbench.judges.verify import rulings
from dpflbench.planning import columns_of, make_run
from dpflbench.report.tables.utility import utility_tables
from dpflbench.report.view import view
from dpflbench.results.cells import Cell, Manifest, Results
from dpflbench.results.rulings import NOT_AS_CLAIMED
from dpflbench.suite_reading import load as load_suite
from dpflbench.suite_reading import normalise
from dpflbench.testing import check_accountant, check_selector
from dpflbench.testing.rules import ConformanceError
from dpflbench_algorithms.parts import UniformSelection

SUITES = Path(__file__).parent.parent / "suites"
GAUSSIAN = {"name": "gaussian", "accountant": {"name": "as_printed_gdp"}}
READINGS = {
    "l2_clip": (
        {"kind": "kept_momentum", "beta": 0.0},
        {"name": "laplace_l2", "accountant": {"name": "as_printed_pure", "reading": "l2_clip", "dim": 15}},
    ),
    "halved": ("half_step", GAUSSIAN),
    "kept_momentum": (
        {"kind": "kept_momentum", "beta": 0.9},
        {"name": "gaussian", "accountant": {"name": "as_printed_gdp", "reading": "kept_momentum"}},
    ),
    "l2_clip_momentum": (
        {"kind": "kept_momentum", "beta": 0.9},
        {"name": "laplace_l2", "accountant": {"name": "as_printed_pure", "reading": "l2_clip_momentum", "dim": 15}},
    ),
    "epoch": (
        {"kind": "epoch", "batch": 16},
        {"name": "gaussian", "accountant": {"name": "as_printed_gdp", "reading": "epoch"}},
    ),
    "forced": (
        {"kind": "kept_momentum", "beta": 0.0},
        {"name": "gaussian", "accountant": {"name": "forced_norm", "norm": 0.05, "dim": 15, "cohort": 4}},
    ),
}


@pytest.fixture(autouse=True)
def unwatched(monkeypatch):
    """Nobody looks for data that a stranger's code keeps: that takes seconds, and is not what is tested here."""
    monkeypatch.setattr("dpflbench.execution.prepare.SAMPLE", 0)


@pytest.fixture(scope="module")
def catalogue():
    """The built-in parts and this package, installed or not."""
    here = EntryPoint("as_printed", "dpflbench_as_printed", "dpflbench")
    return load(points=[*(p for p in entry_points(group="dpflbench") if p.name != "as_printed"), here])


@pytest.fixture(scope="module")
def body(tmp_path_factory):
    """A small federation: 8 clients, 6 rounds, three classes in four dimensions, 15 parameters."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 700)
    x = (2 * np.eye(4, dtype=np.float32)[y] + 0.7 * rng.normal(size=(700, 4))).astype(np.float32)
    path = tmp_path_factory.mktemp("data") / "three.npz"
    np.savez(path, x_train=x[:600], y_train=y[:600], x_test=x[600:], y_test=y[600:])
    return {
        "name": "small",
        "task": {"dataset": {"name": "npz", "path": str(path)}, "model": "softmax", "partition": {"kind": "iid"}},
        "federation": {"clients": 8, "cohort": 4, "rounds": 6, "lr": {"initial": 0.5, "decay": 20}},
        "privacy": {"clip": 1.0, "epsilon": {"kind": "uniform", "low": 0.5, "high": 4.0}, "delta": 1e-5},
    }


def assembled(body, catalogue, reading, use="compose", other=None, **given):
    local, mechanism = READINGS.get(reading, ("full_step", "gaussian"))
    whole = {
        **body,
        "federation": {**body["federation"], "local": local},
        "privacy": {**body["privacy"], "mechanism": mechanism},
        "algorithm": {"name": use, **({"rule": "remembers"} if reading in READINGS else {}), **given},
        "seed": 0,
        **(other or {}),
    }
    problems = []
    made = assemble(normalise(whole), catalogue, problems)
    assert problems == []
    return made


def record_of(made, catalogue):
    return execute(make_run(made.config, made, made.task.dataset.digest(None)), catalogue, Place(noise_key=bytes(16)))


def results_of(body, reading, record):
    local, mechanism = READINGS[reading]
    suite = {
        **body,
        "federation": {**body["federation"], "local": local},
        "privacy": {**body["privacy"], "mechanism": mechanism},
        "axes": {},
        "seeds": [0],
        "algorithms": [{"label": "Mean", "use": "compose", "with": {"rule": "remembers"}}],
        "report": {},
    }
    return Results(Manifest("small", suite, [Cell({}, "Mean", 0, record.id)]), {record.id: record})


@pytest.mark.parametrize("reading", READINGS)
def test_no_judge_lets_a_reading_pass_and_each_names_its_true_epsilon(reading, body, catalogue):
    record = record_of(assembled(body, catalogue, reading), catalogue)
    assert (record.status, record.reason) == ("done", "")
    claimed = record.clients["epsilon_spent"]
    assert (claimed <= record.clients["epsilon"] * (1 + 1e-9)).all()  # as claimed, nobody overspends
    results = results_of(body, reading, record)
    ruling = rulings(results, catalogue)[record.id]
    assert ruling.verdict == "wrong"
    assert ruling.reasons[0].startswith(NOT_AS_CLAIMED)
    assert any("overspend by dp-accounting" in why for why in ruling.reasons)
    shown = view(marked(results, catalogue))
    (table,) = utility_tables(shown)
    assert "(not private as claimed)" in " ".join(item.text + item.mark for item in table.rows[0])
    assert not any(item.bold for row in table.rows for item in row)
    assert shown.contestants(shown.columns[0]) == []


def releases(ratio, law="gaussian", count=40):
    ones = np.ones(count)
    return Event(
        kind="gradient", law=law, sensitivity=ones * ratio, scale=ones, rate=ones, steps=np.ones(count, dtype=np.int64)
    )


def test_the_true_epsilon_is_that_of_the_true_sensitivity():
    whose, delta = np.zeros(40, dtype=np.int64), np.array([1e-5])
    pure = PureAsPrinted(reading="l2_clip", dim=4266).second_opinion(releases(0.05, "laplace"), whose, delta)[1]
    assert pure == pytest.approx([40 * 0.05 * math.sqrt(4266)])  # 65 times the claimed 2
    halved = GaussianAsPrinted().second_opinion(releases(0.05), whose, delta)[1]
    honest = GaussianAsPrinted.__mro__[1]().second_opinion(releases(0.1), whose, delta)[1]
    assert halved == pytest.approx(honest)
    assert stretch("kept_momentum", 1, 0.9) == pytest.approx(10)
    assert stretch("l2_clip_momentum", 100, 0.9) == pytest.approx(100)
    assert np.isinf(GaussianAsPrinted(reading="epoch").second_opinion(releases(0.05), whose, delta)[1]).all()


@pytest.mark.parametrize("accountant", [GaussianAsPrinted(), PureAsPrinted()])
def test_none_of_its_accountants_conforms(accountant):
    with pytest.raises(ConformanceError, match="its second opinion"):
        check_accountant(accountant)


@pytest.mark.parametrize("name", ["readings", "noise_curve"])
def test_an_audit_calls_them_so_before_it_attacks_anything(name, catalogue, capsys):
    column = next(columns_of(load_suite(SUITES / f"{name}.yaml"), catalogue))
    assert _audited_run(column, Place(), 1, 0, 0.95) == 1
    assert f"VIOLATED  DPSGD, {column.assembly.privacy.mechanism.name}: {NOT_AS_CLAIMED}: " in capsys.readouterr().out


def states_of(made):
    """The state after every round of a run."""
    ready = prepare(made, Place(noise_key=bytes(16)))
    state = initial_state(ready.world, ready.theta, ready.phi)
    return list(rounds(ready.world, state, ready.ledger))


def test_momentum_is_kept_by_each_client_and_acts(body, catalogue):
    everybody = {**body, "federation": {**body["federation"], "cohort": 8}}
    kept = assembled(everybody, catalogue, "kept_momentum", "Noise-free", clip=True)
    plain = assembled(everybody, catalogue, "l2_clip", "Noise-free", clip=True)
    first, second, *_ = states_of(kept)
    alone, _, *_ = states_of(plain)
    torch.testing.assert_close(first.theta, alone.theta)  # nothing to remember yet
    lr = 0.5 / (1 + 1 / 20)
    step = (first.theta - second.theta) / lr
    torch.testing.assert_close(step, second.own["momentum"].mean(0), rtol=1e-4, atol=1e-6)
    grown = second.own["momentum"] - 0.9 * first.own["momentum"]  # the gradient of the second round
    assert (grown.norm(dim=1) <= 1.0 + 1e-4).all()
    assert (second.own["momentum"].norm(dim=1) > grown.norm(dim=1)).all()


def test_an_epoch_visits_every_record_once_and_is_federated_averaging(body, catalogue):
    whole = {**body, "federation": {**body["federation"], "cohort": 8, "rounds": 1}}
    large = {"federation": {**whole["federation"], "local": {"kind": "epoch", "batch": 10_000}}}
    one = states_of(assembled(whole, catalogue, "epoch", "Noise-free", large, clip=True))[-1]
    full = states_of(assembled(whole, catalogue, "l2_clip", "Noise-free", clip=True))[-1]
    torch.testing.assert_close(one.theta, full.theta, rtol=1e-4, atol=1e-5)  # one batch of all records is a full step
    several = states_of(assembled(whole, catalogue, "epoch", "Noise-free", clip=True))[-1]
    assert (several.theta - full.theta).norm() > 1.0  # four steps with momentum go further


def test_forced_noise_has_the_norm_it_is_given():
    scale = ForcedNorm(norm=35.0, dim=4266, cohort=20).scale(np.ones((3, 1)), releases(1.0, count=3))
    assert np.sqrt(4266 * scale**2 / 20) == pytest.approx([35.0] * 3, rel=1e-6)


def test_splitting_over_all_rounds_leaves_most_of_a_budget_unspent_and_is_private(body, catalogue):
    check_selector(BudgetSplit(UniformSelection()))
    check_selector(BudgetSplit(UniformSelection(), over="uses", composition="linear"))
    spent = []
    for over in ("uses", "rounds"):
        split = {"name": "split", "of": "uniform", "over": over}
        record = record_of(assembled(body, catalogue, "", selector=split), catalogue)
        assert record.status == "done"
        spent.append(record.clients["epsilon_spent"] / record.clients["epsilon"])
    assert spent[0] == pytest.approx(np.ones(8), rel=1e-4)
    assert (spent[1] < 0.8).all()  # three uses of six rounds


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_suite_can_be_made_and_counts_the_coordinates_right(path, catalogue):
    found = list(columns_of(load_suite(path), catalogue))
    assert [problem for column in found for problem in column.problems] == []
    assert any(column.assembly is not None and not column.reason for column in found)
    shape = (1, 28, 28)
    for column in found:
        accountant = column.assembly.privacy.accountant if column.assembly and column.assembly.privacy else None
        if getattr(accountant, "dim", 0):
            model = column.assembly.task.model.build(shape, 10)
            whole = sum(p.numel() for p in model.parameters())
            personal = 0 if isinstance(accountant, ForcedNorm) else 785  # of the largest message of the table
            assert accountant.dim == whole + personal
