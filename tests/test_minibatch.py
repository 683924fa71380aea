"""Local training: Poisson batches, noise at every step, one row of the ledger a participation, and rules that see
nothing but noisy gradients.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from harness import Free, Silent, record_of, world_of
from hostile.local_updates import MISTAKES, DividesByTheBatch, HalfTheRate, NoiseAtTheLastStep, OneCoin
from test_information import InverseVariance

from dpflbench.draws import Draws
from dpflbench.errors import DpflbenchError, SuiteError
from dpflbench.federation.minibatch import Coins, Minibatch
from dpflbench.federation.simulate import initial_state, rounds
from dpflbench.judges.recount import recount
from dpflbench.planning import plan_suite
from dpflbench.suite_reading import check, normalise
from dpflbench.testing import ConformanceError, check_local_update
from dpflbench_algorithms.mechanisms import Gaussian

GAUSSIAN = Gaussian()


@pytest.fixture
def local(tiny):
    """The tiny suite with three local steps on batches of ten."""
    tiny["federation"] |= {"local": {"kind": "minibatch", "steps": 3, "batch": 10, "lr": 0.2}}
    return tiny


def played(prepared):
    world = prepared.world
    return list(rounds(world, initial_state(world, prepared.theta, prepared.phi), prepared.ledger))


# ---------------------------------------------------------------- what a participation is


def test_an_event_says_rate_steps_and_the_sensitivity_of_a_mean_over_the_expected_batch():
    """Batch 10 of 40 examples: rate 1/4, clip 2 over 10 is 0.2 when a record is emptied, 0.4 when it is replaced."""
    local, clip, size = Minibatch(lr=0.1, steps=7, batch=10), np.array([2.0, 2.0]), np.array([40, 5])
    event = local.event(GAUSSIAN, clip, size)
    np.testing.assert_allclose(event.rate, [0.25, 1.0])  # a client with fewer takes all it has
    np.testing.assert_array_equal(event.steps, [7, 7])
    np.testing.assert_allclose(event.sensitivity, [0.2, 0.4])
    assert event.neighbours == "zero_out"
    np.testing.assert_allclose(local.event(GAUSSIAN, clip, size, neighbours="replace").sensitivity, [0.4, 0.8])
    epochs = Minibatch(lr=0.1, epochs=2, batch=10).event(GAUSSIAN, clip, np.array([40, 45]))
    np.testing.assert_array_equal(epochs.steps, [8, 9])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "one of the two"),
        ({"steps": 3, "epochs": 1}, "one of the two"),
        ({"steps": 0}, "steps: 0; allowed: above 0"),
        ({"steps": 3, "lr": -1.0}, "lr: -1.0; allowed: above 0"),
        ({"steps": 3, "calibrate": "rate"}, "noise: None; calibrate: rate needs one"),
        ({"epochs": 1, "calibrate": "rate", "noise": 2.0}, "calibrate: rate needs steps"),
    ],
)
def test_settings_that_say_nothing_or_too_much_are_refused(given, message):
    with pytest.raises(DpflbenchError, match=message):
        Minibatch(**({"lr": 0.1} | given))


def test_a_batch_size_that_is_fixed_or_shuffled_has_no_key(local, catalogue):
    local["federation"]["local"]["sampling"] = "fixed"
    problems = []
    suite = check(normalise(local), "x", problems)
    with pytest.raises(SuiteError, match=r"federation\.local\.sampling: unknown"):
        plan_suite(suite, catalogue, None)


def test_laplace_noise_is_refused_with_the_reason(local, catalogue):
    local["privacy"]["mechanism"] = "laplace"
    suite = check(normalise(local | {"algorithms": ["WeiAvg"]}), "x", [])
    with pytest.raises(SuiteError, match="'rdp' has no proof for this: laplace noise; allowed: gaussian"):
        plan_suite(suite, catalogue, None)


def test_coins_fall_at_the_rate_and_anew_at_every_step(local, catalogue):
    world = world_of(local, catalogue, "DPSGD").world
    event = Minibatch(lr=0.1, steps=1, batch=10).event(GAUSSIAN, np.ones(8), world.setup.n_examples)

    class Work:
        shards, cohort, batches, theta = world.task.train, np.array([2, 5]), Draws(bytes(32)), torch.zeros(1)

    Work.event = event.of(Work.cohort)
    coins, sizes, seen = Coins(Work), world.setup.n_examples[Work.cohort], []
    for _ in range(400):
        rows, counts = coins.batch(np.arange(2))
        assert len(rows) == counts.sum()
        inside = (rows[: counts[0]] >= world.task.train.offsets[2]) & (rows[: counts[0]] < world.task.train.offsets[3])
        assert bool(inside.all())
        seen.append(counts)
    mean, rate = np.mean(seen, 0), Work.event.rate
    assert (np.abs(mean - rate * sizes) < 5 * np.sqrt(sizes * rate * (1 - rate) / 400)).all()
    assert np.std(seen, 0).min() > 0  # sizes vary: nobody fixed them


def test_a_rate_is_never_exceeded_by_a_coin():
    """A uniform number is an odd multiple of 2^-53: with the coin added, exactly floor(q 2^52) of them fall."""
    from dpflbench.federation.minibatch import COIN

    for rate in (2.0**-52, 3 * 2.0**-52, 0.3, 1.0):
        lowest, highest = 0.5 * 2.0**-52, 1 - 0.5 * 2.0**-52
        assert (lowest + COIN <= rate) == (rate >= 2.0**-52)
        assert (highest + COIN <= rate) == (rate == 1.0)


# ---------------------------------------------------------------- the ledger and its judges


def test_a_participation_is_one_row_with_rate_and_steps(local, catalogue):
    record = record_of(local, catalogue, "DPSGD")
    assert record.status == "done"
    np.testing.assert_array_equal(record.events["steps"], 3)
    size = record.clients["n_examples"][record.events["client"]]
    np.testing.assert_allclose(record.events["rate"], np.minimum(1, 10 / size))
    np.testing.assert_allclose(record.events["sensitivity"], 1.0 / np.minimum(10, size))
    assert len(record.events["client"]) == record.clients["uses"].sum()
    assert (record.clients["epsilon_spent"] <= record.clients["epsilon"]).all()
    assert (record.clients["epsilon_spent"] > 0.9 * record.clients["epsilon"]).all()


@pytest.mark.parametrize(
    ("use", "given"),
    [
        ("DPFL-BCS", {"probe_rounds": 2}),
        ("PRIVATEFL-BCS", {"probe_rounds": 2}),
        ("PRIVATEFL", {}),
        ("WeiAvg", {}),
        ("PFA", {}),
        ("Robust-HDP", {}),
        ("Power-of-choice", {}),
        ("IDP-clipping", {}),
        ("Uniform-minimum", {}),
        ("DP-FedAvg", {}),
        ("DP-FedProx", {}),
        ("DP-SCAFFOLD", {"warm_start": 1}),
        ("DP-MR-MTL", {}),
        ("DP-Ditto", {}),
        ("Local", {}),
        ("Fine-tuned", {}),
        ("FedAvg", {}),
    ],
)
def test_every_algorithm_runs_in_this_frame_and_passes_its_judges(local, catalogue, use, given):
    record = record_of(local, catalogue, use, **given)
    assert (record.status, record.reason) == ("done", "")
    found = recount(record, catalogue)
    assert found.problems == ()
    if record.private:
        assert (record.clients["epsilon_spent"] <= record.clients["epsilon"]).all()
        assert (found.accountants[0], found.accountants[1][:13]) == ("rdp", "dp-accounting")


def test_the_literal_probe_is_refused_with_the_reason(local, catalogue):
    record = record_of(local, catalogue, "DPFL-BCS", probe_rounds=2, probe="literal")
    assert record.status == "failed"
    assert "probe: received" in record.reason


@pytest.mark.parametrize(("column", "factor"), [("rate", 0.5), ("steps", 0.34), ("scale", 0.5)])
def test_a_tampered_rate_step_count_or_scale_is_red(local, catalogue, column, factor):
    """Whoever changes a column and pays the price of what it says now is found by what the suite says; whoever leaves
    the price, by that.
    """
    record = record_of(local, catalogue, "DPSGD")
    changed = np.asarray(np.maximum(record.events[column] * factor, 1e-9)).astype(record.events[column].dtype)
    events = {**record.events, column: changed}
    found = recount(replace(record, events=events), catalogue).problems
    assert any("a recorded cost is not that of its release" in p for p in found)
    if column == "scale":
        assert any("overspend by rdp" in p for p in found)
        assert any("overspend by dp-accounting" in p for p in found)
    else:
        assert any(f"gradient {column}" in p for p in found)


def test_ditto_pays_for_two_passes_and_a_record_that_says_one_is_red(local, catalogue):
    once, twice = (record_of(local, catalogue, use) for use in ("DP-FedAvg", "DP-Ditto"))
    np.testing.assert_array_equal(twice.events["steps"], 6)
    assert (twice.events["scale"] > once.events["scale"]).all()
    found = recount(replace(twice, events={**twice.events, "steps": once.events["steps"]}), catalogue).problems
    assert any("gradient steps 3" in p for p in found)


def test_the_noise_of_a_message_falls_with_its_steps(local, catalogue):
    """A message is the mean of three noisy steps: a third of the variance of one."""
    world = world_of(local, catalogue, "DPSGD")
    state = played(world)[-1]
    calibration = state.planned[1]
    np.testing.assert_allclose(calibration.variance(GAUSSIAN), calibration.message.scale**2 / 3)


def test_weights_by_inverse_variance_are_shown_the_noise_of_a_message_and_not_of_a_step(local, catalogue):
    seen = []

    class Weighing(InverseVariance):
        def weights(self, cohort):
            seen.append(cohort.variance)
            return super().weights(cohort)

    state = played(world_of(local, catalogue, "DP-FedAvg", algorithm={"aggregator": Weighing()}))[-1]
    each = state.planned[1].message.scale ** 2 / 3
    assert bool(state.theta.isfinite().all())
    assert all(np.isclose(v, each, rtol=1e-5).any() for row in seen for v in row.tolist())


# ---------------------------------------------------------------- arithmetic


def quiet(body, catalogue, use, **algorithm):
    """The states of a run whose noise is silenced and whose clip is far."""
    return played(world_of(body, catalogue, use, algorithm=algorithm, mechanism=Silent(), accountant=Free(), clip=1e6))


def whole(local, steps=1, **rest):
    """Batches of everything a client has: nothing is left to chance."""
    local["federation"]["local"] = {"kind": "minibatch", "steps": steps, "batch": 10**6, "lr": 0.2, **rest}
    return local


def test_one_step_on_everything_without_noise_is_the_full_step(tiny, catalogue):
    full = quiet(dict(tiny), catalogue, "DPSGD")[-1]
    local = quiet(whole(tiny), catalogue, "DPSGD")[-1]
    torch.testing.assert_close(local.theta, full.theta, rtol=1e-4, atol=1e-6)


def test_several_steps_are_a_client_s_own_gradient_descent(tiny, catalogue):
    """One client, one round, three steps of 0.2 by hand: theta moves by lr / (0.2 * 3) times what the client did."""
    tiny["federation"] |= {"rounds": 1, "cohort": 8}
    prepared = world_of(whole(tiny, 3), catalogue, "DPSGD", mechanism=Silent(), accountant=Free(), clip=1e6)
    world, theta = prepared.world, prepared.theta
    ends = []
    for n in range(8):
        y = theta.clone()
        for _ in range(3):
            sums = world.engine.clipped_sums(y, prepared.phi[:1], world.task.train, np.array([n]), None)
            y = y - 0.2 * (sums.theta[0] / world.task.train.sizes[n]).float()
        ends.append(y)
    expected = theta - world.setup.lr(0) * ((theta - torch.stack(ends)) / 0.6).mean(0)
    torch.testing.assert_close(played(prepared)[-1].theta, expected, rtol=1e-4, atol=1e-6)


def test_clients_with_fewer_steps_stand_still_at_the_end(tiny, catalogue):
    """Epochs give sizes their own steps; a client's message does not depend on who is with it."""
    tiny["task"]["partition"] = {"kind": "power_law", "exponent": 1.0}
    tiny["federation"] |= {"local": {"kind": "minibatch", "epochs": 1, "batch": 10, "lr": 0.2}, "rounds": 2}
    record = record_of(tiny, catalogue, "DPSGD")
    assert record.status == "done"
    steps = np.maximum(1, np.ceil(record.clients["n_examples"] / 10))
    np.testing.assert_array_equal(record.events["steps"], steps[record.events["client"]])
    assert len(np.unique(record.events["steps"])) > 1


def test_a_rule_that_does_nothing_is_plain(local, catalogue):
    from dpflbench_algorithms.dp_fedprox import Prox
    from dpflbench_algorithms.dp_scaffold import Scaffold

    plain = played(world_of(local, catalogue, "DP-FedAvg"))[-1]
    for rule in (Prox(0.0), Scaffold(warm_start=100)):
        other = played(world_of(local, catalogue, "DP-FedAvg", algorithm={"rule": rule}))[-1]
        torch.testing.assert_close(other.theta, plain.theta, rtol=0, atol=0)


def test_a_strong_pull_keeps_clients_at_the_received_model(tiny, catalogue):
    from dpflbench_algorithms.dp_fedprox import Prox

    free, held = (quiet(whole(tiny, 10), catalogue, "DP-FedAvg", rule=Prox(mu))[0] for mu in (0.0, 4.0))
    start = world_of(whole(tiny, 10), catalogue, "DP-FedAvg").theta
    assert torch.norm(held.theta - start) < 0.5 * torch.norm(free.theta - start)


def test_scaffold_keeps_the_last_mean_gradient_and_the_server_their_mean(tiny, catalogue):
    tiny["federation"] |= {"cohort": 8, "rounds": 1}
    state = quiet(whole(tiny, 2), catalogue, "DP-SCAFFOLD")[-1]
    control = state.own["control"]
    torch.testing.assert_close(state.shared, control.mean(0), rtol=1e-4, atol=1e-6)
    assert bool((control != 0).any(1).all())


def test_mean_regularised_models_without_a_pull_are_local_ones(local, catalogue):
    from dpflbench_algorithms.dp_mr_mtl import MeanRegularised
    from dpflbench_algorithms.local_training import LocalOnly

    rules = {"alone": LocalOnly(), "free": MeanRegularised(0.0)}
    ends = {k: played(world_of(local, catalogue, "DP-FedAvg", algorithm={"rule": v}))[-1] for k, v in rules.items()}
    alone, free = ends["alone"], ends["free"]
    torch.testing.assert_close(free.own["model"], alone.own["model"], rtol=0, atol=0)
    torch.testing.assert_close(alone.theta, world_of(local, catalogue, "Local").theta)  # nobody heard of anything


def test_the_server_s_model_is_the_mean_of_mean_regularised_ones_whatever_the_rates(local, catalogue):
    prepared = world_of(local, catalogue, "DP-MR-MTL")
    world, ledger = prepared.world, prepared.ledger
    before = initial_state(world, prepared.theta, prepared.phi)
    after = next(rounds(world, before, ledger))
    went = torch.as_tensor(np.flatnonzero(after.used))
    torch.testing.assert_close(after.theta, after.own["model"][went].mean(0), rtol=1e-4, atol=1e-5)


def test_personal_models_are_judged_on_their_own_clients(local, catalogue):
    record = record_of(local, catalogue, "Local")
    assert record.final["utility_personal"] != record.final["utility_shared"]
    plain = record_of(local, catalogue, "DP-FedAvg")
    assert plain.final["utility_personal"] == plain.final["utility_shared"]


def test_rules_see_noisy_gradients_models_and_their_own_rows_only(local, catalogue):
    """Nothing a rule is handed holds an example, an engine or a stream."""
    from dpflbench.interfaces import Plain

    seen = []

    class Curious(Plain):
        def direction(self, noisy, model, visit):
            seen.append((type(noisy), type(model), {f: type(getattr(visit, f)).__name__ for f in visit.__slots__}))
            return noisy

    played(world_of(local, catalogue, "DP-FedAvg", algorithm={"rule": Curious()}))
    kinds = {name for _, _, fields in seen for name in fields.values()}
    assert kinds <= {"int", "float", "Tensor", "NoneType", "dict"}


def test_a_rule_of_its_own_is_refused_where_clients_take_one_full_step(tiny, catalogue):
    suite = check(normalise(tiny | {"algorithms": ["DPSGD", "DP-SCAFFOLD"]}), "x", [])
    with pytest.raises(SuiteError, match=r"algorithms\[1\]: DP-SCAFFOLD trains at clients, and here they take one"):
        plan_suite(suite, catalogue, None)
    axes = {"federation.local": [{"kind": "full_step"}, {"kind": "minibatch", "steps": 2, "lr": 0.1}]}
    tiny["privacy"]["neighbours"] = "zero_out"
    suite = check(normalise(tiny | {"algorithms": ["DPSGD", "DP-SCAFFOLD"], "axes": axes}), "x", [])
    cells = plan_suite(suite, catalogue, None).manifest.cells
    assert [c.reason[:11] for c in cells if c.run is None] == ["DP-SCAFFOLD"]
    assert {c.algorithm for c in cells} == {"DPSGD", "DP-SCAFFOLD"}  # one name in both frames


def test_a_table_of_local_training_calls_things_by_their_names(local, catalogue):
    entries = ["FedSGD", "DPSGD", {"use": "DPSGD", "as": "mine"}, {"use": "FedSGD", "with": {"clip": True}}]
    body = local | {"algorithms": entries, "report": {"baseline": "DPSGD"}}
    planned = plan_suite(check(normalise(body), "x", []), catalogue, None)
    assert [c.algorithm for c in planned.manifest.cells] == ["FedAvg", "DP-FedAvg", "mine", "FedAvg(clip=True)"]
    assert planned.manifest.suite["report"]["baseline"] == "DP-FedAvg"


def test_more_releases_than_were_paid_for_are_refused(local, catalogue):
    class Greedy(Minibatch):
        def compute(self, work, protect):
            protect(torch.zeros(len(work.cohort), work.theta.numel(), dtype=torch.float64))
            return super().compute(work, protect)

    prepared = world_of(local, catalogue, "DPSGD")
    greedy = Greedy(lr=0.2, steps=3, batch=10)
    world = replace(prepared.world, setup=replace(prepared.world.setup, local=greedy))
    with pytest.raises(DpflbenchError, match="a release more than the 3 that were paid for"):
        played(replace(prepared, world=world))


# ---------------------------------------------------------------- samples instead of noise


def test_rates_meet_budgets_where_noise_is_the_same_for_all(local, catalogue):
    local["federation"]["local"] |= {"calibrate": "rate", "noise": 6.0}
    record = record_of(local, catalogue, "DPSGD")
    assert record.status == "done", record.reason
    rate = np.zeros(8)
    rate[record.events["client"]] = record.events["rate"]
    np.testing.assert_allclose(record.events["scale"] / record.events["sensitivity"], 6.0)
    order = np.argsort(record.clients["epsilon"])
    assert (np.diff(rate[order]) >= 0).all()  # equal deltas and uses: who may spend more draws more
    assert rate.min() < rate.max()
    assert (record.clients["epsilon_spent"] <= record.clients["epsilon"]).all()
    assert (record.clients["epsilon_spent"] > 0.9 * record.clients["epsilon"])[rate < 1].all()
    assert recount(record, catalogue).problems == ()
    less = np.where(record.events["client"] == record.events["client"][0], 0.5, 1.0)
    for changes, name in (({"rate": less}, "sensitivity"), ({"rate": less, "sensitivity": 1 / less}, "scale")):
        tampered = {column: record.events[column] * factor for column, factor in changes.items()}
        found = recount(replace(record, events={**record.events, **tampered}), catalogue).problems
        assert any(f"gradient {name}" in p for p in found)


@pytest.mark.parametrize("use", ["DPFL-BCS", "Power-of-choice", "IDP-clipping", "Uniform-minimum", "DP-Ditto"])
def test_selectors_that_look_at_noise_plan_with_rates_too(local, catalogue, use):
    local["federation"]["local"] |= {"calibrate": "rate", "noise": 6.0}
    record = record_of(local, catalogue, use, **({"probe_rounds": 2} if use == "DPFL-BCS" else {}))
    assert (record.status, record.reason) == ("done", "")
    assert recount(record, catalogue).problems == ()
    if use == "IDP-clipping":  # one noise in every message, and as many records as budgets allow
        np.testing.assert_allclose(record.events["scale"], record.events["scale"][0])


def test_without_privacy_nothing_is_calibrated_and_batches_are_as_asked(local, catalogue):
    local["federation"]["local"] |= {"calibrate": "rate", "noise": 6.0}
    record = record_of(local, catalogue, "FedAvg")
    assert record.status == "done", record.reason


def test_too_little_noise_for_any_rate_ends_with_the_client_and_the_reason(local, catalogue):
    local["federation"]["local"] |= {"calibrate": "rate", "noise": 0.05}
    record = record_of(local, catalogue, "DPSGD")
    assert record.status == "failed"
    assert "allowed: more noise, fewer steps or calibrate: noise" in record.reason


def test_an_accountant_that_cannot_calibrate_rates_says_so(local, catalogue):
    local["federation"]["local"] |= {"calibrate": "rate", "noise": 6.0}
    local["privacy"]["mechanism"] = {"name": "gaussian", "accountant": "pld"}
    assert "rates cannot" in record_of(local, catalogue, "DPSGD").reason


def test_replaced_records_are_accounted_by_pld(local, catalogue):
    local["privacy"] |= {"neighbours": "replace", "mechanism": {"name": "gaussian", "accountant": "pld"}}
    local["privacy"]["epsilon"] = 2.0
    record = record_of(local, catalogue, "DPSGD")
    assert record.status == "done", record.reason
    assert [p for p in recount(record, catalogue).problems if "run id" not in p] == []


# ---------------------------------------------------------------- the mistakes of others


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (HalfTheRate, "takes part in 0.5"),
        (NoiseAtTheLastStep, "not made of what protect returned"),
        (DividesByTheBatch, "one example moves a release by"),
        (OneCoin, "one batch for all steps"),
    ],
)
def test_the_kit_finds_the_four_mistakes_of_sampled_training(mistake, message):
    with pytest.raises(ConformanceError, match=message):
        check_local_update(mistake(lr=0.1, steps=3, batch=4))


def test_the_kit_passes_honest_sampled_training():
    check_local_update(Minibatch(lr=0.1, steps=3, batch=4))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistaken_local_update_runs_like_an_honest_one(local, catalogue, mistake):
    """Nothing in a ledger gives it away: an audit has something to find."""
    prepared = world_of(local, catalogue, "DPSGD")
    setup = replace(prepared.world.setup, local=mistake(lr=0.2, steps=3, batch=10))
    state = played(replace(prepared, world=replace(prepared.world, setup=setup)))[-1]
    assert state.round == setup.rounds
    assert (prepared.ledger.epsilon_spent() <= setup.epsilon).all()
