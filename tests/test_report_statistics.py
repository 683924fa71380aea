"""Paired statistics against numbers one can check by hand or against scipy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpflbench.report.statistics import (
    critical_difference,
    effect_size,
    friedman_p,
    holm,
    interval,
    mean_ranks,
    paired,
    paired_p,
    seeds_needed,
    smallest_p,
)


def test_six_seeds_all_better_give_two_in_sixty_four():
    assert paired_p([1, 2, 3, 4, 5, 6]) == 2 / 64


def test_five_seeds_cannot_go_below_a_sixteenth():
    assert paired_p([10, 10, 10, 10, 10]) == 0.0625
    assert smallest_p(5) == 0.0625


def test_one_of_four_against_the_rest_by_hand():
    # |sums| over signs of (1, 2, 3, -1): the observed 5 is reached by 7, 5 (twice) of the 8 patterns up to a common
    # sign
    assert paired_p([1, 2, 3, -1]) == 3 / 8


def test_equal_results_are_no_evidence_at_all():
    assert paired_p([0, 0, 0, 0, 0, 0]) == 1.0
    assert effect_size([0, 0, 0]) == 0.0


def test_no_pair_or_a_missing_value_gives_no_p():
    assert math.isnan(paired_p([]))
    assert math.isnan(paired_p([1.0, math.nan]))


def test_the_exact_test_agrees_with_scipys_permutation_test():
    from scipy.stats import permutation_test

    d = np.random.default_rng(3).normal(0.4, 1, 9)
    theirs = permutation_test((d,), np.sum, permutation_type="samples", n_resamples=np.inf, alternative="two-sided")
    assert paired_p(d) == pytest.approx(theirs.pvalue)


def test_above_sixteen_pairs_wilcoxon_serves():
    from scipy.stats import wilcoxon

    d = np.random.default_rng(5).normal(0.2, 1, 20)
    assert paired_p(d) == pytest.approx(wilcoxon(d, zero_method="zsplit").pvalue)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=10))
def test_p_does_not_depend_on_the_sign_of_all_differences_and_never_beats_its_bound(d):
    p = paired_p(d)
    assert p == paired_p([-x for x in d])
    assert smallest_p(len(d)) <= p <= 1.0


def test_the_interval_is_students():
    # mean 2, std 1, n 3, t(0.975, 2) = 4.302653: 2 ± 4.302653 / sqrt(3)
    low, high = interval([1.0, 2.0, 3.0])
    assert (low, high) == (pytest.approx(2 - 2.48414, abs=1e-5), pytest.approx(2 + 2.48414, abs=1e-5))
    assert all(math.isnan(x) for x in interval([1.0]))


def test_the_effect_size_is_the_mean_in_standard_deviations():
    assert effect_size([1, 2, 3]) == pytest.approx(2.0)
    assert effect_size([2, 2, 2]) == math.inf
    assert effect_size([-2, -2]) == -math.inf
    assert math.isnan(effect_size([2]))


def test_paired_counts_both_ways_and_leaves_ties_out():
    found = paired([1.0, -2.0, 0.0, 3.0])
    assert (found.n, found.above, found.below, found.mean) == (4, 2, 1, 0.5)


def test_holm_by_hand():
    # sorted 0.01, 0.02, 0.04 times 3, 2, 1, never falling
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.03, 0.03]) == pytest.approx([0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_does_not_count_what_was_not_tested():
    assert holm([0.04, math.nan])[0] == pytest.approx(0.04)
    assert math.isnan(holm([0.04, math.nan])[1])


def test_seeds_needed_for_any_significance():
    assert seeds_needed() == 6
    assert [seeds_needed(m) for m in (2, 3, 4, 5, 6, 7, 12, 13)] == [7, 7, 8, 8, 8, 9, 9, 10]
    assert smallest_p(6, 5) == pytest.approx(5 / 32)


def test_ranks_turn_round_where_lower_is_better():
    values = np.array([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
    assert mean_ranks(values, np.array([True, True])).tolist() == [1, 3, 2]
    assert mean_ranks(values, np.array([True, False])).tolist() == [2, 2, 2]


def test_the_critical_difference_of_demsars_example():
    # Demšar (2006), section 3.2.4: 4 classifiers on 14 data sets, q = 2.569, CD = 1.25
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)


def test_friedman_needs_three_columns_and_sees_a_constant_order():
    assert math.isnan(friedman_p(np.ones((5, 2))))
    assert friedman_p(np.ones((5, 3))) == 1.0
    assert friedman_p(np.tile([1.0, 2.0, 3.0], (8, 1))) < 0.001


def test_equal_differences_have_a_mean_and_no_interval():
    equal = paired([1.0, 1.0])
    assert equal.mean == 1.0
    assert math.isnan(equal.low)
    assert math.isnan(equal.high)
    assert math.isnan(paired([0.0, 0.0, 0.0]).low)
    # 1 ± 12.706 * 1.414 / √2
    assert (paired([0.0, 2.0]).low, paired([0.0, 2.0]).high) == pytest.approx((-11.706, 13.706), abs=0.001)
