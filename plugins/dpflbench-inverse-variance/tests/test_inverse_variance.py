"""InvVar by hand, by its laws, and by dpflbench's own conformance checks."""

import pytest
import torch
from dpflbench_inverse_variance import InverseVariance, inv_var

from dpflbench.interfaces import Cohort
from dpflbench.testing import check_aggregator, check_algorithm, check_plugin


def aggregated(rows, variance, power=1.0):
    values = torch.tensor(rows, dtype=torch.float64)
    ones = torch.ones(len(values), dtype=torch.float64)
    clients, spread = torch.arange(len(values)), torch.tensor(variance, dtype=torch.float64)
    cohort = Cohort(clients=clients, epsilon=ones, delta=ones, n_examples=ones, variance=spread, round=0)
    return (InverseVariance(power).weights(cohort) @ values).tolist()


def test_a_row_with_a_quarter_of_the_variance_counts_four_times():
    assert aggregated([[1.0, 0.0], [0.0, 1.0]], [1.0, 4.0]) == pytest.approx([0.8, 0.2])


def test_equal_variances_and_power_zero_give_the_mean():
    assert aggregated([[1.0], [3.0]], [0.7, 0.7]) == pytest.approx([2.0])
    assert aggregated([[1.0], [3.0]], [1.0, 100.0], power=0.0) == pytest.approx([2.0])


def test_without_noise_it_is_the_mean():
    assert aggregated([[1.0], [3.0]], [0.0, 0.0]) == pytest.approx([2.0])


def test_variances_at_the_ends_of_float_do_not_overflow():
    assert aggregated([[1.0], [3.0]], [1e-300, 1e300]) == pytest.approx([1.0])


def test_no_other_weights_have_less_noise():
    # variance of the weighted mean at (a, 1 - a): a² + 4 (1 - a)², smallest at 0.8
    found = aggregated([[1.0], [0.0]], [1.0, 4.0])[0]
    assert all(found**2 + 4 * (1 - found) ** 2 <= a**2 + 4 * (1 - a) ** 2 for a in torch.linspace(0, 1, 101).tolist())


def test_it_conforms():
    check_aggregator(InverseVariance)
    check_algorithm(inv_var)


def test_the_installed_package_conforms():
    check_plugin("inverse_variance")
