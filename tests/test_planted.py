"""The audit of a suite's own run: honest runs pass, and noise that is too small is seen with the run's own model."""

from dataclasses import replace

import numpy as np
import pytest
from honest import honest_suite
from test_audit import SHORT, priced
from test_residuals import HOSTILE, Broken, ForOne, Reused

from dpflbench.draws import LAPLACE, NORMAL
from dpflbench.errors import DpflbenchError
from dpflbench.execution.prepare import Place
from dpflbench.judges.audit import audit_noise, trains
from dpflbench.judges.planted import at_least, audit_run, information
from dpflbench.planning import columns_of
from dpflbench.suite_reading import check, normalise
from dpflbench_algorithms.mechanisms import Gaussian, Laplace
from dpflbench_algorithms.weiavg import weiavg


def columns(blobs, catalogue, epsilon=6.0):
    raw = honest_suite(str(blobs))
    raw["axes"] = {"privacy.mechanism": ["gaussian", "laplace"]}
    raw["federation"] = {**raw["federation"], "clients": 30, "cohort": 15, "rounds": 8}
    raw["privacy"] = {**raw["privacy"], "epsilon": epsilon}
    problems: list[str] = []
    suite = check(normalise(raw), "suite.yaml", problems)
    assert suite is not None, problems
    return [c for c in columns_of(suite, catalogue) if c.assembly is not None and not c.reason]


class TenthGaussian(Gaussian):
    """A tenth of the noise."""

    def noised(self, value, scale, draws):
        return super().noised(value, scale / 10, draws)


class FortiethLaplace(Laplace):
    """A fortieth: sums of epsilons over uses are far from what messages give away, and little is seen."""

    def noised(self, value, scale, draws):
        return super().noised(value, scale / 40, draws)


def test_honest_runs_of_every_algorithm_pass_with_their_own_model_and_aggregator(blobs, catalogue):
    seen = set()
    for column in columns(blobs, catalogue):
        if not column.assembly.algorithm.private:
            with pytest.raises(DpflbenchError, match="promises no privacy"):
                audit_run(column.assembly, Place())
            continue
        noise, coins = audit_run(column.assembly, Place(), repeats=2)
        assert noise.alarms == ()
        assert not coins.violated(0.9999)
        assert 0.3 < coins.reach <= 1.0 + 1e-9  # canaries move a message as far as they may, and no further
        seen.add((column.entry.label, column.coordinates["privacy.mechanism"]))
    assert len(seen) == 11


@pytest.mark.parametrize(("kind", "name"), [(TenthGaussian, "gaussian"), (FortiethLaplace, "laplace")])
def test_far_too_little_noise_is_seen_by_guesses_alone(blobs, catalogue, kind, name):
    column = next(
        c
        for c in columns(blobs, catalogue, epsilon=1.0)
        if c.entry.label == "WeiAvg" and c.coordinates["privacy.mechanism"] == name
    )
    hostile = replace(column.assembly, privacy=replace(column.assembly.privacy, mechanism=kind()))
    noise, coins = audit_run(hostile, Place(), repeats=3)
    assert coins.violated(0.999), coins
    assert "scale" in {t.name for t in noise.alarms}


def test_the_chance_of_so_many_right_guesses_by_hand():
    assert at_least([0.5, 0.5], 2) == pytest.approx(0.25)
    assert at_least([0.5, 0.5], 0) == pytest.approx(1.0)
    assert at_least([0.9, 0.2, 0.5], 3) == pytest.approx(0.09)
    assert at_least(np.full(100, 0.6), 75) == pytest.approx(0.00119, abs=2e-4)


def test_the_information_about_a_shift_of_both_laws_is_one():
    assert information(NORMAL) == pytest.approx(1.0, abs=1e-3)
    assert information(LAPLACE) == pytest.approx(1.0, abs=1e-3)


def test_guesses_say_what_they_would_have_seen(blobs, catalogue):
    """Noise a little below what is called visible is mostly seen, noise a little above mostly not."""
    column = next(c for c in columns(blobs, catalogue) if c.entry.label == "WeiAvg")
    visible = audit_run(column.assembly, Place(), repeats=6)[1].visible
    assert 0.2 < visible < 0.9

    def seen(share):
        class Less(Gaussian):
            def noised(self, value, scale, draws):
                return super().noised(value, scale * share, draws)

        hostile = replace(column.assembly, privacy=replace(column.assembly.privacy, mechanism=Less()))
        return sum(audit_run(hostile, Place(), 6, seed)[1].violated(0.999) for seed in range(6))

    assert seen(0.8 * visible) >= 4
    assert seen(1.0) == 0


def test_the_same_audit_twice_says_the_same(blobs, catalogue):
    column = next(c for c in columns(blobs, catalogue) if c.entry.label == "DPSGD")
    assert audit_run(column.assembly, Place(), 2, 5)[1] == audit_run(column.assembly, Place(), 2, 5)[1]


@pytest.mark.parametrize("kind", [k for k in HOSTILE if k not in (Broken, ForOne, Reused)], ids=lambda k: k.__name__)
def test_every_hostile_mechanism_is_accused_on_the_audit_s_own_federation(kind):
    assert audit_noise(weiavg(), kind(), priced(kind())).alarms != ()


@pytest.mark.parametrize("mechanism", [Gaussian(), Laplace()], ids=["gaussian", "laplace"])
def test_the_noise_of_every_installed_algorithm_is_what_its_ledger_says(catalogue, mechanism):
    for name, part in catalogue.parts["algorithms"].items():
        algorithm = part.factory(**SHORT.get(name, {}))
        allowed = algorithm.mechanisms is None or mechanism.name in algorithm.mechanisms
        if algorithm.private and not trains(algorithm) and allowed:  # test_audit_sampled.py has the others
            found = audit_noise(algorithm, mechanism, priced(mechanism), clients=256, many=4)
            assert found.alarms == (), name
