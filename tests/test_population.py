"""Budget distributions, and the picture of a federation."""

import csv
import math

import numpy as np
import pytest
import torch

from dpflbench.errors import DpflbenchError
from dpflbench.report.population_figure import label_counts, write_population
from dpflbench.tasks.population import DISTRIBUTIONS, Constant, Listed, Mixture, Normal, Pareto, Uniform
from dpflbench.tasks.task import Shards, Task


def rng(seed=0):
    return np.random.default_rng(seed)


def test_every_kind_a_suite_may_name_is_there():
    assert set(DISTRIBUTIONS) == {"constant", "uniform", "mixture", "normal", "pareto", "listed"}


@pytest.mark.parametrize(
    "distribution",
    [
        Constant(2.0),
        Uniform(0.1, 3.0),
        Mixture((0.5, 8.0), (3.0, 1.0)),
        Normal(1.0, 2.0, 0.1, 5.0),
        Pareto(1.5, 0.2, 10.0),
    ],
)
def test_draws_are_float64_within_bounds_and_the_same_for_the_same_stream(distribution):
    drawn = distribution.draw(1000, rng())
    low, high = distribution.bounds()
    assert drawn.dtype == np.float64
    assert drawn.shape == (1000,)
    assert low <= drawn.min() <= drawn.max() <= high
    assert np.array_equal(drawn, distribution.draw(1000, rng()))


def test_uniform_has_mean_in_the_middle_and_scales_the_same_draws():
    drawn = Uniform(1.0, 3.0).draw(20_000, rng())
    assert drawn.mean() == pytest.approx(2.0, abs=0.02)
    assert np.allclose(Uniform(1.0, 5.0).draw(20_000, rng()) - 1.0, 2.0 * (drawn - 1.0))


def test_mixture_takes_values_in_proportion_to_weights():
    drawn = Mixture((0.5, 8.0), (3.0, 1.0)).draw(20_000, rng())
    assert set(drawn) == {0.5, 8.0}
    assert (drawn == 0.5).mean() == pytest.approx(0.75, abs=0.01)


def test_truncated_normal_has_the_textbook_mean_and_no_heap_at_the_border():
    drawn = Normal(0.0, 1.0, 0.0).draw(50_000, rng())
    assert drawn.mean() == pytest.approx(math.sqrt(2 / math.pi), abs=0.01)  # half-normal
    assert (drawn == 0.0).mean() < 0.001


def test_truncated_normal_works_far_out_in_the_tail():
    drawn = Normal(0.0, 1.0, 20.0, 21.0).draw(1000, rng())
    assert drawn.min() >= 20.0
    assert drawn.mean() == pytest.approx(20.0 + 1 / 20, abs=0.01)


def test_pareto_has_the_textbook_median_and_respects_its_ceiling():
    drawn = Pareto(2.0, 1.0).draw(50_000, rng())
    assert np.median(drawn) == pytest.approx(math.sqrt(2.0), abs=0.01)  # low * 2^(1/shape)
    assert Pareto(2.0, 1.0, 3.0).draw(50_000, rng()).max() < 3.0


def test_listed_budgets_are_used_in_order_and_must_match_the_clients():
    assert Listed((1.0, 2.0, 3.0)).draw(3, rng()).tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(DpflbenchError, match="3 values for 4 clients"):
        Listed((1.0, 2.0, 3.0)).draw(4, rng())


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Uniform(3.0, 1.0), "low: 3.0 with high 1.0"),
        (lambda: Uniform(0.0, math.inf), "high: inf"),
        (lambda: Mixture((1.0,), (1.0, 2.0)), "1 values and 2 weights"),
        (lambda: Mixture((1.0, 2.0), (0.0, 0.0)), "weights: "),
        (lambda: Normal(0.0, 0.0, 0.0), "std: 0.0"),
        (lambda: Pareto(0.0, 1.0), "shape: 0.0"),
        (lambda: Pareto(1.0, 0.0), "low: 0.0"),
    ],
)
def test_impossible_parameters_are_refused_with_what_is_allowed(make, text):
    with pytest.raises(DpflbenchError, match=text) as caught:
        make()
    assert "allowed" in str(caught.value)


def task(n_classes, y):
    y = torch.tensor(y)
    shards = Shards(torch.zeros(len(y), 2), y, np.array([0, 2, 5]))
    none = Shards(torch.zeros(1, 2), y[:1], np.array([0, 0, 1]))
    return Task(shards, none, torch.zeros(1, 2), y[:1], n_classes, {})


def test_label_counts_are_each_clients_own():
    names, counts = label_counts(task(3, [0, 2, 1, 1, 2]))
    assert names == ["label_0", "label_1", "label_2"]
    assert counts.tolist() == [[1, 0, 1], [0, 2, 1]]


def test_regression_labels_are_counted_by_tenths():
    names, counts = label_counts(task(0, [0.0, 1.0, 2.0, 3.0, 4.0]))
    assert names[0] == "tenth_1"
    assert counts.sum(axis=1).tolist() == [2, 3]


def test_a_population_is_one_picture_and_one_table(tmp_path):
    picture, table = write_population(
        task(3, [0, 2, 1, 1, 2]), np.array([0.5, 2.0]), np.array([1e-5, 0.0]), tmp_path / "new"
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader(table.open()))
    assert [row["n_examples"] for row in rows] == ["2", "3"]
    assert [row["n_holdout"] for row in rows] == ["0", "1"]
    assert rows[0]["epsilon"] == "0.5"
    assert rows[0]["delta"] == "1e-05"
    assert rows[1]["label_1"] == "2"


def test_a_population_without_privacy_can_be_drawn(tmp_path):
    picture, _ = write_population(task(3, [0, 2, 1, 1, 2]), np.full(2, np.inf), np.zeros(2), tmp_path)
    assert picture.exists()
