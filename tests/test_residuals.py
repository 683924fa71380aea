"""The white-box test accuses every noise that is not what its ledger says, and honest noise once in a million times."""

import numpy as np
import pytest
import torch

from dpflbench.draws import LAPLACE, NORMAL, Draws
from dpflbench.privacy.residuals import ALARM, Examined, Tape, examine, response, shadowed, smallest_seen
from dpflbench_algorithms.mechanisms import Gaussian, Laplace

CLIENTS, WIDTH, ROUNDS = 200, 200, 10  # 400,000 coordinates: 40 rounds of the main job


def played(mechanism, clients=CLIENTS, width=WIDTH, rounds=ROUNDS, key=0) -> Examined:
    """Rounds of messages as a server gets them, their noise examined."""
    tape = Tape()
    shadow = shadowed(mechanism, tape)
    rng = np.random.default_rng(key)
    scale = rng.choice([0.3, 1.0, 7.0], clients)
    for t in range(rounds):
        value = torch.from_numpy(rng.normal(size=(clients, width)) * 0.1)
        shadow.release(value, scale, Draws(key.to_bytes(16, "big") + t.to_bytes(16, "big")))
    return examine(tape, mechanism.law)


def names(found: Examined) -> set[str]:
    return {test.name for test in found.alarms}


# ---------------------------------------------------------------- hostile mechanisms, each under an honest name


class Smaller(Gaussian):
    """98 hundredths of its scale."""

    def noised(self, value, scale, draws):
        return super().noised(value, scale * 0.98, draws)


class SmallerLaplace(Laplace):
    def noised(self, value, scale, draws):
        return super().noised(value, scale * 0.98, draws)


class ForOne(Gaussian):
    """Half the noise, for the clients of one budget only."""

    def noised(self, value, scale, draws):
        return super().noised(value, np.where(scale == 7.0, scale * 0.97, scale), draws)


class OneSeed(Gaussian):
    """The same noise in every round."""

    def noised(self, value, scale, draws):
        return super().noised(value, scale, Draws(bytes(32)))


class Reused(Gaussian):
    """The noise of the round before, every third round."""

    memory: list = []  # noqa: RUF012

    def noised(self, value, scale, draws):
        self.memory.append(super().noised(np.zeros_like(value), scale, draws) if len(self.memory) % 3 else None)
        if self.memory[-1] is None:
            self.memory[-1] = self.memory[-2] if len(self.memory) > 1 else super().noised(value * 0, scale, draws)
        return value + self.memory[-1]


class Negated(Gaussian):
    """Every second client has the negative of the noise of the one before: together they are exact."""

    def noised(self, value, scale, draws):
        noise = super().noised(np.zeros_like(value), np.ones(len(value)), draws)
        noise[1::2] = -noise[0::2]
        return value + noise * scale[:, None]


class Antithetic(Gaussian):
    """Every second coordinate is the negative of the one before."""

    def noised(self, value, scale, draws):
        noise = super().noised(np.zeros_like(value), scale, draws)
        noise[:, 1::2] = -noise[:, 0::2]
        return value + noise


class OneInAThousand(Gaussian):
    """One message in a thousand leaves as it is."""

    def noised(self, value, scale, draws):
        out = super().noised(value, scale, draws)
        bare = draws.uniform((len(value),)) < 1e-3
        out[bare] = value[bare]
        return out


class Clamped(Gaussian):
    """No noise beyond four standard deviations."""

    def noised(self, value, scale, draws):
        noise = super().noised(np.zeros_like(value), np.ones(len(value)), draws)
        return value + np.clip(noise, -4, 4) * scale[:, None]


class WrongLaw(Gaussian):
    """Laplace noise of the right variance."""

    def noised(self, value, scale, draws):
        return draws.noised(value, scale / np.sqrt(2), LAPLACE)


class BareColumn(Gaussian):
    """A coordinate that is hardly noised."""

    def noised(self, value, scale, draws):
        out = super().noised(value, scale, draws)
        out[:, 3] = value[:, 3] + (out[:, 3] - value[:, 3]) * 0.8
        return out


class Doubled(Gaussian):
    """The value twice: half its noise."""

    def noised(self, value, scale, draws):
        return super().noised(2 * value, scale, draws)


class Shifted(Gaussian):
    """Noise around a hundredth of its scale."""

    def noised(self, value, scale, draws):
        return super().noised(value + 0.01 * scale[:, None], scale, draws)


class Cyclic(Gaussian):
    """A generator that starts over after 7,000 draws."""

    def noised(self, value, scale, draws):
        noise = Draws(bytes(32)).noised(np.zeros((1, 7000)), np.ones(1), NORMAL)[0]
        return value + np.resize(noise, value.shape) * scale[:, None]


class Broken(Gaussian):
    def noised(self, value, scale, draws):
        return np.full_like(value, np.inf)


HOSTILE = {
    Smaller: "scale",
    SmallerLaplace: "scale",
    ForOne: "budgets",
    OneSeed: "pairs",
    Reused: "pairs",
    Negated: "pairs",
    Antithetic: "lags",
    OneInAThousand: "rows",
    Clamped: "extremes",
    WrongLaw: "shape",
    BareColumn: "columns",
    Doubled: "values",
    Shifted: "centre",
    Cyclic: "lags",
    Broken: "finite",
}


@pytest.mark.parametrize("kind", HOSTILE, ids=lambda k: k.__name__)
def test_every_hostile_mechanism_is_accused_by_the_test_that_is_for_it(kind):
    assert HOSTILE[kind] in names(played(kind()))


def test_a_pair_of_messages_that_share_their_noise_is_found_among_a_hundred_thousand():
    class OnePair(Gaussian):
        def noised(self, value, scale, draws):
            noise = super().noised(np.zeros_like(value), np.ones(len(value)), draws)
            noise[-1] = -noise[-5000]
            return value + noise * scale[:, None]

    assert names(played(OnePair(), clients=100_000, width=34, rounds=1, key=1)) == {"twins"}


@pytest.mark.parametrize("kind", [Gaussian, Laplace])
@pytest.mark.parametrize("shape", [(CLIENTS, WIDTH, ROUNDS), (4, 15, 6), (20, 1, 50), (1000, 34, 12), (2, 100_000, 2)])
def test_honest_noise_is_not_accused(kind, shape):
    for key in range(3):
        found = played(kind(), *shape, key=key)
        assert found.alarms == ()
        assert found.residuals == np.prod(shape)


def test_honest_noise_fails_each_test_about_as_often_as_it_says():
    """Of 400 honest audits with about nine tests each, p below 1/20 in a twentieth of them; conservative ones less."""
    low: dict[str, int] = {}
    for key in range(400):
        for test in played(Laplace() if key % 2 else Gaussian(), 20, 34, 8, key=key).tests:
            low[test.name] = low.get(test.name, 0) + (test.p < 0.05)
    assert set(low) == {
        *("scale", "rows", "budgets", "shape", "centre", "extremes", "columns", "values", "pairs", "twins", "lags")
    }
    assert all(count <= 38 for count in low.values()), low  # 20 expected, 38 is four standard deviations more
    for exact in ("scale", "rows", "budgets", "centre", "extremes", "columns"):
        assert low[exact] >= 5, low


def test_losses_and_messages_of_two_widths_are_examined_together():
    tape = Tape()
    shadow, rng = shadowed(Laplace(), tape), np.random.default_rng(0)
    for _ in range(20):
        for width in (50, 2):
            shadow.release(torch.from_numpy(rng.normal(size=(20, width))), np.ones(20), Draws(rng.bytes(32)))
    found = examine(tape, LAPLACE)
    assert found.messages == 800
    assert found.residuals == 20 * 20 * 52
    assert found.alarms == ()


def test_the_power_it_states_is_the_power_it_has():
    """At the scale it calls visible, nine audits in ten accuse."""
    visible = played(Gaussian(), 40, 100, 5).visible
    assert visible == pytest.approx(1 - (5.68 + 1.28) / (np.sqrt(20_000) * response(NORMAL)), abs=2e-3)

    class Just(Gaussian):
        def noised(self, value, scale, draws):
            return super().noised(value, scale * visible, draws)

    accused = sum(bool(played(Just(), 40, 100, 5, key=key).alarms) for key in range(60))
    assert 48 <= accused <= 59  # 54 expected
    assert response(LAPLACE) == pytest.approx(1.0, abs=1e-3)
    assert smallest_seen(NORMAL, 0, 9) == 0.0
    assert ALARM == 1e-6


def test_the_shadow_changes_nothing():
    tape = Tape()
    value, scale, key = torch.ones(3, 4, dtype=torch.float64), np.array([1.0, 2.0, 3.0]), bytes(32)
    plain = Gaussian().release(value, scale, Draws(key))
    assert torch.equal(shadowed(Gaussian(), tape).release(value, scale, Draws(key)), plain)
    np.testing.assert_allclose(tape.kept[0][2], (plain.numpy() - 1) / scale[:, None])
    assert isinstance(shadowed(Gaussian(), tape), Gaussian)
