"""Checkpoints: killed and resumed equals uninterrupted, bit for bit; what cannot be used is said and not used."""

import os
import random
import signal
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from harness import run_of
from places import place
from suite_runs import carry_out, digests, ended, fork, kill, planned_of

from dpflbench.catalogue import Catalogue, Part
from dpflbench.execution import checkpoint
from dpflbench.execution.attempt import Interrupted, execute
from dpflbench.execution.checkpoint import CheckpointError, freeze, round_of, thaw
from dpflbench.execution.prepare import VARIABLE
from dpflbench.execution.worklist import Worklist
from dpflbench.interfaces import Algorithm
from dpflbench.results.store import Store
from dpflbench_algorithms.parts import UniformSelection

ALGORITHMS = [
    "FedSGD",
    "DPSGD",
    "WeiAvg",
    "PFA",
    "PRIVATEFL",
    "DPFL-BCS",
    "PRIVATEFL-BCS",
    "Robust-HDP",
    "Power-of-choice",
    "Uniform-minimum",
    "IDP-clipping",
]


@dataclass
class StopAfter:
    """A watch that lets a run play some rounds, then stops it and keeps what it leaves."""

    rounds: int
    kept: bytes | None = None
    lines: list[str] = field(default_factory=list)

    def load(self):
        return self.kept

    def save(self, data):
        self.kept = data

    def after(self, state):
        return state.round >= self.rounds

    def say(self, line):
        self.lines.append(line)


def interrupted(run, catalogue, rounds):
    watch = StopAfter(rounds)
    with pytest.raises(Interrupted):
        execute(run, catalogue, place(), watch)
    return watch


@pytest.fixture
def long(tiny):
    tiny["federation"] |= {"rounds": 14, "momentum": 0.5}
    return tiny


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("use", ALGORITHMS)
def test_a_run_stopped_anywhere_and_resumed_equals_an_uninterrupted_one(long, catalogue, use, mechanism):
    if (use, mechanism) == ("DPSGD", "laplace"):
        use = "DMLDP"
    long["privacy"]["mechanism"] = mechanism
    run = run_of(long, catalogue, use)
    whole = execute(run, catalogue, place())
    assert whole.status == "done", whole.reason
    for stop in (1, 9, 10, 13):  # DPFL-BCS plans again after 10
        watch = interrupted(run, catalogue, stop)
        assert watch.kept is not None
        assert watch.lines == []
        assert round_of(watch.kept) == stop
        watch.rounds = 99
        resumed = execute(run, catalogue, place(), watch)
        assert resumed.measured["resumed_at"] == stop
        assert resumed.digest == whole.digest


@pytest.mark.parametrize("use", ["DP-SCAFFOLD", "DP-MR-MTL", "DP-Ditto", "Fine-tuned", "DPFL-BCS", "PRIVATEFL"])
def test_local_training_goes_on_to_the_bit_with_all_its_clients_keep(tiny, catalogue, use):
    tiny["federation"] |= {"rounds": 14, "server": "adam", "lr": {"initial": 0.05}}
    tiny["federation"]["local"] = {"kind": "minibatch", "steps": 2, "batch": 10, "lr": 0.2}
    run = run_of(tiny, catalogue, use)
    whole = execute(run, catalogue, place())
    assert whole.status == "done", whole.reason
    for stop in (1, 10, 13):
        watch = interrupted(run, catalogue, stop)
        assert watch.lines == []
        watch.rounds = 99
        assert execute(run, catalogue, place(), watch).digest == whole.digest


def test_a_run_can_be_stopped_after_every_single_round(long, catalogue):
    run = run_of(long, catalogue, "DPFL-BCS")
    watch = StopAfter(1)
    for done in range(1, 14):
        watch.rounds = done
        with pytest.raises(Interrupted):
            execute(run, catalogue, place(), watch)
    watch.rounds = 99
    assert execute(run, catalogue, place(), watch).digest == execute(run, catalogue, place()).digest


def test_a_run_asked_to_stop_after_its_last_round_is_finished_instead(long, catalogue):
    assert execute(run_of(long, catalogue, "DPSGD"), catalogue, place(), StopAfter(14)).status == "done"


def test_checkpoints_come_by_time_and_short_runs_have_none(long, catalogue, monkeypatch):
    run, watch = run_of(long, catalogue, "DPSGD"), StopAfter(99)
    execute(run, catalogue, place(), watch)
    assert watch.kept is None
    monkeypatch.setenv(VARIABLE, "0")
    execute(run, catalogue, place(), watch)
    assert round_of(watch.kept) == 13


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[: len(data) // 2], "does not match its digest"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "does not match its digest"),
        (lambda data: b"", "does not match its digest"),
        (lambda data: b"garbage\n" * 100, "does not match its digest"),
    ],
)
def test_a_damaged_checkpoint_is_said_and_the_run_starts_over(long, catalogue, damage, said):
    run = run_of(long, catalogue, "DPSGD")
    watch = interrupted(run, catalogue, 5)
    watch.rounds, watch.kept = 99, damage(watch.kept)
    record = execute(run, catalogue, place(), watch)
    assert said in watch.lines[0]
    assert run.id in watch.lines[0]
    assert "resumed_at" not in record.measured
    assert record.digest == execute(run, catalogue, place()).digest


def test_a_checkpoint_of_another_run_or_another_kind_of_machine_is_not_used(long, catalogue, monkeypatch):
    run, other = run_of(long, catalogue, "DPSGD"), run_of(long, catalogue, "DPSGD", seed=1)
    watch = interrupted(run, catalogue, 5)
    watch.rounds = 99
    execute(other, catalogue, place(), watch)
    assert f"belongs to run '{run.id}'" in watch.lines[0]
    monkeypatch.setattr(checkpoint, "numerics", lambda threads: "other bits")
    execute(run, catalogue, place(), watch)
    assert "was made with numerics" in watch.lines[1]


def test_a_checkpoint_with_other_budgets_or_missing_releases_is_not_used(long, catalogue):
    run = run_of(long, catalogue, "DPSGD")
    generous = run_of(
        {**long, "privacy": {**long["privacy"], "epsilon": {"kind": "constant", "value": 50.0}}}, catalogue, "DPSGD"
    )
    watch = interrupted(replace(generous, id=run.id), catalogue, 5)
    watch.rounds = 99
    execute(run, catalogue, place(), watch)
    assert "the budgets are not those of the run" in watch.lines[0]


def test_a_state_that_no_checkpoint_can_hold_is_said_once_and_costs_nothing_else(long, catalogue, monkeypatch):
    class Opaque:
        pass

    @dataclass(frozen=True)
    class Odd:
        def init(self, setup):
            return {"memory": Opaque()}

        def aggregate(self, updates, state):
            return updates.values.mean(0), state

    part = Part("algorithms", "Odd", lambda: Algorithm("Odd", UniformSelection(), Odd()), "odd", "odd", "1", "tests")
    odd = Catalogue({**catalogue.parts, "algorithms": {**catalogue.parts["algorithms"], "Odd": part}})
    run = run_of(long, odd, "Odd")
    watch = interrupted(run, odd, 3)
    assert watch.kept is None
    assert "state.aggregator.memory: Opaque cannot be checkpointed" in watch.lines[0]
    watch.rounds = 99
    monkeypatch.setenv(VARIABLE, "0")
    assert execute(run, odd, place(), watch).status == "done"
    assert len(watch.lines) == 2


def test_what_is_frozen_thaws_to_the_same_types_and_bits():
    value = {
        "a": np.array([1.5, np.nan, -np.inf]),
        "b": (np.arange(3, dtype=np.int32), [None, True, 2, "x"]),
        "c": torch.tensor([1.0, float("nan")]),
        3: np.array(7),
        "d": np.zeros((0, 4)),
    }
    back = thaw(freeze(value, "x"))
    assert list(back) == list(value)
    assert back["a"].tobytes() == value["a"].tobytes()
    assert back["b"][0].dtype == np.int32
    assert back["b"][1] == [None, True, 2, "x"]
    assert back[3].shape == ()
    assert back["d"].shape == (0, 4)
    assert torch.equal(back["c"].isnan(), value["c"].isnan())
    assert freeze(np.float64(0.1), "x") == 0.1
    assert type(freeze(np.float64(0.1), "x")) is float
    with pytest.raises(CheckpointError, match=r"x\.f: function"):
        freeze({"f": test_what_is_frozen_thaws_to_the_same_types_and_bits}, "x")


def killed_after(checkpoints, act):
    """Does it, in a child process that dies the moment it has kept that many checkpoints."""
    real, left = Worklist.save, iter(range(checkpoints - 1, -1, -1))

    def save(work, run, data):
        real(work, run, data)
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def child():
        Worklist.save = save
        act()

    return child


@pytest.mark.parametrize("seed", [1, 2])
def test_a_process_killed_at_many_random_moments_ends_up_with_the_table_of_an_undisturbed_one(
    long, catalogue, tmp_path, monkeypatch, seed
):
    long["federation"]["rounds"] = 40
    long["algorithms"] = ["FedSGD", "DPSGD", "WeiAvg", "PRIVATEFL", "DPFL-BCS"]
    planned = planned_of(long, tmp_path, catalogue)
    calm, wild = Store(tmp_path / "calm"), Store(tmp_path / "wild")
    carry_out(planned, calm, catalogue)
    monkeypatch.setenv(VARIABLE, "0")
    moments = random.Random(seed)
    for count in (1, 3, moments.randrange(10, 30)):  # three moments that are certain to lie after a checkpoint
        child = fork(killed_after(count, lambda: carry_out(planned, wild, catalogue)))
        assert ended(child, 300) == -signal.SIGKILL
        assert digests(wild) == {}
    (kept,) = wild.work("checkpoints").glob("*.pt")
    done = round_of(kept.read_bytes())
    assert done == 4 + count
    for _ in range(25):
        child = fork(lambda: carry_out(planned, wild, catalogue))
        code = ended(child, moments.uniform(0.01, 0.35))
        if code is None:
            kill(child)
        digests(wild)  # nothing but whole records, at any moment
        if code == 0:
            break
        assert code is None
    carry_out(planned, wild, catalogue)
    assert digests(wild) == digests(calm)
    assert wild.read(kept.stem).measured["resumed_at"] >= done
