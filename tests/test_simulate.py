"""The loop: paired, charged before anything happens, exact in its plans, bit-equal when repeated."""

import json
import re
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from harness import Free, Silent, assembly_of, record_of, run_of, world_of
from places import place
from scipy import stats

from dpflbench.errors import BudgetExceeded, Diverged, PluginError
from dpflbench.execution.attempt import execute, prepare
from dpflbench.federation import simulate
from dpflbench.federation.calibration import calibrate
from dpflbench.federation.messages import Participation, participate
from dpflbench.federation.simulate import initial_state, rounds
from dpflbench.interfaces import Plan, Probe
from dpflbench.privacy.unprotected import Unlimited
from dpflbench_algorithms.parts import Mean, UniformSelection
from dpflbench_algorithms.privatefl import PersonalAffine


def final_state(prepared):
    *_, last = rounds(prepared.world, initial_state(prepared.world, prepared.theta, prepared.phi), prepared.ledger)
    return last


@pytest.mark.parametrize(("mechanism", "use"), [("gaussian", "DPSGD"), ("laplace", "DMLDP"), ("gaussian", "FedSGD")])
def test_the_same_run_twice_is_bit_equal(tiny, catalogue, mechanism, use):
    tiny["privacy"]["mechanism"] = mechanism
    first, second = record_of(tiny, catalogue, use), record_of(tiny, catalogue, use)
    assert first.status == "done"
    assert first.digest == second.digest


def test_runs_that_differ_in_the_algorithm_share_data_budgets_and_initial_model(tiny, catalogue):
    a, b, c = (record_of(tiny, catalogue, use) for use in ("DPSGD", "WeiAvg", "FedSGD"))
    for key in ("split_digest", "initial_model", "data_digest"):
        assert a.facts[key] == b.facts[key] == c.facts[key]
    np.testing.assert_array_equal(a.clients["epsilon"], b.clients["epsilon"])
    np.testing.assert_array_equal(a.events["client"], b.events["client"])
    assert a.facts["final_model"] != b.facts["final_model"]
    assert np.isinf(c.clients["epsilon"]).all()


def test_another_seed_is_another_federation(tiny, catalogue):
    a, b = record_of(tiny, catalogue, "DPSGD", seed=0), record_of(tiny, catalogue, "DPSGD", seed=1)
    assert a.facts["split_digest"] != b.facts["split_digest"]
    assert (a.clients["epsilon"] != b.clients["epsilon"]).all()


@pytest.mark.parametrize(
    ("mechanism", "use"), [("gaussian", "DPSGD"), ("laplace", "DMLDP"), ("gaussian", "WeiAvg"), ("laplace", "WeiAvg")]
)
def test_a_uniform_plan_is_used_exactly_and_spends_almost_all_of_every_budget_and_never_more(
    tiny, catalogue, mechanism, use
):
    tiny["privacy"]["mechanism"] = mechanism
    record = record_of(tiny, catalogue, use)
    np.testing.assert_array_equal(record.clients["uses"], np.full(8, 3))  # 4 of 8 clients for 6 rounds
    np.testing.assert_array_equal(np.bincount(record.events["client"], minlength=8), record.clients["uses"])
    for t in range(6):
        cohort = record.events["client"][record.events["round"] == t]
        assert len(cohort) == len(set(cohort.tolist())) == 4
    share = record.clients["epsilon_spent"] / record.clients["epsilon"]
    assert (share <= 1).all()
    assert (share >= 0.999).all()


def test_dpsgd_without_noise_and_clip_is_fedsgd(tiny, catalogue):
    silent = final_state(world_of(tiny, catalogue, "DPSGD", mechanism=Silent(), accountant=Free(), clip=1e6))
    plain = final_state(world_of(tiny, catalogue, "FedSGD"))
    torch.testing.assert_close(silent.theta, plain.theta, rtol=1e-6, atol=1e-7)


def test_a_clip_without_noise_is_fedsgd_with_clip(tiny, catalogue):
    silent = final_state(world_of(tiny, catalogue, "DPSGD", mechanism=Silent(), accountant=Free(), clip=0.3))
    tiny["privacy"]["clip"] = 0.3
    record = record_of(tiny, catalogue, "FedSGD", clip=True)
    assert record.status == "done"
    clipped = final_state(prepare(assembly_of(tiny, catalogue, "FedSGD", clip=True), place()))
    torch.testing.assert_close(silent.theta, clipped.theta, rtol=1e-6, atol=1e-7)
    assert not torch.allclose(clipped.theta, final_state(world_of(tiny, catalogue, "FedSGD")).theta, atol=1e-3)


def test_weiavg_with_equal_budgets_is_dpsgd(tiny, catalogue):
    tiny["privacy"] |= {"epsilon": 2.0, "paired_noise": True}
    a, b = (final_state(world_of(tiny, catalogue, use)) for use in ("WeiAvg", "DPSGD"))
    torch.testing.assert_close(a.theta, b.theta, rtol=1e-5, atol=1e-6)


def test_every_coordinate_of_every_message_carries_the_noise_the_ledger_was_charged_for(tiny, catalogue):
    prepared = world_of(tiny, catalogue, "DPSGD")
    world, cohort = prepared.world, np.array([0, 3, 5, 7])
    plan = Plan(np.full(8, 3), 6)
    calibration = calibrate(plan, prepared.ledger.left, world.setup)
    sums = world.engine.clipped_sums(prepared.theta, prepared.phi[cohort], world.task.train, cohort, torch.ones(4))
    exact = sums.theta / torch.as_tensor(world.setup.n_examples[cohort])[:, None]

    def message(round, ledger):
        part = Participation(
            round=round,
            cohort=cohort,
            theta=prepared.theta,
            phi=prepared.phi[cohort],
            calibration=calibration,
            probe=None,
            lr=0.1,
        )
        return participate(part, world.setup, world.trust, world.engine, world.task.train, ledger, world.streams).theta

    draws = [message(0, prepared.ledger), *(message(t, Unlimited(8)) for t in range(1, 200))]
    noise = (torch.stack(draws) - exact).numpy() / calibration.message.scale[cohort][:, None]
    for k in range(4):
        for coordinate in (0, 7, 14):
            assert stats.kstest(noise[:, k, coordinate], "norm").pvalue > 1e-4
    np.testing.assert_allclose(noise.std((0, 2)), 1.0, atol=0.05)
    events = prepared.ledger.events()
    np.testing.assert_array_equal(events["scale"], calibration.message.scale[cohort])
    np.testing.assert_allclose(events["sensitivity"], 2.0 / world.setup.n_examples[cohort])


@dataclass(frozen=True)
class Greedy:
    """Asks for more than there is."""

    factor: float = 1.01

    def plan(self, view, rng):
        plan = UniformSelection().plan(view, rng)
        return replace(plan, cost=self.factor * view.left / plan.uses[:, None])


def test_an_overspend_is_refused_before_anything_happens_and_disqualifies_the_run(tiny, catalogue, monkeypatch):
    prepared = world_of(tiny, catalogue, "DPSGD", algorithm={"selector": Greedy()})
    played = rounds(prepared.world, initial_state(prepared.world, prepared.theta, prepared.phi), prepared.ledger)
    with pytest.raises(BudgetExceeded, match=r"client \d+"):
        list(played)
    events = prepared.ledger.events()
    assert set(np.bincount(events["round"]).tolist()) <= {4}  # whole rounds only: the refused one left no event
    part = catalogue.parts["algorithms"]["DPSGD"]
    cheat = replace(part, factory=lambda: replace(part.factory(), selector=Greedy()))
    monkeypatch.setitem(catalogue.parts["algorithms"], "DPSGD", cheat)
    record = execute(run_of(tiny, catalogue, "DPSGD"), catalogue, place())
    assert record.status == "disqualified"
    assert "client" in record.reason
    assert (record.clients["epsilon_spent"] <= record.clients["epsilon"]).all()
    assert record.final == {}


def test_a_learning_rate_that_explodes_ends_the_run_as_diverged_with_the_round(tiny, catalogue):
    tiny["federation"]["lr"] = {"initial": 1e39}
    record = record_of(tiny, catalogue, "FedSGD")
    assert record.status == "diverged"
    assert record.reason == "the model is no longer finite after round 1"


@dataclass(frozen=True)
class Bad:
    """An aggregator that does one thing wrong."""

    how: str

    def init(self, setup):
        return None

    def aggregate(self, updates, state):
        if self.how == "shape":
            return updates.values, state
        if self.how == "nan":
            return updates.values.mean(0) * float("nan"), state
        if self.how == "place":
            updates.values.mul_(2.0)
        if self.how == "dtype":
            return updates.values.mean(0).double(), state
        return updates.values.mean(0), state


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("shape", "expected a direction of shape"),
        ("nan", "non-finite values of finite updates"),
        ("place", "changes updates.values in place"),
        ("dtype", "expected torch.float32"),
    ],
)
def test_an_aggregator_that_breaks_its_interface_is_refused(tiny, catalogue, how, message):
    prepared = world_of(tiny, catalogue, "DPSGD", algorithm={"aggregator": Bad(how)})
    with pytest.raises(PluginError, match=message):
        final_state(prepared)


def test_weight_decay_and_momentum_follow_their_formulas(tiny, catalogue):
    tiny["federation"] |= {"weight_decay": 0.1, "momentum": 0.5, "rounds": 2, "cohort": 8}
    prepared = world_of(tiny, catalogue, "FedSGD")
    world, clients = prepared.world, np.arange(8)
    theta, velocity = prepared.theta, torch.zeros_like(prepared.theta)
    for t in range(2):
        sums = world.engine.clipped_sums(theta, prepared.phi, world.task.train, clients, None)
        mean = (sums.theta / torch.tensor(world.setup.n_examples)[:, None]).mean(0).to(theta.dtype)
        velocity = 0.5 * velocity + mean + 0.1 * theta
        theta = theta - 0.5 / (1 + t / 20) * velocity
    torch.testing.assert_close(final_state(prepared).theta, theta)


@dataclass(frozen=True)
class Curious:
    """Asks for losses in the first two rounds."""

    probe: Probe

    def plan(self, view, rng):
        if view.round == 0:
            plan = UniformSelection().plan(view, rng)
            return Plan(np.full(8, 1), 2, view.left / 3, probe=self.probe, notes={"planned": plan.uses})
        losses = view.losses
        return Plan(
            np.full(8, 2),
            4,
            notes={
                "losses": losses.received,
                "stepped": losses.stepped,
                "variance": losses.variance,
                "client": losses.client,
            },
        )


@pytest.mark.parametrize(
    ("probe", "kinds", "per_round"),
    [
        (Probe(1.1), {0, 1}, 2),
        (Probe(1.1, share=0.5, after_step=True), {0, 1}, 3),
        (Probe(1.1, joint=True, after_step=True), {2}, 1),
    ],
)
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_a_probe_is_paid_from_the_same_budget_and_hands_over_noisy_losses_only(
    tiny, catalogue, probe, kinds, per_round, mechanism
):
    tiny["privacy"]["mechanism"] = mechanism
    tiny["privacy"]["epsilon"] = {"kind": "uniform", "low": 30.0, "high": 60.0}
    prepared = world_of(tiny, catalogue, "WeiAvg", algorithm={"selector": Curious(probe), "aggregator": Mean()})
    state = final_state(prepared)
    events, note = prepared.ledger.events(), state.notes[1]
    assert set(events["kind"][events["round"] < 2].tolist()) == kinds
    assert (events["round"] < 2).sum() == 2 * 4 * per_round
    assert set(events["kind"][events["round"] >= 2].tolist()) == {0}
    share = prepared.ledger.epsilon_spent() / prepared.ledger.epsilon
    assert (share <= 1).all()
    assert (share > 0.99).all()
    assert len(note["losses"]) == 8
    assert np.isnan(note["stepped"]).all() != probe.after_step
    assert (note["variance"] > 0).all()
    world, initial = prepared.world, prepared.theta
    exact = [
        float(
            world.engine.losses(
                initial,
                prepared.phi[n],
                *(t[slice(*world.task.train.offsets[n : n + 2])] for t in (world.task.train.x, world.task.train.y)),
            )
            .clamp(0, 1.1)
            .mean()
        )
        for n in note["client"][:4]
    ]
    gap = (note["losses"][:4] - exact) / np.sqrt(note["variance"][:4])
    assert (np.abs(gap) < 6).all()
    assert (gap != 0).all()


def test_a_run_without_a_ledger_cannot_hide_a_private_algorithm(tiny, catalogue):
    record = record_of(tiny, catalogue, "FedSGD")
    assert record.private is False
    assert record.events == {}
    assert np.isinf(record.clients["epsilon_spent"]).all()


def test_a_model_that_stops_being_finite_raises_with_the_round(tiny, catalogue):
    prepared = world_of(tiny, catalogue, "FedSGD")
    state = initial_state(prepared.world, prepared.theta, prepared.phi)
    broken = replace(state, theta=state.theta * float("inf"))
    with pytest.raises(Diverged, match="round 0"):
        next(iter(rounds(prepared.world, broken, prepared.ledger)))


def test_a_transform_that_fails_may_not_quote_a_client_s_data(tiny, catalogue, monkeypatch):
    def indiscreet(self, phi, x):
        raise ValueError("cannot treat 0.123")  # what a client has; vmap itself keeps its numbers from a message

    monkeypatch.setattr(PersonalAffine, "apply", indiscreet)
    monkeypatch.setattr("dpflbench.federation.gradients.engine.check_transform_apart", lambda *_: None)
    record = record_of(tiny, catalogue, "PRIVATEFL")
    assert record.status == "failed"
    assert re.match(
        r"ValueError at test_simulate\.py:\d+ in indiscreet, while clients computed; its text may quote", record.reason
    )
    assert "cannot treat" not in json.dumps(record.measured, default=str) + record.reason


def test_a_sample_that_overflows_does_not_end_the_run(tiny, catalogue):
    """That a run went on or not would be a bit about one client's data which nobody has paid for."""

    def last(value):
        prepared = world_of(tiny, catalogue, "DPSGD")
        task = prepared.world.task
        x = task.train.x.clone()  # tasks are shared by the runs of a process
        x[7] = value
        world = replace(prepared.world, task=replace(task, train=replace(task.train, x=x)))
        return list(rounds(world, initial_state(world, prepared.theta, prepared.phi), prepared.ledger))[-1]

    assert last(float("inf")).round == last(0.5).round == tiny["federation"]["rounds"]


def test_the_first_round_of_a_process_is_no_part_of_what_a_round_takes(tiny, catalogue, monkeypatch):
    played = simulate.play

    def slow_at_first(world, state, ledger, clock):
        time.sleep(0.5 if state.round == 0 else 0.0)  # imports, allocations, kernels
        return played(world, state, ledger, clock)

    monkeypatch.setattr(simulate, "play", slow_at_first)
    found = record_of(tiny, catalogue, "DPSGD").measured
    assert found["seconds"] > 0.5
    assert found["round_seconds"] < 0.25
    assert 0 < found["round_gradient_seconds"] < found["round_seconds"]
    assert found["samples_per_second"] > 0


def test_a_run_of_one_round_has_nothing_warm_to_measure(tiny, catalogue):
    tiny["federation"]["rounds"] = 1
    assert "round_seconds" not in record_of(tiny, catalogue, "DPSGD").measured
