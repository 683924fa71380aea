"""Laws of whole runs: no algorithm overspends, uniform plans leave nothing over, and algorithms that should coincide
do.
"""

import numpy as np
import pytest
import torch
from harness import assembly_of, record_of, world_of
from places import place

from dpflbench.execution.attempt import prepare
from dpflbench.federation.simulate import initial_state, rounds
from dpflbench.interfaces import PlanView
from dpflbench.judges.recount import recount
from dpflbench_algorithms.bcs import proposition_1
from dpflbench_algorithms.bcs_solver import solve

UNIFORM = ["WeiAvg", "PFA", "PRIVATEFL", "Robust-HDP", "IDP-clipping"]
STAGED = {"DPFL-BCS": {"probe_rounds": 3}, "PRIVATEFL-BCS": {"probe_rounds": 3}}
LITERAL = {"probe_rounds": 3, "probe": "literal", "heterogeneity": "paper", "constants": "p2"}
MECHANISMS = ["gaussian", "laplace", {"name": "gaussian", "accountant": {"name": "gdp", "composition": "linear"}}]
EVERY = [
    (mechanism, use, given)
    for mechanism in MECHANISMS
    for use, given in [
        *((name, {}) for name in UNIFORM),
        *STAGED.items(),
        ("DPFL-BCS", LITERAL),
        ("PFA", {"delayed": True}),
        ("DPFL-BCS", {"probe_rounds": 3, "heterogeneity": "paper", "solver": "cvxpy"}),
        ("Power-of-choice", {}),
        ("Uniform-minimum", {}),
    ]
]


@pytest.fixture
def small(tiny):
    """The tiny suite with unequal clients and twelve rounds."""
    tiny["task"]["partition"] = {"kind": "dirichlet", "alpha": 1.0, "min_size": 5}
    tiny["federation"]["rounds"] = 12
    tiny["evaluate"] = {"every": 12}
    tiny["privacy"]["paired_noise"] = True  # what two algorithms have in common shows to the bit
    return tiny


def under(body, mechanism):
    body["privacy"]["mechanism"] = mechanism
    return body


def share_spent(record):
    return record.clients["epsilon_spent"] / record.clients["epsilon"]


def final_state(prepared):
    *_, last = rounds(prepared.world, initial_state(prepared.world, prepared.theta, prepared.phi), prepared.ledger)
    return last


# ---------------------------------------------------------------- budgets


@pytest.mark.parametrize(("mechanism", "use", "given"), EVERY)
def test_every_private_algorithm_keeps_every_client_s_budget(small, catalogue, mechanism, use, given):
    record = record_of(under(small, mechanism), catalogue, use, **given)
    assert (record.status, record.reason) == ("done", "")
    assert int(record.clients["uses"].sum()) == 4 * 12
    assert record.clients["uses"].max() <= 12
    assert (share_spent(record) <= 1).all()
    assert (record.clients["epsilon_spent"][record.clients["uses"] == 0] == 0).all()
    assert recount(record, catalogue).problems == ()  # the independent accountant agrees


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("use", UNIFORM)
def test_uniform_plans_spend_nearly_all_of_every_budget(small, catalogue, mechanism, use):
    record = record_of(under(small, mechanism), catalogue, use)
    assert record.clients["uses"].tolist() == [6] * 8
    assert share_spent(record).min() >= 0.999


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("use", STAGED)
def test_staged_plans_spend_nearly_all_budgets_of_the_clients_they_keep(small, catalogue, mechanism, use):
    record = record_of(under(small, mechanism), catalogue, use, **STAGED[use])
    first, second = record.notes
    assert np.array_equal(first["uses"] + second["uses"], record.clients["uses"])
    kept = second["uses"] > 0
    assert kept.sum() >= 4
    assert share_spent(record)[kept].min() >= 0.999


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_uniform_minimum_spends_the_strictest_budget_everywhere(small, catalogue, mechanism):
    record = record_of(under(small, mechanism), catalogue, "Uniform-minimum")
    strictest = int(np.argmin(record.clients["epsilon"]))
    assert share_spent(record)[strictest] >= 0.999
    # one delta for all: the same epsilon for everybody
    assert record.clients["epsilon_spent"] == pytest.approx(
        np.full(8, record.clients["epsilon_spent"][strictest]), rel=1e-4
    )


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_clients_that_bcs_never_uses_release_nothing_and_cost_nothing(small, catalogue, mechanism):
    small["privacy"]["epsilon"] = {"kind": "listed", "values": [1e-3, 1e-3, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0]}
    record = record_of(under(small, mechanism), catalogue, "DPFL-BCS", heterogeneity="zero")
    assert record.clients["uses"][:2].tolist() == [0, 0]
    assert record.clients["epsilon_spent"][:2].tolist() == [0.0, 0.0]
    assert not np.isin(record.events["client"], [0, 1]).any()


def test_idp_clipping_puts_the_same_noise_on_every_message(small, catalogue):
    scale = record_of(small, catalogue, "IDP-clipping").events["scale"]
    assert scale == pytest.approx(np.full(len(scale), scale[0]), rel=1e-6)


# ---------------------------------------------------------------- algorithms that coincide


@pytest.mark.parametrize(("mechanism", "plain"), [("gaussian", "DPSGD"), ("laplace", "DMLDP")])
def test_privatefl_with_phi_frozen_is_the_plain_algorithm_to_the_bit(small, catalogue, mechanism, plain):
    frozen = record_of(under(small, mechanism), catalogue, "PRIVATEFL", frozen=True)
    other = record_of(small, catalogue, plain)
    for fact in ("initial_model", "final_model", "ledger_digest", "dim"):
        assert frozen.facts[fact] == other.facts[fact]
    assert frozen.final == other.final
    trained = record_of(small, catalogue, "PRIVATEFL")
    assert trained.facts["initial_model"] == other.facts["initial_model"]
    assert trained.facts["final_model"] != other.facts["final_model"]


def test_pfa_with_everybody_public_is_weiavg(small, catalogue):
    ours = final_state(prepare(assembly_of(small, catalogue, "PFA", share=1.0), place()))
    weighted = final_state(world_of(small, catalogue, "WeiAvg"))
    torch.testing.assert_close(ours.theta, weighted.theta, rtol=1e-5, atol=1e-6)
    projected = final_state(world_of(small, catalogue, "PFA"))
    assert not torch.allclose(projected.theta, weighted.theta, atol=1e-3)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_bcs_without_heterogeneity_runs_the_plan_of_proposition_1(small, catalogue, mechanism):
    record = record_of(under(small, mechanism), catalogue, "DPFL-BCS", heterogeneity="zero")
    prepared = world_of(small, catalogue, "DPFL-BCS")
    view = PlanView(prepared.world.setup, 0, np.zeros(8, dtype=np.int64), prepared.ledger.left, None)
    assert np.array_equal(record.clients["uses"], solve(proposition_1(view)))
    assert len(record.notes) == 1


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_bcs_treats_interchangeable_clients_alike(tiny, catalogue, mechanism):
    tiny["task"]["limit"], tiny["task"]["holdout"] = 400, 0.0
    tiny["federation"]["rounds"] = 20
    tiny["privacy"]["epsilon"] = 2.0
    record = record_of(under(tiny, mechanism), catalogue, "DPFL-BCS", heterogeneity="zero")
    assert len(set(record.clients["n_examples"].tolist())) == 1
    assert record.clients["uses"].tolist() == [10] * 8


def test_bcs_among_interchangeable_clients_is_dpsgd_to_the_bit(tiny, catalogue):
    tiny["task"]["limit"], tiny["task"]["holdout"] = 400, 0.0
    tiny["privacy"] |= {"epsilon": 2.0, "paired_noise": True}
    ours, plain = record_of(tiny, catalogue, "DPFL-BCS", heterogeneity="zero"), record_of(tiny, catalogue, "DPSGD")
    assert ours.clients["uses"].tolist() == [3] * 8
    assert ours.facts["final_model"] == plain.facts["final_model"]


# ---------------------------------------------------------------- combinations and records


@pytest.mark.parametrize(
    "parts",
    [
        {"selector": {"name": "bcs", "probe_rounds": 3}, "aggregator": "pfa"},
        {"selector": {"name": "bcs", "probe_rounds": 3}, "aggregator": "epsilon_weighted"},
        {"selector": "power_of_choice", "aggregator": {"name": "pfa", "rank": 2}, "transform": "personal_affine"},
        {"selector": "idp_clipping", "aggregator": "robust_hdp"},
    ],
)
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_parts_combine_from_configuration_alone(small, catalogue, mechanism, parts):
    record = record_of(under(small, mechanism), catalogue, "compose", **parts)
    assert (record.status, record.reason) == ("done", "")
    assert (share_spent(record) <= 1).all()
    assert recount(record, catalogue).problems == ()


def test_the_record_keeps_what_bcs_estimated(small, catalogue):
    first, second = record_of(small, catalogue, "DPFL-BCS", probe_rounds=3).notes
    assert (first["round"], first["horizon"], second["round"], second["horizon"]) == (0, 3, 3, 9)
    assert int(first["planned"].sum()) == 48
    assert second["heterogeneity"].shape == (8,)
    assert (second["heterogeneity"] >= 0).all()
    # lr 0.5 / (1 + t / 20): γ = 20, μ = 2 / (0.5 · 20), L = 1 / (4 · 0.5)
    assert (second["gamma"], second["smoothness"], second["strong_convexity"]) == pytest.approx((20.0, 0.5, 0.2))
    assert second["rho_min"] > 0


def test_the_record_keeps_where_p2_started_and_how_far_it_got(small, catalogue):
    second = record_of(small, catalogue, "DPFL-BCS", **LITERAL).notes[1]
    assert second["p2_start"] == pytest.approx([1.0, 20.0, 1.0, 0.5, 0.2])
    assert second["p2_fit"].shape == (5,)
    assert second["p2_residual"] >= 0


def test_privatefl_reports_shared_mean_and_personal_utility(small, catalogue):
    small["privacy"]["epsilon"] = 50.0
    record = record_of(small, catalogue, "PRIVATEFL")
    final = record.final
    assert {"utility_global", "utility_mean_phi", "utility_personal"} <= set(final)
    assert final["utility_global"] != final["utility_mean_phi"]
    assert record.facts["phi_dim"] == 5  # one gamma, four betas


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_normalisation_layers_can_stay_local(tmp_path, tiny, catalogue, mechanism):
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 1, 28, 28), dtype=np.float32), np.arange(60) % 3
    np.savez(tmp_path / "images.npz", x_train=x[:48], y_train=y[:48], x_test=x[48:], y_test=y[48:])
    tiny["task"] |= {"dataset": {"name": "npz", "path": str(tmp_path / "images.npz")}, "model": "femnist_cnn"}
    tiny["federation"] |= {"clients": 4, "cohort": 2, "rounds": 2}
    record = record_of(under(tiny, mechanism), catalogue, "PRIVATEFL", norm_local=True)
    assert (record.status, record.reason) == ("done", "")
    assert record.facts["phi_dim"] == 785 + 2 * (8 + 16)
    assert share_spent(record).max() <= 1


def test_a_regression_without_a_loss_bound_takes_the_clip_bound(tmp_path, tiny, catalogue):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 4)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0, 0.5, 0.0])).astype(np.float32)
    np.savez(tmp_path / "line.npz", x_train=x[:100], y_train=y[:100], x_test=x[100:], y_test=y[100:])
    tiny["task"] |= {"dataset": {"name": "npz", "path": str(tmp_path / "line.npz")}, "model": "linear"}
    tiny["federation"]["rounds"] = 12
    implied = record_of(tiny, catalogue, "DPFL-BCS", probe_rounds=3)
    given = record_of(tiny, catalogue, "DPFL-BCS", probe_rounds=3, loss_bound=tiny["privacy"]["clip"])
    assert (implied.status, given.status) == ("done", "done")
    assert implied.notes[0]["probe"] == given.notes[0]["probe"]
