"""DPFL-BCS: plans worked by hand, laws of the two stages, estimators, literal options."""

import math
from dataclasses import replace

import numpy as np
import pytest
from algorithm_setups import losses, setup, view

from dpflbench.errors import DpflbenchError, RunEnded
from dpflbench.federation.calibration import calibrate
from dpflbench.federation.local import FullStep, Minibatch
from dpflbench.federation.schedule import check_plan
from dpflbench.interfaces import LearningRate, Plan
from dpflbench.privacy.sensitivity import gradient_sensitivity
from dpflbench_algorithms.bcs import BiasedSelection, dpfl_bcs, noise_energy, noise_growth, noise_price, proposition_1
from dpflbench_algorithms.bcs_estimates import (
    alternating_fit,
    convergence_bound,
    last_losses,
    schedule_constants,
    selection_skew,
    shrunk_excess,
    smallest_drop,
)
from dpflbench_algorithms.bcs_solver import Growth, Programme, solve
from dpflbench_algorithms.sampled_accountants import Renyi

RNG = np.random.default_rng


def checked(plan, facts, rounds_left=None):
    check_plan(
        plan,
        n_clients=facts.n_clients,
        cohort_size=facts.cohort_size,
        rounds_left=rounds_left or facts.rounds,
        who="BCS",
    )
    return plan


def both_stages(selector, facts, seen=None, seed=0):
    """Plan stage 1, spend it, plan stage 2."""
    first = checked(selector.plan(view(facts), RNG(seed)), facts)
    left = (facts.budget - first.uses[:, None] * first.cost)[:, 0]
    after = view(facts, round=first.horizon, used=first.uses, left=left, seen=seen)
    return first, checked(selector.plan(after, RNG(seed + 1)), facts, after.rounds_left)


# ---------------------------------------------------------------- worked by hand


def test_gaussian_uses_are_proportional_to_size_and_mu_squared():
    # Φ_n = 1 / (D_n² μ_n²): shares 100²·1, 100²·4, 200²·1 = 1 : 4 : 4 of 1 · 45
    plan = BiasedSelection(heterogeneity="zero").plan(
        view(setup([1, 4, 1], rounds=45, n_examples=[100, 100, 200])), RNG(0)
    )
    assert plan.uses.tolist() == [5, 20, 20]
    assert plan.horizon == 45
    assert plan.probe is None


def test_laplace_uses_are_proportional_to_size_and_epsilon():
    facts = setup([1, 4, 1], mechanism="laplace", rounds=35, n_examples=[100, 100, 200])
    assert BiasedSelection(heterogeneity="zero").plan(view(facts), RNG(0)).uses.tolist() == [5, 20, 10]


def test_the_noise_price_is_the_paper_s_lemma():
    # Gaussian: 4 B² d / (D² μ²) = 4·9·4 / (100²·0.25); Laplace: 8 B² d / (D² ε²)
    gauss, laplace = setup([0.25], clip=3.0), setup([0.5], clip=3.0, mechanism="laplace")
    assert noise_price(gauss, gauss.budget) == pytest.approx([144 / 2500], rel=1e-6)
    assert noise_price(laplace, laplace.budget) == pytest.approx([288 / 2500], rel=1e-6)
    # T uses: Lemma 1 grows with T, Lemma 2 with T²
    assert noise_energy(gauss, gauss.budget / 40) == pytest.approx([40 * 144 / 2500], rel=1e-6)
    assert noise_energy(laplace, laplace.budget / 40) == pytest.approx([1600 * 288 / 2500], rel=1e-6)
    # a joint message has sensitivity 2 (B + Θ) / D: with Θ = B four times the energy
    assert noise_energy(gauss, gauss.budget, loss_bound=3.0) == pytest.approx([4 * 144 / 2500], rel=1e-6)


@pytest.mark.parametrize(
    ("lr", "gamma", "mu", "smoothness"),
    [((0.02, 200.0), 200, 0.5, 12.5), ((0.05, 200.0), 200, 0.2, 5.0), ((0.2, 100.0), 100, 0.1, 1.25)],
)
def test_the_learning_rates_of_the_paper_fix_its_constants(lr, gamma, mu, smoothness):
    found = schedule_constants(LearningRate(*lr))
    assert (found.gamma, found.strong_convexity, found.smoothness) == pytest.approx((gamma, mu, smoothness))
    for t in (0, 10, 199):
        assert LearningRate(*lr)(t) == pytest.approx(2 / (mu * (t + gamma)))
    assert found.gamma == pytest.approx(8 * found.smoothness / found.strong_convexity)


def test_heterogeneity_weighs_as_the_ratio_of_omegas_says():
    # MNIST: K (L + 3 μ (γ + T) / 8) = 20 (5 + 3·0.2·400/8) = 700
    constants = schedule_constants(LearningRate(0.05, 200.0))
    assert constants.bias_weight(20, 200) == pytest.approx(700)
    n, t, k, big = 200.0, 200, 20, 7.0
    omega_a = 4 * 5 * big / ((n + t) * t * k**2 * 0.2**2)
    omega_b = 4 * 25 / ((n + t) * t * k * 0.2**2) + 3 * 5 / (2 * t * k * 0.2)
    assert constants.bias_weight(20, 200) == pytest.approx(big * omega_b / omega_a)


def test_a_constant_learning_rate_has_a_finite_weight():
    # the limit b → inf of K/(4a) + 3K/(4a) (1 + T/b)
    assert schedule_constants(LearningRate(0.5)).bias_weight(2, 100) == pytest.approx(2 / 0.5)
    assert schedule_constants(LearningRate(0.5, 1e12)).bias_weight(2, 100) == pytest.approx(2 / 0.5)


def test_heterogeneity_moves_uses_away_from_its_client():
    # two equal clients with ΛΦ = 4·4 / (100²·1) = 0.0016: at the optimum 0.0032 x + weight Γ_0 = 0.0032 y, x + y = 40
    chosen = BiasedSelection(
        probe_rounds=2, heterogeneity="paper", constants="given", gamma=10.0, smoothness=0.01, strong_convexity=1e-9
    )
    facts = setup([1, 1], rounds=42)
    seen = losses([(0, 0, 1.5, 1.0), (1, 0, 1.3, 0.9), (0, 1, 2.0, 2.0)])
    after = view(facts, round=2, used=[1, 1], seen=seen)
    plan = chosen.plan(after, RNG(0))
    # Γ = (0.4, 0) and weight 0.01: y - x = 0.01·0.4 / 0.0032 = 1.25, so x = 19.375
    assert plan.notes["heterogeneity"] == pytest.approx([0.4, 0.0])
    assert plan.notes["bias_weight"] == pytest.approx(0.01, rel=1e-5)
    assert plan.uses.tolist() == [19, 21]


# ---------------------------------------------------------------- laws


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "linear"])
def test_interchangeable_clients_get_equal_uses_in_both_stages(mechanism):
    facts = setup(np.full(10, 0.7), mechanism=mechanism, cohort=3, rounds=50, delta=np.full(10, 1e-5))
    seen = losses([(t, n, 2.0) for t in range(10) for n in range(10)])
    first, second = both_stages(BiasedSelection(probe_rounds=10), facts, seen)
    assert first.notes["planned"].tolist() == [15] * 10
    assert first.uses.tolist() == [3] * 10
    assert second.uses.tolist() == [12] * 10


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_without_heterogeneity_two_stages_make_the_plan_of_proposition_1(mechanism):
    rng = RNG(5)
    facts = setup(
        rng.uniform(0.1, 3.0, 40), mechanism=mechanism, cohort=8, rounds=200, n_examples=rng.integers(200, 900, 40)
    )
    one = BiasedSelection(heterogeneity="zero").plan(view(facts), RNG(0)).uses
    first, second = both_stages(BiasedSelection(), facts, losses([(0, 0, 1.0), (0, 1, 1.0)]))
    assert np.array_equal(first.notes["planned"], one)
    assert np.abs(first.uses + second.uses - one).max() <= 1  # whole numbers are rounded twice


def test_stage_one_makes_its_share_of_the_plan_and_never_more():
    rng = RNG(1)
    facts = setup(rng.uniform(1e-4, 3.0, 100) ** 2, cohort=20, rounds=200, n_examples=rng.integers(50, 900, 100))
    total = np.zeros(100)
    for seed in range(400):
        plan = checked(BiasedSelection().plan(view(facts), RNG(seed)), facts)
        assert plan.horizon == 10
        assert int(plan.uses.sum()) == 200
        assert (plan.uses <= plan.notes["planned"]).all()
        total += plan.uses
    expected = plan.notes["planned"] * 10 / 200
    assert total / 400 == pytest.approx(expected, abs=0.12)  # a mean of 400 roundings has a deviation of 0.025 at most
    assert int(plan.notes["planned"].sum()) == 4000
    assert plan.notes["planned"].max() <= 200
    unused = plan.notes["planned"] == 0
    assert unused.any()
    assert (plan.cost[unused] == 0).all()


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "linear"])
def test_both_stages_together_spend_no_more_than_every_budget(mechanism):
    rng = RNG(2)
    facts = setup(
        rng.uniform(0.01, 3.0, 60),
        mechanism=mechanism,
        cohort=12,
        rounds=60,
        n_examples=rng.integers(5, 900, 60),
        delta=np.full(60, 1e-5),
    )
    seen = losses([(t, n, rng.normal()) for t in range(10) for n in rng.permutation(60)[:12]], variance=0.1)
    first, second = both_stages(BiasedSelection(), facts, seen)
    left = facts.budget - first.uses[:, None] * first.cost
    cost = facts.accountant.per_use(left, second.uses.astype(float), facts.epsilon, facts.delta)
    assert (first.uses[:, None] * first.cost + second.uses[:, None] * cost <= facts.budget * (1 + 1e-12)).all()
    if mechanism != "linear":  # whoever is still used spends all
        used = second.uses > 0
        assert (first.uses[:, None] * first.cost + second.uses[:, None] * cost)[used] == pytest.approx(
            facts.budget[used]
        )


def test_whoever_spent_everything_in_stage_one_is_not_used_again():
    facts = setup([1, 1, 1, 1], cohort=2, rounds=20)
    after = view(
        facts, round=10, used=[10, 10, 0, 0], left=[0.0, 1e-7, 1.0, 1.0], seen=losses([(0, 0, 1.0), (0, 1, 5.0)])
    )
    assert BiasedSelection().plan(after, RNG(0)).uses.tolist() == [0, 0, 10, 10]


def test_too_few_clients_with_budget_end_the_run_with_the_numbers():
    facts = setup([1, 1, 1], cohort=2, rounds=20)
    with pytest.raises(RunEnded, match="20 participations are wanted; the 1 clients with budget left allow 10"):
        BiasedSelection().plan(view(facts, round=10, left=[0.0, 0.0, 1.0], seen=losses([(0, 0, 1.0)])), RNG(0))


def test_a_client_is_never_used_more_often_than_there_are_rounds():
    plan = BiasedSelection(heterogeneity="zero").plan(view(setup([1e6, 1, 1], cohort=2, rounds=10)), RNG(0))
    assert plan.uses.tolist() == [10, 5, 5]


def test_the_transform_s_coordinates_are_noised_too():
    wide = setup([1.0], phi_dim=12)
    assert noise_price(wide, wide.budget) == pytest.approx(4 * noise_price(setup([1.0]), wide.budget))


# ---------------------------------------------------------------- probes and refusals


def test_the_default_probe_asks_only_for_the_loss_at_the_received_model():
    probe = BiasedSelection().plan(view(setup([1, 1], rounds=20)), RNG(0)).probe
    assert (probe.loss_bound, probe.share, probe.after_step, probe.joint) == (math.log(10), 0.05, False, False)


def test_the_literal_probe_asks_for_both_losses_in_one_message():
    probe = BiasedSelection(probe="literal", loss_bound=2.0).plan(view(setup([1, 1], rounds=20)), RNG(0)).probe
    assert (probe.loss_bound, probe.after_step, probe.joint) == (2.0, True, True)


def test_the_paper_s_heterogeneity_asks_for_the_loss_after_the_step():
    probe = BiasedSelection(heterogeneity="paper").plan(view(setup([1, 1], rounds=20)), RNG(0)).probe
    assert (probe.after_step, probe.joint) == (True, False)


def test_regression_needs_a_loss_bound_unless_no_loss_is_asked_for():
    facts = setup([1, 1], rounds=20, classes=0)
    with pytest.raises(DpflbenchError, match="loss_bound is missing"):
        BiasedSelection().plan(view(facts), RNG(0))
    assert BiasedSelection(heterogeneity="zero").plan(view(facts), RNG(0)).uses.tolist() == [10, 10]
    assert BiasedSelection(loss_bound=150.0).plan(view(facts), RNG(0)).probe.loss_bound == 150.0


def test_a_probe_as_long_as_the_run_is_no_probe():
    plan = BiasedSelection(probe_rounds=10).plan(view(setup([1, 1], rounds=10)), RNG(0))
    assert plan.probe is None
    assert plan.horizon == 10


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"probe_rounds": -1}, "probe_rounds: found -1"),
        ({"probe_share": 1.0}, "probe_share: found 1.0"),
        ({"loss_bound": 0.0}, "loss_bound: found 0.0"),
        ({"constants": "given", "gamma": 1.0}, "smoothness: missing"),
    ],
)
def test_wrong_parameters_are_refused_by_name(wrong, message):
    with pytest.raises(DpflbenchError, match=message):
        dpfl_bcs(**wrong)


def test_given_constants_are_used_and_recorded():
    facts = setup([1, 1], rounds=20)
    chosen = BiasedSelection(constants="given", gamma=1.96, smoothness=5.514, strong_convexity=4.986)
    notes = chosen.plan(view(facts, round=10, seen=losses([(0, 0, 1.0), (0, 1, 1.0)])), RNG(0)).notes
    assert (notes["gamma"], notes["smoothness"], notes["strong_convexity"], notes["rho_min"]) == (
        1.96,
        5.514,
        4.986,
        1.0,
    )


def test_cvxpy_plans_as_the_exact_solver_does():
    rng = RNG(9)
    facts = setup(rng.uniform(0.1, 3.0, 30), cohort=6, rounds=100, n_examples=rng.integers(100, 900, 30))
    seen = losses([(t, n, rng.uniform(0, 30)) for t in range(10) for n in rng.permutation(30)[:6]], variance=1e-3)
    at = view(facts, round=10, seen=seen)
    exact, other = (BiasedSelection(solver=s).plan(at, RNG(0)) for s in ("exact", "cvxpy"))
    assert other.notes["objective"] == pytest.approx(exact.notes["objective"], rel=1e-3)
    assert exact.notes["objective"] <= other.notes["objective"]
    assert np.abs(exact.uses - other.uses).max() <= 1


# ---------------------------------------------------------------- estimators


def test_shrunk_heterogeneity_by_hand():
    # round mean 2; excess 1, -1; scatter 2, one degree of freedom, so τ² = (2 - 1) / (2 - 2/2) = 1 and half of the
    # excess stays
    assert shrunk_excess(losses([(0, 0, 3.0), (0, 1, 1.0)]), 3) == pytest.approx([0.5, 0.0, 0.25])


def test_heterogeneity_that_noise_explains_is_shrunk_away():
    assert shrunk_excess(losses([(0, 0, 2.5), (0, 1, 1.9)]), 2).tolist() == [0.0, 0.0]
    assert shrunk_excess(losses([(0, 0, 3.0), (0, 1, 1.0)], variance=1e-9), 2) == pytest.approx([1.0, 0.0])


def test_a_noisy_client_is_shrunk_more_than_a_clear_one():
    found = shrunk_excess(
        losses([(0, 0, 3.0), (0, 1, 3.0), (0, 2, 1.0), (0, 3, 1.0)], variance=[0.01, 1.0, 0.01, 0.01]), 4
    )
    assert 0 < found[1] < found[0]


def test_losses_without_noise_or_without_rows_have_an_estimate():
    assert shrunk_excess(losses([(0, 0, 3.0), (0, 1, 1.0)], variance=0.0), 2)[0] > 0
    assert shrunk_excess(losses(), 2).tolist() == [0.0, 0.0]
    assert smallest_drop(losses(), 2).tolist() == [0.0, 0.0]
    assert shrunk_excess(losses([(0, 1, 3.0)]), 2).tolist() == [0.0, 0.0]


def test_the_paper_s_heterogeneity_is_the_smallest_drop_seen():
    seen = losses([(0, 0, 2.0, 1.0), (1, 0, 1.0, 1.25), (0, 1, 3.0, 2.0)])
    assert smallest_drop(seen, 3) == pytest.approx([0.25, 1.0, 0.625])


def test_selection_skew_by_hand():
    # client 0 seen twice, last loss 3; client 1 once, loss 1: (2·3 + 1) / (3 · 2)
    seen = losses([(1, 0, 3.0), (0, 0, 9.0), (0, 1, 1.0)])
    assert last_losses(seen, 3)[:2].tolist() == [3.0, 1.0]
    assert selection_skew(seen, 3) == pytest.approx(7 / 6)
    assert selection_skew(losses([(0, 0, -1.0)]), 1) == 1.0


def test_the_bound_has_the_terms_of_p1():
    # T = 2, K = 1, uses (2, 0): only Γ_0 = 3 counts; noise 5, ρ = 1 and N = 2 leave (1 - 1/2)·3
    bound = convergence_bound(np.array([3.0, 0.0]), np.array([2, 0]), 5.0, 1.0, 2)
    distance, gamma, variance, smooth, convex = 7.0, 6.0, 11.0, 2.0, 0.5
    by_hand = (
        smooth * gamma * distance / 2 / (gamma + 2)
        + 4 * smooth * variance / ((gamma + 2) * convex**2)
        + 4 * smooth**2 / ((gamma + 2) * 2 * convex**2) * 6
        + 4 * smooth * 5.0 / ((gamma + 2) * 2 * convex**2)
        + 3 * smooth / (2 * convex) * 1.5
    )
    assert bound(np.array([distance, gamma, variance, smooth, convex])) == pytest.approx(by_hand)


def test_the_alternating_fit_closes_the_gap_and_keeps_where_it_started():
    facts = setup([1, 2, 3], rounds=20)
    chosen = BiasedSelection(constants="p2", probe_rounds=4)
    seen = losses([(t, t % 3, 2.0 + t % 3) for t in range(4)], variance=0.01)
    notes = chosen.plan(view(facts, round=4, used=[2, 1, 1], seen=seen), RNG(0)).notes
    assert notes["p2_start"].tolist() == pytest.approx([1.0, 200.0, 1.0, 5.0, 0.2])
    assert notes["p2_residual"] < 1e-6
    assert (notes["gamma"], notes["smoothness"], notes["strong_convexity"]) == tuple(notes["p2_fit"][[1, 3, 4]])


def test_one_equation_in_five_unknowns_is_solved_by_the_first_of_them():
    point, residual = alternating_fit(10.0, lambda x: float(x[0] + x[1]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert point == pytest.approx([8.0, 2.0, 3.0, 4.0, 5.0], rel=1e-6)
    assert residual < 1e-6


def test_a_fit_from_a_constant_learning_rate_starts_from_finite_numbers():
    facts = setup([1, 1], rounds=20, lr=(0.5,))
    after = view(facts, round=10, used=[5, 5], seen=losses([(0, 0, 1.0), (0, 1, 2.0)]))
    notes = BiasedSelection(constants="p2").plan(after, RNG(0)).notes
    assert notes["p2_start"].tolist() == [1.0, 20.0, 1.0, 0.5, 0.2]
    assert np.isfinite(notes["p2_fit"]).all()


# ---------------------------------------------------------------- an accountant whose noise follows no power of uses


class Sampled(FullStep):
    """Ten steps on a twentieth of a client's examples, as an event alone."""

    neighbours = "zero_out"

    def event(self, mechanism, clip_norm, n_examples, loss_bound=0.0, neighbours="zero_out", rate=None):
        return mechanism.event(
            "gradient", 20.0 * gradient_sensitivity(clip_norm, n_examples, neighbours), 0.05, 10, neighbours
        )


def sampled(epsilon, **rest):
    epsilon = np.asarray(epsilon, dtype=np.float64)
    return setup(
        epsilon, epsilon=epsilon, delta=np.full(len(epsilon), 1e-5), local=Sampled(), accountant=Renyi(), **rest
    )


def energy(facts, uses):
    """Σ over all messages of E‖Z‖² by the accountant itself, without any table."""
    cost = facts.accountant.per_use(facts.budget, uses.astype(float), facts.epsilon, facts.delta)
    return float(np.sum(uses[uses > 0] * noise_energy(facts, cost)[uses > 0]))


def test_under_rdp_a_full_release_is_planned_like_under_gaussian_dp():
    """Rate 1: noise variance grows with uses exactly, and budgets are Rényi's in place of mu²."""
    epsilon = np.array([0.5, 1.0, 2.0, 4.0])
    facts = setup(
        epsilon, epsilon=epsilon, delta=np.full(4, 1e-5), accountant=Renyi(), cohort=2, rounds=40, n_examples=100
    )
    growth = noise_growth(facts, facts.budget, 40)
    np.testing.assert_allclose(np.exp(growth.log_factor), np.broadcast_to(growth.uses, (4, 7)), rtol=1e-3)
    exact = np.asarray(solve(Programme(noise_price(facts, facts.budget), np.zeros(4), np.full(4, 40), 80, 1)))
    np.testing.assert_allclose(solve(proposition_1(view(facts))), exact, atol=1)


def test_under_rdp_no_move_of_a_single_use_saves_noise_the_accountant_charges():
    facts = sampled([0.3, 0.6, 1.0, 2.0, 4.0], cohort=2, rounds=60, n_examples=np.array([200, 400, 300, 500, 250]))
    uses = solve(proposition_1(view(facts)))
    assert uses.sum() == 120
    best = energy(facts, uses)
    moves = [(i, j) for i in range(5) for j in range(5) if i != j and uses[i] > 0 and uses[j] < 60]
    for i, j in moves:
        other = uses.copy()
        other[i] -= 1
        other[j] += 1
        assert energy(facts, other) >= best * (1 - 2e-3)  # the table is straight between 1, 2, 4, … uses
    formula = np.asarray(solve(Programme(noise_price(facts, facts.budget), np.zeros(5), np.full(5, 60), 120, 1)))
    assert best < 0.95 * energy(facts, formula)  # what a formula for rate 1 would have planned


def test_where_rates_meet_budgets_uses_are_planned_by_the_records_they_leave():
    """One noise for all: what grows with uses is the sensitivity of a mean over ever fewer records."""
    local = Minibatch(lr=0.1, steps=10, calibrate="rate", noise=60.0)
    epsilon, size = np.array([0.3, 0.6, 1.0, 2.0, 4.0]), np.array([200, 400, 300, 500, 250])
    facts = setup(
        epsilon, epsilon=epsilon, delta=np.full(5, 1e-5), local=local, accountant=Renyi(),
        cohort=2, rounds=60, n_examples=size,
    )  # fmt: skip
    uses = solve(proposition_1(view(facts)))
    share = facts.accountant.per_use(facts.budget, np.maximum(uses, 1.0), facts.epsilon, facts.delta)
    made = calibrate(Plan(uses, 60), facts.budget, facts)
    some = uses > 0
    np.testing.assert_allclose(noise_energy(facts, share)[some], facts.dim * made.variance(facts.mechanism)[some])
    best = energy(facts, uses)
    for i, j in [(i, j) for i in range(5) for j in range(5) if i != j and uses[i] > 0 and uses[j] < 60]:
        other = uses + (np.arange(5) == j) - (np.arange(5) == i)
        assert energy(facts, other) >= best * (1 - 1e-2)  # as above; and a rate grows no further than 1
    by_noise = replace(facts, local=Minibatch(lr=0.1, steps=10, batch=64))
    assert best < 0.95 * energy(facts, solve(proposition_1(view(by_noise))))


def test_nobody_is_asked_more_often_than_any_noise_there_is_allows():
    """Two uses are affordable, four have no finite noise: the other client takes the rest."""
    growth = Growth.through(np.array([1.0, 2.0, 4.0, 8.0]), np.array([[1.0, 2.0, np.inf, np.inf], [9.0, 18, 36, 72]]))
    uses = solve(Programme(np.array([1.0, 9.0]), np.zeros(2), np.full(2, 8), 9, 0, growth))
    np.testing.assert_array_equal(uses, [2, 7])


def test_cvxpy_is_refused_where_there_is_no_power_to_solve_for():
    with pytest.raises(RunEnded, match="allowed here: solver: exact"):
        BiasedSelection(heterogeneity="zero", solver="cvxpy").plan(
            view(sampled([1.0, 2.0], rounds=4)), np.random.default_rng(0)
        )
