"""What less noise would buy: the limit before training, and a measured curve."""

import math

import numpy as np
import pytest
import yaml
from harness import assembly_of, record_of
from places import place
from typer.testing import CliRunner

from dpflbench.cli import app
from dpflbench.cli.limit_table import _row
from dpflbench.counterfactual import counterfactual
from dpflbench.execution.attempt import execute
from dpflbench.execution.prepare import prepare
from dpflbench.federation.simulate import initial_state, rounds
from dpflbench.forecast import forecast
from dpflbench.planning import make_run
from dpflbench.results.record import ACCURACY, MSE
from dpflbench.what_if import Curve, levels, measure, noisy_mean


def limit_of(folder, body, *arguments):
    """What `plan --limit` prints."""
    path = folder / "s.yaml"
    path.write_text(yaml.safe_dump(body))
    shown = CliRunner().invoke(app, ["plan", str(path), "--limit", *map(str, arguments)])
    assert shown.exit_code == 0, shown.output
    return shown.output


def test_a_curve_is_read_off_in_log_variance_and_never_beyond_its_ends():
    curve = Curve([0.0, 1e-4, 1e-2], [90.0, 80.0, 60.0], ACCURACY)
    assert curve.at(1e-3) == pytest.approx(70.0)
    assert curve.at(1e-4) == pytest.approx(80.0)
    assert math.isnan(curve.at(1e-5))
    assert math.isnan(curve.at(1e-1))
    assert Curve([0.0, 1e-4, 1e-3, 1e-2], [90.0, 80.0, math.nan, 60.0], ACCURACY).at(1e-3) == pytest.approx(70.0)


def test_levels_go_from_the_limit_to_the_noisiest(tiny, catalogue):
    found = [forecast(assembly_of(tiny, catalogue, use), place()) for use in ("DPSGD", "WeiAvg")]
    chosen = levels(found, 3)
    assert chosen[0] == 0.0
    assert chosen[1] == pytest.approx(found[0].limit)
    assert chosen[3] == pytest.approx(max(f.variance for f in found))
    assert chosen[2] == pytest.approx(math.sqrt(chosen[1] * chosen[3]))


@pytest.mark.parametrize(("mechanism", "use"), [("gaussian", "DPSGD"), ("laplace", "DMLDP")])
def test_a_point_injects_the_noise_it_says_and_claims_no_privacy(tiny, catalogue, mechanism, use):
    tiny["privacy"]["mechanism"] = mechanism
    made = noisy_mean(assembly_of(tiny, catalogue, use), 0.04, catalogue)
    assert not made.algorithm.private
    prepared = prepare(made, place())
    *_, last = rounds(prepared.world, initial_state(prepared.world, prepared.theta, prepared.phi), prepared.ledger)
    assert last.pull.variance / last.pull.rounds == pytest.approx(0.04, rel=1e-6)
    record = execute(make_run(made.config, made, made.task.dataset.digest(None)), catalogue, place())
    assert not record.private
    assert np.isinf(record.clients["epsilon_spent"]).all()


def test_without_noise_a_point_is_the_clipped_mean_and_with_much_noise_it_is_worse(tiny, catalogue):
    curve = measure(assembly_of(tiny, catalogue, "DPSGD"), [0.0, 1e-8, 100.0], catalogue, place())
    clipped = execute(counterfactual(record_of(tiny, catalogue, "DPSGD"), "noise", catalogue), catalogue, place())
    assert curve.utilities[0] == clipped.final["utility_global"]
    assert curve.utilities[1] == pytest.approx(curve.utilities[0], abs=2.0)
    assert curve.utilities[2] < curve.utilities[0] - 10


def test_the_limit_is_shown_before_training_and_every_algorithm_beside_it(tiny, tmp_path):
    tiny["algorithms"], tiny["axes"] = ["FedSGD", "WeiAvg", "PFA"], {"privacy.mechanism": ["gaussian", "laplace"]}
    text = limit_of(tmp_path, tiny)
    assert text.count("limit of a plain mean") == 1  # under Laplace noise alone
    assert "FedSGD" not in text
    first = next(line.split() for line in text.splitlines() if line.startswith("limit "))
    assert first[2] == "1.00"
    assert sum(line.startswith("PFA") and "≈" in line for line in text.splitlines()) == 2


def test_measured_points_say_what_the_limit_would_buy(tiny, tmp_path):
    tiny["algorithms"] = ["DPSGD"]
    text = limit_of(tmp_path, tiny, "--measure", 2)
    assert "at the limit it would gain" in text
    assert text.count("Measured accuracy by noise") == 1
    assert text.count(": –") == 0


@pytest.mark.parametrize(("metric", "gain"), [(ACCURACY, "−1.50"), (MSE, "+1.50")])
def test_a_gain_is_one_in_the_direction_of_the_metric(tiny, catalogue, metric, gain):
    told = forecast(assembly_of(tiny, catalogue, "DPSGD"), place())
    curve = Curve([0.0, told.limit, told.variance], [3.0, 2.0, 3.5], metric)
    assert _row("DPSGD", told, "0.1234", curve)[-2:] == ["3.50", gain]
