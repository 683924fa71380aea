"""Who adds the noise and who is protected: sums that cost what they should, clients clipped whole, secret cohorts."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from harness import Free, Silent, assembly_of, record_of, world_of
from honest import remade, results_of
from places import place
from scipy import stats
from test_simulate import final_state

from dpflbench.assembly import assemble
from dpflbench.errors import PluginError, RunEnded, SuiteError
from dpflbench.execution.attempt import prepare
from dpflbench.execution.checkpoint import pack, unpack
from dpflbench.federation import simulate
from dpflbench.federation.gradients.summation import MARGIN
from dpflbench.federation.local import WholeClient, clipped
from dpflbench.federation.messages import Participation, participate
from dpflbench.federation.pull import facts_of
from dpflbench.federation.simulate import Clock, initial_state, next_cohort, round_shown, rounds, settled_plan
from dpflbench.federation.trust import LocalTrust, SumTrust, sum_sensitivity, trust_of, weights_of
from dpflbench.forecast import forecast
from dpflbench.interfaces import Plan, PlanView, Probe, Trust
from dpflbench.judges.replay import replay
from dpflbench.judges.verify import verify
from dpflbench.planning import plan_suite
from dpflbench.privacy.pld import epsilon as by_loss_distribution
from dpflbench.suite_reading import check, normalise
from dpflbench_algorithms.parts import Mean, UniformSelection
from dpflbench_algorithms.pfa import pfa
from dpflbench_algorithms.similar_budgets import along

TRUSTS = ("local", "secure_sum", "central")
UNITS, COHORTS = ("example", "client"), ("exact", "poisson")
LOCALS = {"full_step": {"kind": "full_step"}, "minibatch": {"kind": "minibatch", "steps": 3, "batch": 16, "lr": 0.1}}
README = Path(__file__).parent.parent / "suites" / "README.md"


def framed(body, trust="central", unit="example", cohorts="exact", local="full_step"):
    """A suite in another frame."""
    return body | {
        "privacy": body["privacy"] | {"trust": trust, "unit": unit},
        "federation": body["federation"] | {"cohorts": cohorts, "local": LOCALS[local]},
    }


def events_of(prepared, uses=None, cohort=(0, 3, 5, 7), aggregator=None):
    """What a round of a cohort shows under a plan of equal uses, and the plan's calibration."""
    world = prepared.world
    plan = Plan(np.full(8, 3) if uses is None else np.asarray(uses), 6)
    view = PlanView(world.setup, 0, np.zeros(8, dtype=np.int64), prepared.ledger.left, None)
    calibration = settled_plan(world, plan, prepared.ledger.left, view)
    facts = facts_of(np.array(cohort), world.setup, calibration.variance(world.setup.mechanism), 0)
    return round_shown(world, plan, calibration, np.array(cohort), facts, True), calibration


# ---------------------------------------------------------------- which frames there are


def proved(body, catalogue, *frame):
    problems = []
    made = assemble(normalise(framed(body, *frame) | {"algorithm": {"name": "DPSGD"}, "seed": 0}), catalogue, problems)
    return made.privacy.accountant.name if made else problems


def test_the_table_of_all_frames_is_what_is_proved_and_what_is_refused(tiny, catalogue):
    lines = README.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("| `privacy.trust` | `privacy.unit` |"))
    table = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines[at + 2 : at + 8]]
    notes = {line[2]: line for line in lines[at + 8 : at + 14] if line.startswith("* ")}
    seen = {}
    for trust, unit, *cells in table:
        for (cohorts, local), cell in zip(product(COHORTS, LOCALS), cells, strict=True):
            seen[trust, unit, cohorts, local] = cell
    assert set(seen) == set(product(TRUSTS, UNITS, COHORTS, LOCALS))
    for frame, cell in seen.items():
        found = proved(tiny, catalogue, *frame)
        if isinstance(found, str):
            assert cell == found, frame
        else:
            assert len(found) == 1
            assert "allowed: " in found[0], frame
            key = found[0].split(":")[0]
            assert key in notes[cell], frame


def test_laplace_shares_do_not_add_up_and_a_trusted_server_needs_none(tiny, catalogue):
    tiny["privacy"]["mechanism"] = "laplace"
    assert "whose shares do not add up" in proved(tiny, catalogue, "secure_sum")[0]
    record = record_of(framed(tiny), catalogue, "DMLDP")
    assert record.status == "done"
    assert (record.clients["epsilon_spent"] <= record.clients["epsilon"]).all()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"trust": {"kind": "central", "honest": 0.5}}, "honest: 0.5 under central; allowed: below 1 with secure_sum"),
        ({"trust": {"kind": "secure_sum", "honest": 0.0}}, "honest: 0.0; allowed: above 0, up to 1"),
        ({"trust": "nobody"}, "privacy.trust.kind: found 'nobody'; "),
        ({"unit": "household"}, "privacy.unit: found 'household'; "),
        (
            {"mechanism": {"name": "gaussian", "accountant": "gdp"}, "trust": "central", "cohorts": 1},
            "'gdp' has no pro",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tiny, catalogue, change, text):
    body = framed(tiny, cohorts="poisson" if change.pop("cohorts", 0) else "exact", trust="local")
    body["privacy"] |= change
    problems = []
    assert assemble(normalise(body | {"algorithm": {"name": "DPSGD"}, "seed": 0}), catalogue, problems) is None
    assert text in problems[0], problems


def test_rows_transforms_rules_and_losses_are_explained_gaps_and_errors_without_an_axis(tiny, catalogue):
    tiny["algorithms"] = ["DPSGD", "PFA", "PRIVATEFL", "Power-of-choice", "Robust-HDP", "IDP-FedAvg"]
    tiny["axes"] = {"privacy.trust": ["local", "secure_sum"]}
    planned = plan_suite(check(normalise(tiny), "x", []), catalogue, None)
    gaps = {
        c.algorithm: c.reason
        for c in planned.manifest.cells
        if c.run is None and c.coordinates["privacy.trust"] != "local"
    }
    assert set(gaps) == {"PFA", "PRIVATEFL", "Power-of-choice", "Robust-HDP", "IDP-FedAvg"}
    assert "aggregates rows" in gaps["PFA"]
    assert "personal transforms" in gaps["PRIVATEFL"]
    assert "losses" in gaps["Power-of-choice"]
    with pytest.raises(SuiteError, match="PFA aggregates rows"):
        plan_suite(check(normalise(framed(tiny) | {"axes": {}, "algorithms": ["PFA"]}), "x", []), catalogue, None)


def test_a_rule_that_remembers_gradients_has_no_place_where_they_have_no_noise(tiny, catalogue):
    body = framed(tiny, "central", "client", local="minibatch")
    assert assembly_of(body, catalogue, "DP-SCAFFOLD").frame.gap(assembly_of(body, catalogue, "DP-SCAFFOLD").algorithm)
    assert not assembly_of(body, catalogue, "DP-FedAvg").frame.gap(assembly_of(body, catalogue, "DP-FedAvg").algorithm)


# ---------------------------------------------------------------- what a sum costs


def test_noise_is_what_the_most_demanding_member_asks_for_and_everybody_is_charged_its_own(tiny, catalogue):
    shown, calibration = events_of(world_of(framed(tiny), catalogue, "DPSGD"))
    alone, (event,) = calibration.message.of(np.array([0, 3, 5, 7])), shown.events
    np.testing.assert_allclose(shown.weights, 0.25)
    np.testing.assert_allclose(event.sensitivity, alone.sensitivity / 4, rtol=1e-12)
    assert shown.scale == pytest.approx(alone.scale.max() / 4, rel=1e-9)
    assert len(set(event.scale)) == 1
    ratio = event.sensitivity / event.scale
    assert (ratio <= alone.sensitivity / alone.scale).all()  # nobody pays more than its share of a budget
    assert (ratio < 0.99 * alone.sensitivity / alone.scale).sum() == 3  # and the loose cannot spend theirs


@pytest.mark.parametrize(("honest", "counted"), [(1.0, 1.0), (0.5, 0.5), (0.3, 0.5), (0.01, 0.25)])
def test_of_a_secure_sum_only_the_honest_share_protects(tiny, catalogue, honest, counted):
    """With h of the shares known to the server, what is left of the noise must still be worth each charge."""
    central, _ = events_of(world_of(framed(tiny), catalogue, "DPSGD"))
    shown, _ = events_of(world_of(framed(tiny, {"kind": "secure_sum", "honest": honest}), catalogue, "DPSGD"))
    np.testing.assert_array_equal(shown.events[0].scale, central.events[0].scale)  # charged alike
    assert shown.scale**2 * counted == pytest.approx(float(shown.events[0].scale[0]) ** 2, rel=1e-9)


def test_a_cohort_of_one_is_protected_by_its_own_noise_whatever_others_do(tiny, catalogue):
    tiny["federation"] |= {"cohort": 1, "rounds": 24}
    for trust in ("central", {"kind": "secure_sum", "honest": 0.1}):
        prepared = world_of(framed(tiny, trust), catalogue, "DPSGD")
        plan = Plan(np.full(8, 3), 24)
        view = PlanView(prepared.world.setup, 0, np.zeros(8, dtype=np.int64), prepared.ledger.left, None)
        calibration = settled_plan(prepared.world, plan, prepared.ledger.left, view)
        facts = facts_of(np.array([5]), prepared.world.setup, np.ones(8), 0)
        shown = round_shown(prepared.world, plan, calibration, np.array([5]), facts, True)
        local = calibration.releases(np.array([5]), None)[0]
        np.testing.assert_allclose(shown.scale, local.scale, rtol=1e-12)
        np.testing.assert_allclose(shown.events[0].sensitivity, local.sensitivity, rtol=1e-12)


def test_what_is_released_is_the_sum_and_noise_of_the_scale_that_was_charged(tiny, catalogue):
    prepared = world_of(framed(tiny, {"kind": "secure_sum", "honest": 0.5}), catalogue, "DPSGD")
    world, cohort = prepared.world, np.array([0, 3, 5, 7])
    shown, calibration = events_of(prepared)
    sums = world.engine.clipped_sums(prepared.theta, prepared.phi[cohort], world.task.train, cohort, torch.ones(4))
    exact = (sums.theta / torch.as_tensor(world.setup.n_examples[cohort])[:, None]).mean(0)

    def message(round):
        part = Participation(
            round=round, cohort=cohort, theta=prepared.theta, phi=prepared.phi[cohort], calibration=calibration,
            probe=None, lr=0.1, shown=replace(shown, events=[]),
        )  # fmt: skip
        out = participate(part, world.setup, world.trust, world.engine, world.task.train, None, world.streams)
        assert out.theta.shape == (1, world.setup.dim)  # the server gets one row, whoever took part
        return out.theta[0]

    noise = (torch.stack([message(t) for t in range(300)]) - exact).numpy() / shown.scale
    for coordinate in (0, 7, 14):
        assert stats.kstest(noise[:, coordinate], "norm").pvalue > 1e-4


def test_rows_that_add_up_to_the_same_look_the_same(tiny, catalogue):
    """Not a number of what comes out tells rows apart: only their sum goes in."""
    world = world_of(framed(tiny), catalogue, "DPSGD").world
    shown, _ = events_of(world_of(framed(tiny), catalogue, "DPSGD"))
    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]], dtype=torch.float64)
    out = [
        world.trust.protect(world.setup.mechanism, shown, world.streams.draws("noise", 0))(values)
        for values in (rows, rows.flip(0), rows.mean(0).expand(4, -1))
    ]
    assert torch.equal(out[0], out[1])
    assert torch.equal(out[0], out[2])
    assert torch.equal(out[0], out[0][:1].expand(4, -1))


def test_a_sum_has_one_message_a_client_and_takes_no_second_one(tiny, catalogue):
    world = world_of(framed(tiny), catalogue, "DPSGD").world
    shown, _ = events_of(world_of(framed(tiny), catalogue, "DPSGD"))
    protect = world.trust.protect(world.setup.mechanism, shown, world.streams.draws("noise", 0))
    protect(torch.zeros(4, 2, dtype=torch.float64))
    with pytest.raises(PluginError, match="one message"):
        protect(torch.zeros(4, 2, dtype=torch.float64))


def test_weights_are_public_and_those_that_look_at_rows_are_none(tiny, catalogue):
    class Nosy:
        def weights(self, cohort):
            assert not hasattr(cohort, "values")
            return torch.zeros(4)

    setup = world_of(framed(tiny), catalogue, "DPSGD").world.setup
    facts = facts_of(np.arange(4), setup, np.ones(8), 0)
    with pytest.raises(PluginError, match="not all 0"):
        weights_of(Nosy(), facts)
    with pytest.raises(PluginError, match="looks at rows"):
        weights_of(pfa().aggregator, facts)
    np.testing.assert_array_equal(weights_of(Mean(), facts), 0.25)
    assert isinstance(trust_of(Trust()), LocalTrust)
    assert isinstance(trust_of(Trust("central")), SumTrust)


def test_rounding_of_a_sum_is_part_of_its_sensitivity():
    """Without it a client of hardly any weight is charged less than its presence moves the last bits of a sum."""
    weights, rows = np.array([1.0, 1.0, 1e-18]), np.array([1.0, 2.0**-53, 1.0])
    with_it, without = float((weights * rows).sum()), float((weights[:2] * rows[:2]).sum())
    rows[2] = 1e3  # a neighbour's, within its norm
    moved = abs(float((weights * rows).sum()) - without)
    found = sum_sensitivity(weights, np.zeros(3), np.full(3, 1e3), 3)
    assert (found >= max(moved, abs(with_it - without)) - 1e-15).all()
    assert (found > 0).all()


def test_probes_are_refused_where_nobody_sees_a_loss(tiny, catalogue):
    class Asks(UniformSelection):
        def plan(self, view, rng):
            return replace(super().plan(view, rng), probe=Probe(1.0))

    prepared = world_of(framed(tiny), catalogue, "DPSGD", algorithm={"selector": Asks()})
    with pytest.raises(RunEnded, match="losses"):
        final_state(prepared)
    assert record_of(framed(tiny), catalogue, "DPFL-BCS", probe_rounds=2).status == "done"  # plans by noise alone


# ---------------------------------------------------------------- whole clients


def test_a_whole_message_is_clipped_and_what_is_not_finite_is_nothing():
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [np.nan, 1.0], [np.inf, 0.0]], dtype=torch.float64)
    out, within = clipped(rows, torch.ones(4), 2)
    torch.testing.assert_close(out[0], torch.tensor([0.6, 0.8], dtype=torch.float64) * (1 - MARGIN))
    torch.testing.assert_close(out[1], rows[1])
    assert not out[2:].any()
    assert within.tolist() == [False, True, False, False]
    shorter, _ = clipped(rows[:1], torch.ones(1), 1)
    assert float(shorter.abs().sum()) <= 1.0


@pytest.mark.parametrize(("neighbours", "factor"), [("replace", 2.0), ("zero_out", 1.0)])
def test_a_whole_client_moves_its_message_by_its_clip_whatever_its_size(tiny, catalogue, neighbours, factor):
    tiny["privacy"] |= {"neighbours": neighbours, "clip": 0.7}
    setup = world_of(framed(tiny, "local", "client"), catalogue, "DPSGD").world.setup
    np.testing.assert_allclose(setup.message().sensitivity, factor * 0.7)
    assert setup.accountant.name == "gdp"


@pytest.mark.parametrize("local", LOCALS)
def test_without_noise_and_clip_a_whole_client_does_plain_local_training(tiny, catalogue, local):
    body = framed(tiny, "central", "client", local=local)
    silent = final_state(world_of(body, catalogue, "DPSGD", mechanism=Silent(), accountant=Free(), clip=1e6))
    body["privacy"] |= {"noise_key": "00" * 16, "paired_noise": True}
    plain = world_of(framed(tiny, "local", local=local), catalogue, "FedSGD")
    silent_streams = world_of(body, catalogue, "DPSGD", mechanism=Silent(), accountant=Free(), clip=1e6).world.streams
    plain = replace(plain, world=replace(plain.world, streams=silent_streams))
    again = world_of(body, catalogue, "DPSGD", mechanism=Silent(), accountant=Free(), clip=1e6)
    torch.testing.assert_close(final_state(again).theta, final_state(plain).theta, rtol=1e-5, atol=1e-6)
    assert silent.theta.shape == plain.theta.shape


def test_clipping_every_sample_is_no_clip_of_a_client(tiny, catalogue):
    """The message of a client whose samples agree is as long as one of them: what counts is the last clip."""
    body = framed(tiny, "central", "client")
    body["privacy"]["clip"] = 0.01
    prepared = world_of(body, catalogue, "DPSGD")
    assert isinstance(prepared.world.setup.local, WholeClient)
    seen = []

    def look(value, rows=None):
        seen.append(value.clone())
        return value

    world, cohort = prepared.world, np.arange(4)
    shown, calibration = events_of(prepared, cohort=cohort)
    trust = type("Looking", (), {"protect": lambda self, *a: look})()
    part = Participation(
        round=0, cohort=cohort, theta=prepared.theta, phi=prepared.phi[cohort], calibration=calibration, probe=None,
        lr=0.1, shown=replace(shown, events=[]),
    )  # fmt: skip
    participate(part, world.setup, trust, world.engine, world.task.train, None, world.streams)
    norms = seen[0].norm(dim=1)
    assert (norms <= 0.01).all()
    assert (norms >= 0.01 * (1 - 2 * MARGIN)).any()


# ---------------------------------------------------------------- Poisson cohorts


def test_poisson_cohorts_come_from_secret_coins_of_the_planned_rates(tiny, catalogue):
    tiny["federation"] |= {"rounds": 400}
    prepared = world_of(framed(tiny, cohorts="poisson"), catalogue, "DPSGD")
    uses = np.array([400.0, 0.0, 40.0, 360.0, 200.0, 200.0, 300.0, 100.0])
    plan = Plan(uses, 400)
    drawn = [next_cohort(prepared.world, plan, uses.astype(int), 400, t) for t in range(400)]
    counts = np.bincount(np.concatenate(drawn), minlength=8)
    assert counts[0] == 400
    assert counts[1] == 0
    assert (np.abs(counts - uses)[2:] <= 5 * np.sqrt(100)).all()
    assert len({len(c) for c in drawn}) > 2
    other = replace(prepared.world, streams=replace(prepared.world.streams, secret=b"x" * 16))
    assert any(len(a) != len(next_cohort(other, plan, uses.astype(int), 400, t)) for t, a in enumerate(drawn[:20]))


def test_everybody_is_charged_once_for_all_rounds_at_its_own_rate_and_a_second_accountant_agrees(tiny, catalogue):
    record = record_of(framed(tiny, unit="client", cohorts="poisson"), catalogue, "DPSGD")
    assert record.status == "done", record.reason
    events, clients = record.events, record.clients
    np.testing.assert_array_equal(events["client"], np.arange(8))
    np.testing.assert_array_equal(events["steps"], 6)
    np.testing.assert_allclose(events["rate"], 0.5)
    assert (clients["epsilon_spent"] <= clients["epsilon"]).all()
    assert clients["epsilon_spent"].max() / clients["epsilon"][clients["epsilon_spent"].argmax()] <= 1
    at = int(np.argmax(clients["epsilon_spent"] / clients["epsilon"]))
    assert clients["epsilon_spent"][at] > 0.97 * clients["epsilon"][at]
    noise = float(events["scale"][at] / events["sensitivity"][at])
    assert by_loss_distribution(((noise, 0.5, 6),), float(clients["delta"][at]), "zero_out") <= clients["epsilon"][at]


def test_an_empty_cohort_releases_noise_and_the_sum_is_divided_by_what_was_expected(tiny, catalogue):
    tiny["federation"] |= {"cohort": 1, "rounds": 30}
    prepared = world_of(framed(tiny, cohorts="poisson"), catalogue, "DPSGD")
    state = initial_state(prepared.world, prepared.theta, prepared.phi)
    empty, before = 0, state
    for after in rounds(prepared.world, state, prepared.ledger):
        if after.used.sum() == before.used.sum():
            empty += 1
            assert not torch.equal(after.theta, before.theta)
        before = after
    assert empty >= 3  # 30 rounds in which nobody comes with probability (7 / 8)^8
    np.testing.assert_allclose(before.planned[1].weights, 1.0)  # 1 / K, whoever came
    assert (prepared.ledger.used == 1).all()


def test_idp_fedavg_draws_the_loose_more_often_at_one_noise_and_everybody_spends_nearly_all(tiny, catalogue):
    tiny["federation"]["rounds"] = 20
    record = record_of(framed(tiny, unit="client", cohorts="poisson"), catalogue, "IDP-FedAvg")
    assert record.status == "done", record.reason
    clients, rate = record.clients, record.events["rate"]
    assert rate.sum() == pytest.approx(4.0)
    assert (np.diff(rate[np.argsort(clients["epsilon"])]) >= 0).all()
    share = clients["epsilon_spent"] / clients["epsilon"]
    assert (share <= 1).all()
    assert (share[rate < 0.999] > 0.97).all()
    uniform = record_of(framed(tiny, unit="client", cohorts="poisson"), catalogue, "DPSGD")
    assert record.events["scale"][0] < 0.8 * uniform.events["scale"][0]


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (Plan(np.full(8, 2), 4), "one plan for all rounds"),
        (Plan(np.full(8, 3), 6, cost=np.ones((8, 1))), "without cost"),
        (Plan(np.full(8, 2.0), 6), "sums to 16"),
        (Plan(np.array([np.nan] * 8), 6), "ranges from nan"),
    ],
)
def test_a_poisson_plan_is_made_once(tiny, catalogue, plan, text):
    class Given:
        def plan(self, view, rng):
            return plan

    with pytest.raises(PluginError, match=text):
        final_state(world_of(framed(tiny, cohorts="poisson"), catalogue, "DPSGD", algorithm={"selector": Given()}))


# ---------------------------------------------------------------- an adaptive clip


def test_an_adaptive_clip_finds_the_quantile_and_is_charged_as_an_event_of_its_own(tiny, catalogue):
    tiny["federation"]["rounds"] = 40
    tiny["privacy"] |= {"clip": 8.0, "epsilon": 60.0}
    record = record_of(framed(tiny, unit="client"), catalogue, "DP-FedAvg-central", clip="adaptive", rate=0.5)
    assert record.status == "done", record.reason
    kinds, bounds = record.events["kind"], record.facts["clip_bounds"]
    assert (kinds == 3).sum() == (kinds == 0).sum() == 160
    assert len(bounds) == 41
    assert bounds[-10:].mean() * 8.0 < 1.5  # from 8 down to where half of the messages are
    message = record.events["kind"] == 0
    ratio = record.events["sensitivity"][message] / record.events["scale"][message]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-6)  # noise follows the clip
    paid = record.events["cost"]
    np.testing.assert_allclose(paid[~message].sum() / paid.sum(), 0.05, rtol=1e-3)
    assert (record.clients["epsilon_spent"] <= record.clients["epsilon"]).all()
    assert "noise_efficiency" not in record.facts  # what one clip bound allows says nothing of several


def test_an_adaptive_clip_needs_a_sum_over_exact_cohorts(tiny, catalogue):
    for frame in (("local", "client"), ("central", "example"), ("central", "client", "poisson")):
        body = framed(tiny, *frame)
        body["algorithms"] = [{"use": "compose", "with": {"selector": "adaptive_clip"}}]
        record = record_of(body, catalogue, "compose", selector={"name": "adaptive_clip"})
        assert record.status == "failed"
        assert "adapts the clip" in record.reason


# ---------------------------------------------------------------- who meets whom


def test_similar_budgets_meet_and_need_less_noise_than_a_draw(tiny, catalogue):
    tiny["privacy"]["epsilon"] = {"kind": "mixture", "values": [0.2, 8.0], "weights": [0.5, 0.5]}
    body = framed(tiny, unit="client")
    alike, drawn = (record_of(body, catalogue, use) for use in ("Similar-budgets", "DPSGD"))
    assert alike.status == "done", alike.reason
    np.testing.assert_array_equal(alike.clients["uses"], drawn.clients["uses"])
    assert alike.facts["why"]["variance"] < 0.7 * drawn.facts["why"]["variance"]
    assert (alike.clients["epsilon_spent"] >= drawn.clients["epsilon_spent"] * 0.999).all()


def test_cohorts_are_cut_from_a_circle_so_that_uses_differ_by_one_at_most():
    for n, size, horizon in ((10, 3, 7), (10, 10, 2), (7, 2, 11), (8, 4, 6)):
        found = along(np.arange(n), horizon, size, np.random.default_rng(0))
        assert found.shape == (horizon, size)
        assert all(len(set(row)) == size for row in found.tolist())
        assert np.ptp(np.bincount(found.ravel(), minlength=n)) <= 1


@pytest.mark.parametrize(
    ("cohorts", "text"),
    [
        (np.zeros((6, 4), dtype=int), "twice"),
        (np.arange(24).reshape(6, 4) % 7, "as often as"),
        (np.zeros((6, 3), dtype=int), r"\(6, 4\)"),
    ],
)
def test_cohorts_of_a_plan_must_be_cohorts(tiny, catalogue, cohorts, text):
    class Given:
        def plan(self, view, rng):
            return Plan(np.full(8, 3), 6, cohorts=cohorts)

    with pytest.raises(PluginError, match=text):
        final_state(world_of(tiny, catalogue, "DPSGD", algorithm={"selector": Given()}))


# ---------------------------------------------------------------- limits, forecasts, resumption


def test_noise_efficiency_of_sums_is_at_most_one_and_one_where_all_are_alike(tiny, catalogue):
    tiny["federation"]["cohort"] = 8
    tiny["privacy"]["epsilon"] = 2.0
    tiny["task"]["partition"] = {"kind": "iid"}
    for trust in ("central", {"kind": "secure_sum", "honest": 0.5}):
        record = record_of(framed(tiny, trust, "client"), catalogue, "DPSGD")
        assert record.facts["noise_efficiency"] == pytest.approx(1.0, rel=1e-6)
    tiny["federation"]["cohort"] = 4
    tiny["privacy"]["epsilon"] = {"kind": "uniform", "low": 0.5, "high": 4.0}
    for use in ("DPSGD", "WeiAvg", "Similar-budgets"):
        assert 0 < record_of(framed(tiny), catalogue, use).facts["noise_efficiency"] < 1
    poisson = record_of(framed(tiny, cohorts="poisson"), catalogue, "DPSGD")
    assert "noise_efficiency" not in poisson.facts


@pytest.mark.parametrize("cohorts", COHORTS)
def test_a_forecast_charges_what_a_run_will(tiny, catalogue, cohorts):
    body = framed(tiny, {"kind": "secure_sum", "honest": 0.5}, "client", cohorts)
    seen, record = forecast(assembly_of(body, catalogue, "DPSGD"), place()), record_of(body, catalogue, "DPSGD")
    spent = record.clients["epsilon_spent"]
    np.testing.assert_allclose(seen.epsilon, (spent.min(), np.median(spent), spent.max()))
    assert seen.variance == pytest.approx(record.facts["why"]["variance"], rel=1e-6)


@pytest.mark.parametrize("drawn", [[], [3], list(range(8))])
def test_a_forecast_knows_what_clients_pay_whom_no_coin_draws(tiny, catalogue, monkeypatch, drawn):
    body = framed(tiny, "central", "client", "poisson")
    spent = record_of(body, catalogue, "DPSGD").clients["epsilon_spent"]
    monkeypatch.setattr(simulate, "drawn_by_coins", lambda *_: np.array(drawn, dtype=np.int64))
    seen = forecast(assembly_of(body, catalogue, "DPSGD"), place())
    assert seen.unused == 8 - len(drawn)
    np.testing.assert_allclose(seen.epsilon, (spent.min(), np.median(spent), spent.max()))
    assert seen.scale[0] == seen.scale[2] > 0  # one noise for all, drawn or not


@pytest.mark.parametrize(
    ("use", "given", "cohorts"), [("IDP-FedAvg", {}, "poisson"), ("DP-FedAvg-central", {"clip": "adaptive"}, "exact")]
)
def test_a_run_goes_on_after_a_stop_as_if_there_had_been_none(tiny, catalogue, use, given, cohorts):
    def begun():
        return prepare(assembly_of(framed(tiny, unit="client", cohorts=cohorts), catalogue, use, **given), place())

    prepared, clock = begun(), Clock()
    states = rounds(prepared.world, initial_state(prepared.world, prepared.theta, prepared.phi), prepared.ledger, clock)
    for _ in range(3):
        state = next(states)
    data = pack("run", "cpu", prepared.world.streams, state, prepared.ledger, clock)
    fresh = begun()
    again, ledger, _ = unpack(data, "run", "cpu", fresh.world, fresh.ledger)
    *_, one = states
    *_, other = rounds(fresh.world, again, ledger)
    assert torch.equal(one.theta, other.theta)
    assert one.bounds == other.bounds
    assert ledger.digest() == prepared.ledger.digest()


# ---------------------------------------------------------------- verification


@pytest.fixture(scope="module")
def frames(blobs, catalogue):
    """Honest results in the new frames."""
    base = {
        "name": "frames",
        "task": {"dataset": {"name": "npz", "path": str(blobs)}, "model": "softmax", "partition": {"kind": "iid"},
                 "holdout": 0.2},
        "federation": {"clients": 8, "cohort": 4, "rounds": 6, "lr": {"initial": 0.5}},
        "privacy": {"mechanism": "gaussian", "clip": 1.0, "delta": 1e-5, "neighbours": "zero_out",
                    "epsilon": {"kind": "uniform", "low": 0.5, "high": 4.0}},
        "axes": {"privacy.trust": ["central", {"kind": "secure_sum", "honest": 0.5}], "privacy.unit": ["client"],
                 "federation.cohorts": ["exact", "poisson"]},
        "algorithms": ["FedSGD", "WeiAvg", "IDP-clipping", "Similar-budgets", "IDP-FedAvg",
                       {"use": "DP-FedAvg-central", "as": "adaptive", "with": {"clip": "adaptive"}}],
    }  # fmt: skip
    return results_of(normalise(base), catalogue)


def record_in(results, algorithm, **coordinates):
    """The record of a label at some coordinates."""
    for cell in results.manifest.cells:
        here = {path.rpartition(".")[2]: value for path, value in cell.coordinates.items()}
        if cell.algorithm == algorithm and cell.run and coordinates.items() <= here.items():
            return results.records[cell.run]
    raise KeyError(algorithm)


def test_honest_frames_have_no_findings_by_two_accountants_and_replay_to_the_bit(frames, catalogue):
    assert {r.status for r in frames.records.values()} == {"done"}
    findings = list(verify(frames, catalogue))
    assert [(f.label, f.problems, f.doubts) for f in findings if f.problems or f.doubts] == []
    assert all(len(f.accountants) == 2 for f in findings if frames.records[f.run].private)
    for use, cohorts in (("WeiAvg", "poisson"), ("adaptive", "exact"), ("FedSGD", "poisson")):
        assert replay(record_in(frames, use, cohorts=cohorts), catalogue).same


@pytest.mark.parametrize(
    ("use", "cohorts", "change", "text"),
    [
        ("WeiAvg", "exact", lambda e: {"sensitivity": e["sensitivity"] / 2, "scale": e["scale"] / 2}, "in one sum"),
        ("WeiAvg", "exact", lambda e: {"scale": e["scale"] * np.linspace(1, 1.1, len(e["scale"]))}, "several scales"),
        ("adaptive", "exact", lambda e: {"kind": np.minimum(e["kind"], 2)}, "takes part twice"),
        ("Similar-budgets", "exact", lambda e: {"client": (e["client"] + 1) % 8}, "not the cohorts it names"),
        ("IDP-FedAvg", "poisson", lambda e: {"rate": e["rate"][::-1].copy()}, "rates and key draw"),
        ("IDP-FedAvg", "poisson", lambda e: {"steps": e["steps"] - 1}, "not its cohorts"),
        ("IDP-FedAvg", "poisson", lambda e: {k: e[k] / 2 for k in ("sensitivity", "scale")}, "weight, clip"),
        ("IDP-FedAvg", "poisson", lambda e: {"scale": e["scale"] / 2}, "overspend"),
    ],
)  # fmt: skip
def test_what_was_changed_afterwards_is_found(frames, catalogue, use, cohorts, change, text):
    record = record_in(frames, use, cohorts=cohorts)
    forged = remade(replace(record, events={**record.events, **change(record.events)}))
    found = next(
        f
        for f in verify(replace(frames, records={**frames.records, record.id: forged}), catalogue)
        if f.run == record.id
    )
    assert any(text in p for p in found.problems), found.problems


def test_an_adaptive_clip_that_is_told_otherwise_is_found(frames, catalogue):
    record = record_in(frames, "adaptive", cohorts="exact")
    forged = replace(record, facts={**record.facts, "clip_bounds": record.facts["clip_bounds"] * 1.01})
    found = next(
        f
        for f in verify(replace(frames, records={**frames.records, record.id: forged}), catalogue)
        if f.run == record.id
    )
    assert any("in one sum" in p for p in found.problems)


def test_the_price_of_trust_is_a_line_for_each_way_to_trust(tiny, catalogue):
    from dpflbench.report.charts.trust import trust_chart, trust_names
    from dpflbench.report.view import view

    trusts = ["local", {"kind": "secure_sum", "honest": 0.5}, "central"]
    tiny |= {
        "axes": {"privacy.trust": trusts, "privacy.epsilon.high": [1.0, 4.0]},
        "algorithms": ["FedSGD", "DPSGD", "PFA"],
    }
    tiny["federation"]["rounds"] = 2
    shown = view(results_of(normalise(tiny), catalogue))
    chart = trust_chart(shown)
    assert [panel.title for panel in chart.panels] == ["DPSGD"]  # PFA has rows to look at under one trust alone
    assert {line.name for line in chart.panels[0].series} == set(trust_names(shown)) == {
        "local", "secure_sum (honest 0.5)", "central", "not private"
    }  # fmt: skip
    one = tiny | {"axes": {"privacy.epsilon.high": [1.0, 4.0]}, "algorithms": ["DPSGD"]}
    assert trust_chart(view(results_of(normalise(one), catalogue))) is None
