"""The audit of local training: honest clients pass, and the four mistakes that are made most are seen.

Three of them show in the messages alone. Division by the realised batch moves a message by less than was paid for on
average and shows to whoever sees releases and batches; the others do so too.
"""

from dataclasses import replace

import numpy as np
import pytest
import typer
import yaml
from harness import assembly_of
from hostile.local_updates import MISTAKES, DividesByTheBatch, HalfTheRate, NoiseAtTheLastStep, OneCoin
from scipy.special import ndtr
from typer.testing import CliRunner

from dpflbench.cli.audit import audit as audit_command
from dpflbench.errors import DpflbenchError
from dpflbench.execution.prepare import Place
from dpflbench.federation.minibatch import Minibatch
from dpflbench.judges.audit import audit_algorithm, audit_noise, trains
from dpflbench.judges.bounds import audit_curve, deltas_of
from dpflbench.judges.planted import audit_run
from dpflbench.judges.sampled import ATTACKED, attack_sampled, audit_sampled_run, watch_sampled
from dpflbench.judges.watched import Logbook, Watched, bernstein
from dpflbench.privacy import pld
from dpflbench.privacy.gaussian_dp import epsilon_of
from dpflbench_algorithms.mechanisms import Gaussian

app = typer.Typer()
app.command()(audit_command)
SETTING = {"lr": ATTACKED.lr, "steps": ATTACKED.steps, "batch": ATTACKED.batch}
WHITE = {HalfTheRate: "rate", NoiseAtTheLastStep: "path", DividesByTheBatch: "batch", OneCoin: "coins"}


@pytest.fixture
def parts(catalogue):
    """DP-FedAvg with Gaussian noise, priced by Rényi orders."""
    names = (("algorithms", "DP-FedAvg"), ("mechanisms", "gaussian"), ("accountants", "rdp"))
    return [catalogue.get(*name).factory() for name in names]


# ---------------------------------------------------------------- who sees releases and batches


@pytest.mark.parametrize("kind", MISTAKES, ids=lambda k: k.__name__)
def test_each_mistake_is_seen_by_whoever_sees_releases_and_batches(parts, kind):
    found, _ = watch_sampled(*parts, local=kind(**SETTING), clients=64, many=2)
    assert WHITE[kind] in {t.name for t in found.alarms}


def test_honest_training_passes_under_every_rule_and_says_what_it_would_have_seen(parts, catalogue):
    seen = 0
    for part in catalogue.parts["algorithms"].values():
        algorithm = part.factory()
        if algorithm.private and trains(algorithm):
            found, rate = watch_sampled(algorithm, *parts[1:], clients=64, many=2)
            assert found.alarms == ()
            assert {"batch", "path", "rate", "coins", "scale"} <= {t.name for t in found.tests}
            assert found.visible > 0.95
            assert 1 < rate < 1.2
            seen += 1
    assert seen >= 7


def test_a_rate_a_little_above_what_is_called_visible_is_seen_and_a_little_below_is_not(parts):
    class Higher(Minibatch):
        factor = 1.0

        def compute(self, work, protect):
            event = replace(work.event, rate=np.minimum(1.0, work.event.rate * self.factor))
            return super().compute(replace(work, event=event), protect)

    _, visible = watch_sampled(*parts, clients=64, many=2)
    for factor, expected in ((1 + 1.3 * (visible - 1), True), (1 + 0.4 * (visible - 1), False)):
        Higher.factor = factor
        found, _ = watch_sampled(*parts, local=Higher(**SETTING), clients=64, many=2)
        assert ("rate" in {t.name for t in found.alarms}) == expected


def test_gradients_at_a_model_without_noise_are_seen_though_the_message_is_honest(parts):
    class Strays(Minibatch):
        """Differentiates beside the path."""

        def compute(self, work, protect):
            engine = work.engine

            class Beside:
                def batch_sums(self, theta, *rest):
                    return engine.batch_sums(theta + 1e-3, *rest)

            return super().compute(replace(work, engine=Beside()), protect)

    found, _ = watch_sampled(*parts, local=Strays(**SETTING), clients=64, many=1)
    assert [t.name for t in found.alarms] == ["path"]
    assert "models of step 0" in found.alarms[0].about


def test_bernstein_s_bound_by_hand_and_never_below_a_binomial_tail():
    """Off by 10 with variance 25: exp(-100 / (2 (25 + 10/3))) = 0.171."""
    assert bernstein(np.array([10.0]), np.array([25.0]))[0] == pytest.approx(0.1712, abs=1e-4)
    assert bernstein(np.zeros(1), np.zeros(1))[0] == 1.0
    assert bernstein(np.ones(1), np.zeros(1))[0] < 0.3  # without variance only |coin| <= 1 bounds it
    rng, tails = np.random.default_rng(0), []
    for _ in range(2000):
        coins = rng.random(400) < 0.1
        tails.append(bernstein(np.array([coins.sum() - 40.0]), np.array([36.0]))[0])
    assert np.mean(np.array(tails) < 0.05) <= 0.1  # two sides


def test_honest_coins_are_accused_no_more_often_than_stated():
    """300 watches of 40 records and 6 steps: of the two tests of coins, one in ten at most may have p below 0.1."""

    class Shards:
        offsets, sizes = np.array([0, 25, 40]), np.array([25, 15])

    class Event:
        rate = np.array([0.2, 0.5])

    class Work:
        shards, event, cohort = Shards, Event, np.array([0, 1])

    rng, low = np.random.default_rng(1), np.zeros(2)
    for _ in range(300):
        log = Logbook()
        for _ in range(6):
            drawn = np.flatnonzero(rng.random(40) < np.repeat(Event.rate, [25, 15]))
            log.count(Work, Work.cohort, drawn)
        low += [t.p < 0.1 for t in log.tests() if t.name in ("rate", "coins")]
    assert (low <= 30).all()


def test_a_watched_update_changes_nothing(local_suite, catalogue):
    from harness import world_of
    from test_minibatch import played

    plain = world_of(local_suite, catalogue, "DP-FedAvg")
    watched = world_of(local_suite, catalogue, "DP-FedAvg")
    setup = replace(watched.world.setup, local=Watched(watched.world.setup.local, Logbook()))
    watched = replace(watched, world=replace(watched.world, setup=setup))
    assert bool((played(plain)[-1].theta == played(watched)[-1].theta).all())


# ---------------------------------------------------------------- who sees messages


@pytest.mark.parametrize("kind", [HalfTheRate, NoiseAtTheLastStep, OneCoin], ids=lambda k: k.__name__)
def test_three_mistakes_give_more_away_in_messages_than_the_ledger_charged(parts, kind):
    assert attack_sampled(*parts, local=kind(**SETTING), clients=8192).crossed.violated


@pytest.mark.parametrize("seed", range(3))
def test_honest_messages_give_away_less_than_was_charged(parts, seed):
    seen = attack_sampled(*parts, clients=2048, seed=7 * seed)
    assert not seen.crossed.violated
    assert 0.5 < seen.noise_seen < 0.8
    assert 1.2 < seen.rate_seen < 2.0


def test_the_attack_says_what_it_would_have_seen(parts):
    """Noise at nine tenths of what is called visible is seen in most of five audits."""
    visible = attack_sampled(*parts, clients=2048).noise_seen

    class Less(Gaussian):
        def noised(self, value, scale, draws):
            return super().noised(value, 0.9 * visible * scale, draws)

    algorithm, _, accountant = parts
    seen = [attack_sampled(algorithm, Less(), accountant, clients=2048, seed=5 * i).crossed.violated for i in range(5)]
    assert sum(seen) >= 4


def test_the_curve_of_a_gaussian_is_the_exact_one_and_its_bound_holds_at_its_confidence():
    """Distance 1: delta(0) = Phi(1/2) - Phi(-1/2) = 0.3829. Sixty audits of the truth at confidence 0.9."""
    curve = tuple(zip((0.0, 1.0), pld.deltas(((1.0, 1.0, 1),), (0.0, 1.0), "zero_out"), strict=True))
    assert curve[0][1] == pytest.approx(float(ndtr(0.5) - ndtr(-0.5)), abs=1e-3)
    assert curve[0][1] >= float(ndtr(0.5) - ndtr(-0.5))
    assert float(epsilon_of(1.0, curve[1][1])) == pytest.approx(1.0, abs=5e-3)

    def release(seed):
        rng = np.random.default_rng(seed)
        return rng.normal(size=(400, 1)), rng.normal(1.0, size=(400, 1))

    assert sum(audit_curve(release, curve, 0.9, 3 * i).violated for i in range(60)) <= 10
    assert audit_curve(release, ((0.0, 0.1),)).violated  # of 0.3829, four hundred releases show 0.15 at least
    np.testing.assert_allclose(deltas_of(np.array([0.1]), np.array([0.2]), [(0.0, 0.0)]), [[0.7]])


def test_deltas_agree_with_the_epsilons_of_the_same_releases():
    releases = ((0.8, 0.3, 8),)
    for epsilon, delta in zip((0.5, 2.0), pld.deltas(releases, (0.5, 2.0), "zero_out"), strict=True):
        assert pld.epsilon(releases, delta, "zero_out") == pytest.approx(epsilon, abs=0.02)
    assert pld.deltas((), (0.0,), "zero_out") == (0.0,)
    assert pld.deltas(((0.0, 0.5, 1),), (0.0,), "zero_out") == (1.0,)


# ---------------------------------------------------------------- runs of a suite, and the command


@pytest.fixture
def local_suite(tiny):
    """The tiny suite with three local steps on batches of ten."""
    tiny["federation"] |= {"local": {"kind": "minibatch", "steps": 3, "batch": 10, "lr": 0.2}}
    return tiny


def test_a_suite_s_own_run_passes_and_each_mistake_in_it_is_seen(local_suite, catalogue):
    for kind in (Minibatch, *MISTAKES):
        made = assembly_of(local_suite, catalogue, "DP-FedAvg")
        made = replace(made, federation=replace(made.federation, local=kind(lr=0.2, steps=3, batch=10)))
        noise, coins, rate = audit_sampled_run(made, Place(), repeats=2)
        names = {t.name for t in noise.alarms}
        assert (WHITE[kind] in names) if kind in WHITE else names == set()
        if kind is Minibatch:
            assert not coins.violated(0.999)
            assert 0.3 < coins.reach <= 1 + 1e-9
            assert rate > 1


def test_far_too_little_noise_is_seen_by_guesses_of_presence_alone(local_suite, catalogue):
    class Fiftieth(Gaussian):
        def noised(self, value, scale, draws):
            return super().noised(value, scale / 50, draws)

    made = assembly_of(local_suite, catalogue, "DP-FedAvg")
    hostile = replace(made, privacy=replace(made.privacy, mechanism=Fiftieth()))
    assert audit_sampled_run(hostile, Place(), repeats=12)[1].violated(0.999)


def test_full_steps_and_local_training_are_audited_by_their_own_attacks(local_suite, catalogue, parts, tiny):
    with pytest.raises(DpflbenchError, match="audit_sampled_run"):
        audit_run(assembly_of(local_suite, catalogue, "DP-FedAvg"), Place())
    for audit in (audit_noise, lambda *given: list(audit_algorithm(*given))):
        with pytest.raises(DpflbenchError, match="trains at clients"):
            audit(*parts)


def test_the_command_audits_local_training_and_says_its_power(local_suite, tmp_path):
    shown = CliRunner().invoke(app, ["DP-FedAvg", "--clients", "1024", "--rounds", "2"])
    assert shown.exit_code == 0, shown.output
    assert shown.output.count("ok  ") == 2
    assert shown.output.count("nine times in ten") == 3
    path = tmp_path / "local.yaml"
    path.write_text(yaml.safe_dump(local_suite | {"algorithms": ["DP-FedAvg"]}))
    shown = CliRunner().invoke(app, ["DP-FedAvg", "--suite", str(path), "--repeats", "2"])
    assert shown.exit_code == 0, shown.output
    assert "each the sum over its expected batch" in shown.output
    assert "0 violations" in shown.output
