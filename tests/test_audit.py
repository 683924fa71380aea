"""The audit passes every built-in algorithm and catches every bug planted in a client's path."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import typer
import yaml
from scipy.special import ndtr
from typer.testing import CliRunner

import dpflbench.federation.local as local_module
import dpflbench.federation.simulate as simulate_module
from dpflbench.cli.audit import audit as audit_command
from dpflbench.draws import LAPLACE
from dpflbench.errors import DpflbenchError
from dpflbench.federation.gradients import Engine
from dpflbench.judges.audit import audit_algorithm, muted, trains
from dpflbench.judges.bounds import Promise, audit, bounds_of, trials_needed, upper_rate
from dpflbench.privacy.gaussian_dp import epsilon_of
from dpflbench.privacy.ledger import Ledger
from dpflbench.privacy.unprotected import Unlimited
from dpflbench_algorithms.accountants import GaussianDP, PureDP
from dpflbench_algorithms.bcs import dpfl_bcs
from dpflbench_algorithms.mechanisms import Gaussian, Laplace
from dpflbench_algorithms.privatefl import privatefl
from dpflbench_algorithms.weiavg import weiavg

app = typer.Typer()
app.command()(audit_command)
SMALL = {"clients": 1024, "many": 3}


def caught(algorithm, mechanism, **changes):
    """The canaries that show a violation."""
    outcomes = audit_algorithm(algorithm, mechanism, priced(mechanism), **(SMALL | changes))
    return [name for name, outcome in outcomes if outcome.violated]


def priced(mechanism):
    return PureDP() if mechanism.law is LAPLACE else GaussianDP()


# ---------------------------------------------------------------- planted bugs


class HalfNoise(Gaussian):
    def noised(self, value, scale, draws):
        return super().noised(value, scale / 2, draws)


class HalfLaplace(Laplace):
    def noised(self, value, scale, draws):
        return super().noised(value, scale / 2, draws)


class ClipsInL2(Laplace):
    clip_order = 2


class ForgetsTheBias(Gaussian):
    def noised(self, value, scale, draws):
        noisy = super().noised(value, scale, draws)
        noisy[:, -2:] = value[:, -2:]
        return noisy


class ForgetsTheLosses(Gaussian):
    def noised(self, value, scale, draws):
        return value if value.shape[1] <= 2 else super().noised(value, scale, draws)  # losses are [K, 1 or 2]


@pytest.mark.parametrize("mechanism", [HalfNoise(), HalfLaplace()], ids=["gaussian", "laplace"])
def test_half_the_noise_is_caught(mechanism):
    assert caught(weiavg(), mechanism, clients=2048, only={"opposite"}) == ["opposite"]


def test_clipping_after_averaging_is_caught(monkeypatch):
    real = Engine.clipped_sums

    def clip_the_mean(self, theta, phi, shards, clients, clip_norm, loss_bound=None):
        sums = real(self, theta, phi, shards, clients, None, loss_bound)
        sizes = torch.as_tensor(shards.sizes[clients], dtype=theta.dtype)[:, None]
        mean = sums.theta / sizes
        return replace(sums, theta=mean / (mean.norm(dim=1, keepdim=True) / clip_norm[:, None]).clamp(min=1.0) * sizes)

    monkeypatch.setattr(Engine, "clipped_sums", clip_the_mean)
    for mechanism in (Gaussian(), Laplace()):
        assert caught(weiavg(), mechanism, only={"opposite"}) == ["opposite"]


def test_clipping_in_l2_under_laplace_noise_is_caught_by_the_dense_canary():
    assert caught(weiavg(), ClipsInL2(), clients=4096, epsilon=3.0, only={"dense"}) == ["dense"]


def test_one_tensor_without_noise_is_caught():
    assert caught(weiavg(), ForgetsTheBias(), only={"opposite"}) == ["opposite"]


@pytest.mark.parametrize("mechanism", [Gaussian(), Laplace()], ids=["gaussian", "laplace"])
def test_a_forgotten_factor_two_in_the_sensitivity_is_caught(monkeypatch, mechanism):
    real = local_module.gradient_sensitivity
    monkeypatch.setattr(local_module, "gradient_sensitivity", lambda *given: real(*given) / 2)
    assert caught(weiavg(), mechanism, clients=2048, only={"opposite"}) == ["opposite"]


@pytest.mark.parametrize("mechanism", [Gaussian(), Laplace()], ids=["gaussian", "laplace"])
def test_a_transform_trained_without_noise_is_caught_though_it_is_never_sent(monkeypatch, mechanism):
    real = simulate_module.participate

    def honest_row_exact_phi(part, setup, trust, engine, shards, ledger, streams):
        quiet = replace(setup, mechanism=muted(setup.mechanism))
        exact = real(part, quiet, trust, engine, shards, Unlimited(setup.n_clients), streams)
        return replace(real(part, setup, trust, engine, shards, ledger, streams), phi=exact.phi)

    monkeypatch.setattr(simulate_module, "participate", honest_row_exact_phi)
    assert caught(privatefl(), mechanism) == ["memory"]


def test_losses_without_noise_are_caught():
    assert caught(dpfl_bcs(probe_rounds=1), ForgetsTheLosses(), only={"loss"}) == ["loss"]


def test_noise_that_is_not_charged_is_caught(monkeypatch):
    """The ledger is told a scale twice the one that is drawn with: the charge is too small."""
    real = Ledger.charge

    def forgetful(self, round, clients, releases):
        real(self, round, clients, [event.at(event.scale * 2) for event in releases])

    monkeypatch.setattr(Ledger, "charge", forgetful)
    assert caught(weiavg(), Gaussian(), only={"opposite"}) == ["opposite"]


# ---------------------------------------------------------------- honest algorithms


SHORT = {"DPFL-BCS": {"probe_rounds": 1}, "PRIVATEFL-BCS": {"probe_rounds": 1}}


@pytest.mark.parametrize("mechanism", [Gaussian(), Laplace()], ids=["gaussian", "laplace"])
def test_every_installed_algorithm_passes(catalogue, mechanism):
    audited = []
    for name, part in catalogue.parts["algorithms"].items():
        algorithm = part.factory(**SHORT.get(name, {}))
        if not algorithm.private or (algorithm.mechanisms is not None and mechanism.name not in algorithm.mechanisms):
            continue
        if trains(algorithm):
            with pytest.raises(DpflbenchError, match="trains at clients"):
                caught(algorithm, mechanism)
            continue
        assert caught(algorithm, mechanism) == [], name
        audited.append(name)
    assert {"PFA", "PRIVATEFL", "DPFL-BCS", "PRIVATEFL-BCS", "WeiAvg"} <= set(audited)


@pytest.mark.parametrize("options", [{"probe": "literal"}, {"heterogeneity": "paper"}], ids=["joint", "after-step"])
def test_both_losses_of_the_literal_probe_pass(options):
    assert caught(dpfl_bcs(probe_rounds=1, **options), Gaussian()) == []


def test_an_honest_release_is_seen_to_spend_most_of_what_it_was_charged():
    """An audit without power would pass anything: at 2048 releases a world it must find 85 % of mu, or 60 % of a pure
    epsilon.
    """
    found = dict(audit_algorithm(weiavg(), Gaussian(), priced(Gaussian()), only={"opposite"}))["opposite"]
    assert 0.85 * found.claim.mu <= found.mu <= found.claim.mu
    assert found.claim.epsilon == pytest.approx(8.0, abs=1e-5)
    found = dict(audit_algorithm(weiavg(), Laplace(), priced(Laplace()), only={"opposite"}))["opposite"]
    assert 0.6 * 2 <= found.epsilon <= found.claim.epsilon


def test_what_promises_nothing_or_is_not_defined_is_refused(catalogue):
    with pytest.raises(DpflbenchError, match="promises no privacy"):
        list(audit_algorithm(catalogue.get("algorithms", "FedSGD").factory(), Gaussian(), priced(Gaussian())))
    with pytest.raises(DpflbenchError, match="not defined for laplace"):
        list(audit_algorithm(catalogue.get("algorithms", "DPSGD").factory(), Laplace(), priced(Laplace())))


# ---------------------------------------------------------------- bounds


def test_no_error_in_a_thousand_trials_bounds_the_rate_by_the_rule_of_three():
    assert upper_rate(0, 1000, 0.05) == pytest.approx(3 / 1000, rel=0.01)
    assert upper_rate(1000, 1000, 0.05) == 1.0
    assert upper_rate(0, 1, 0.05) == pytest.approx(0.95)


def test_error_rates_as_epsilon_and_as_mu_by_hand():
    """False alarms 0.1, misses 0.5: epsilon log(0.5 / 0.1); at equal rates Phi(-1/2) mu is 1."""
    assert bounds_of(0.1, 0.5, 0.0)[0] == pytest.approx(np.log(5))
    assert bounds_of(0.5, 0.1, 0.0)[0] == pytest.approx(np.log(5))
    assert bounds_of(float(ndtr(-0.5)), float(ndtr(-0.5)), 0.0)[1] == pytest.approx(1.0)
    assert bounds_of(0.9, 0.9, 0.0) == (0.0, 0.0)


def gaussians(distance, dim=20, trials=3000):
    def release(seed):
        rng = np.random.default_rng(seed)
        other = rng.normal(size=(trials, dim))
        other[:, 0] += distance
        return rng.normal(size=(trials, dim)), other

    return release


def test_the_bounds_hold_at_their_confidence():
    """True mu 1 and claimed mu 1: at confidence 0.9 at most one audit in ten may cry wolf; here 60 audits."""
    alarms = sum(
        audit(gaussians(1.0, 3, 400), Promise(5.0, 1e-5, 1.0), confidence=0.9, seed=3 * i).violated for i in range(60)
    )
    assert alarms <= 10


def test_a_planted_distance_is_found_and_never_more_than_it():
    found = audit(gaussians(2.0), Promise(4.0, 1e-5, 1.0))
    assert found.violated
    assert 1.6 < found.mu < 2.0
    assert found.epsilon < float(epsilon_of(2.0, 1e-5))


def test_an_adversary_who_knows_the_direction_needs_fewer_releases():
    """Distance 1 in 1000 dimensions, 1000 releases: the estimated direction is mostly noise."""
    release, claim, known = gaussians(1.0, 1000, 1000), Promise(4.0, 1e-5, 1.0), np.eye(1000)[0]
    blind, knowing = audit(release, claim), audit(release, claim, shift=known)
    assert blind.mu < 0.5 < knowing.mu < 1.0


def test_the_trials_needed_are_enough_and_half_of_them_are_not():
    needed = trials_needed(1.0, 1.5)
    seen = {
        n: sum(
            audit(gaussians(1.5, 1, n), Promise(99.0, 1e-5, 1.0), seed=5 * i, shift=np.array([1.5])).violated
            for i in range(30)
        )
        for n in (needed, needed // 3)
    }
    assert seen[needed] >= 20
    assert seen[needed // 3] <= 15
    assert trials_needed(1.0, 1.1) > 10 * trials_needed(1.0, 2.0)
    assert trials_needed(1.0, 2.0, law="laplace") < trials_needed(1.0, 1.5, law="laplace")
    with pytest.raises(ValueError, match="no violation"):
        trials_needed(2.0, 1.0)


# ---------------------------------------------------------------- the command


def test_the_command_prints_a_line_a_canary_and_exits_zero():
    shown = CliRunner().invoke(app, ["DPFL-BCS", "--with", "probe_rounds=1", "--clients", "512", "--rounds", "2"])
    assert shown.exit_code == 0, shown.output
    assert shown.output.count("ok  ") == 10  # residuals and four canaries, two mechanisms
    assert shown.output.count("nine times in ten") == 4  # what residuals and what attacks would have seen, each
    assert "0 violations" in shown.output


def test_the_command_exits_one_on_a_violation(monkeypatch):
    real = local_module.gradient_sensitivity
    monkeypatch.setattr(local_module, "gradient_sensitivity", lambda *given: real(*given) / 4)
    shown = CliRunner().invoke(app, ["DPSGD", "--clients", "512", "--rounds", "2"])
    assert shown.exit_code == 1
    assert "VIOLATED" in shown.output


def test_the_command_takes_composed_algorithms_and_plugins_that_have_parts_only():
    few = ["--clients", "64", "--rounds", "2", "--mechanism", "gaussian"]
    shown = CliRunner().invoke(app, ["compose", "--with", "aggregator=mean", "--with", "transform=identity", *few])
    assert shown.exit_code == 0, shown.output
    assert "compose, gaussian, residuals" in shown.output
    shown = CliRunner().invoke(app, ["compose", "--with", "selector=nobody", *few])
    assert "unknown selector 'nobody'" in str(shown.exception)
    shown = CliRunner().invoke(app, ["parts", *few])
    assert shown.exit_code == 0, shown.output
    assert "selector uniform, gaussian, residuals" in shown.output
    assert "aggregator mean, gaussian, opposite" in shown.output
    assert "mechanism laplace, laplace, residuals" in shown.output


def test_the_command_audits_the_runs_of_a_suite(tiny, tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump({**tiny, "axes": {"privacy.epsilon.high": [4.0, 8.0]}}))
    shown = CliRunner().invoke(app, ["all", "--suite", str(path), "--repeats", "2", "--set", "federation.rounds=3"])
    assert shown.exit_code == 0, shown.output
    assert shown.output.count("coins: ") == 2  # DPSGD and WeiAvg, in one column each
    assert "of 16 guessed" in shown.output
    assert "residuals: 180 draws in 12 messages" in shown.output  # of one repeat: 3 rounds, 4 clients, 15 coordinates
    for arguments in (["FedSGD"], ["Nobody"]):
        found = CliRunner().invoke(app, [*arguments, "--suite", str(path)]).exception
        assert "no private run of that name" in str(found)


def test_the_command_knows_its_algorithms():
    for arguments in (["DPSDG"], ["FedSGD"], ["DPSGD", "--with", "nothing=3"], ["DPSGD", "--with", "nothing"]):
        assert isinstance(CliRunner().invoke(app, arguments).exception, DpflbenchError), arguments
