"""Who owns what: each kind's law, the floor on client size, and agreement with Flower Datasets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpflbench.errors import DpflbenchError
from dpflbench.tasks.partition import (
    NOBODY,
    PARTITIONS,
    Dirichlet,
    Iid,
    PowerLaw,
    ShardsOfClasses,
    Writer,
    quantile_classes,
)

CLASSES = np.repeat(np.arange(10), 600)  # 6,000 examples, ten classes


def rng(seed=0):
    return np.random.default_rng(seed)


def histogram(owner, classes, n_clients):
    counts = np.zeros((n_clients, classes.max() + 1), dtype=int)
    np.add.at(counts, (owner, classes), 1)
    return counts


def test_every_kind_a_suite_may_name_is_there():
    assert set(PARTITIONS) == {"iid", "dirichlet", "shards", "writer", "power_law"}


@pytest.mark.parametrize("partition", [Iid(), Dirichlet(0.5, 1), ShardsOfClasses(2), PowerLaw(0.5)])
def test_every_example_has_one_owner_and_the_same_stream_gives_the_same_owners(partition):
    owner = partition.assign(CLASSES, None, 20, rng())
    assert owner.dtype == np.int64
    assert owner.shape == CLASSES.shape
    assert set(owner) == set(range(20))
    assert np.array_equal(owner, partition.assign(CLASSES, None, 20, rng()))
    assert not np.array_equal(owner, partition.assign(CLASSES, None, 20, rng(1)))


@settings(max_examples=25, deadline=None)
@given(n_clients=st.integers(1, 30), alpha=st.floats(0.3, 100.0), seed=st.integers(0, 2**32))
def test_dirichlet_deals_out_everything_and_keeps_the_floor(n_clients, alpha, seed):
    owner = Dirichlet(alpha, 5).assign(CLASSES, None, n_clients, rng(seed))
    sizes = np.bincount(owner, minlength=n_clients)
    assert sizes.sum() == len(CLASSES)
    assert sizes.min() >= 5


def test_iid_clients_are_of_equal_size():
    sizes = np.bincount(Iid().assign(CLASSES[:5999], None, 7, rng()))
    assert sorted(sizes) == [857] * 7


def test_large_alpha_is_nearly_even_and_small_alpha_is_not():
    even = histogram(Dirichlet(1000.0).assign(CLASSES, None, 10, rng()), CLASSES, 10)
    skewed = histogram(Dirichlet(0.1, 1).assign(CLASSES, None, 10, rng()), CLASSES, 10)
    assert even.min() > 50  # 60 each on average
    assert even.max() < 70
    assert (skewed.max(axis=0) > 300).mean() > 0.4  # one client has half of a class


def test_dirichlet_shares_have_the_beta_variance():
    """A client's share of a class is Beta(alpha, (N - 1) alpha): mean 1/N, variance (N - 1) / (N² (N alpha + 1))."""
    shares = np.concatenate(
        [histogram(Dirichlet(2.0, 0).assign(CLASSES, None, 10, rng(s)), CLASSES, 10) / 600 for s in range(60)]
    )
    assert shares.mean() == pytest.approx(0.1)
    assert shares.var() == pytest.approx(9 / (100 * 21), rel=0.05)


def test_dirichlet_class_histograms_agree_with_flower_datasets():
    partitioners = pytest.importorskip("flwr_datasets.partitioner", reason="Flower Datasets is not installed")
    datasets = pytest.importorskip("datasets")
    from scipy.stats import ks_2samp

    table = datasets.Dataset.from_dict({"label": CLASSES.tolist()})
    theirs, ours = [], []
    for seed in range(6):
        flower = partitioners.DirichletPartitioner(
            num_partitions=10, partition_by="label", alpha=0.5, min_partition_size=10, self_balancing=False, seed=seed
        )
        flower.dataset = table
        for client in range(10):
            labels = np.array(flower.load_partition(client)["label"])
            theirs.append(np.bincount(labels, minlength=10))
        ours.extend(histogram(Dirichlet(0.5, 10).assign(CLASSES, None, 10, rng(seed)), CLASSES, 10))
    theirs, ours = np.array(theirs), np.array(ours)
    assert theirs.sum() == ours.sum() == 6 * len(CLASSES)
    assert ks_2samp(theirs.ravel(), ours.ravel()).pvalue > 0.01  # examples of a class at a client
    assert ks_2samp(theirs.sum(axis=1), ours.sum(axis=1)).pvalue > 0.01  # client sizes
    assert ks_2samp(theirs.max(axis=1) / theirs.sum(axis=1), ours.max(axis=1) / ours.sum(axis=1)).pvalue > 0.01  # skew


def test_shards_give_each_client_exactly_its_number_of_classes_and_balance_holders():
    counts = histogram(ShardsOfClasses(3).assign(CLASSES, None, 20, rng()), CLASSES, 20)
    assert ((counts > 0).sum(axis=1) == 3).all()
    assert ((counts > 0).sum(axis=0) == 6).all()  # 20 · 3 / 10 holders a class
    assert set(counts[counts > 0]) == {100}


def test_shards_that_cannot_be_are_refused():
    with pytest.raises(DpflbenchError, match="classes_per_client: 11; allowed: 1 to 10"):
        ShardsOfClasses(11).assign(CLASSES, None, 20, rng())
    with pytest.raises(DpflbenchError, match="4 clients of 2 classes cannot hold all 10 classes"):
        ShardsOfClasses(2).assign(CLASSES, None, 4, rng())


def test_a_client_is_one_writer_and_small_writers_are_left_out():
    groups = np.repeat([5, 9, 11, 30], [40, 3, 20, 25])
    owner = Writer(10).assign(np.zeros(88, dtype=np.int64), groups, 2, rng())
    chosen = [set(groups[owner == client]) for client in range(2)]
    assert all(len(writers) == 1 for writers in chosen)
    assert chosen[0] != chosen[1]
    assert 9 not in chosen[0] | chosen[1]
    for client in range(2):
        (writer,) = chosen[client]
        assert (owner == client).sum() == (groups == writer).sum()
    assert (owner == NOBODY).sum() == 88 - (owner >= 0).sum() > 0


def test_writers_must_be_known_and_enough():
    with pytest.raises(DpflbenchError, match="have no owners; take femnist, add groups_train and groups_test"):
        Writer().assign(CLASSES, None, 2, rng())
    with pytest.raises(DpflbenchError, match=r"1 of 2 writers have at least 10 examples.*2 wanted"):
        Writer(10).assign(np.zeros(25, dtype=np.int64), np.repeat([0, 1], [20, 5]), 2, rng())


def test_power_law_sizes_fall_with_rank():
    sizes = np.sort(np.bincount(PowerLaw(1.0, 1).assign(CLASSES[:2500], None, 4, rng())))[::-1]
    assert sizes.tolist() == [1200, 600, 400, 300]  # 2500 · (1, 1/2, 1/3, 1/4) / (25/12)
    assert np.ptp(np.bincount(PowerLaw(0.0).assign(CLASSES, None, 10, rng()))) == 0


@pytest.mark.parametrize(
    ("partition", "text"),
    [
        (Iid(601), "10 clients of at least 601 need 6010 examples, there are 6000"),
        (Dirichlet(3.0, 601), "10 clients of at least 601 need 6010 examples, there are 6000"),
        (Dirichlet(0.01, 300), "never gave each of 10 clients min_size 300"),
        (ShardsOfClasses(1, 601), "need 6010"),
        (PowerLaw(3.0, 10), "the smallest of 10 clients has 5 examples, min_size is 10"),
    ],
)
def test_a_floor_that_cannot_be_met_is_refused_with_a_way_out(partition, text):
    with pytest.raises(DpflbenchError, match=text) as caught:
        partition.assign(CLASSES, None, 10, rng())
    assert "allowed" in str(caught.value)


@pytest.mark.parametrize("make", [lambda: Dirichlet(0.0), lambda: Dirichlet(float("inf")), lambda: PowerLaw(-1.0)])
def test_parameters_out_of_range_are_refused(make):
    with pytest.raises(DpflbenchError, match="allowed"):
        make()


def test_regression_targets_become_ten_classes_of_equal_size():
    targets = rng().permutation(np.arange(1000, dtype=np.float64))
    classes = quantile_classes(targets)
    assert np.bincount(classes).tolist() == [100] * 10
    assert (classes[np.argsort(targets)] == np.repeat(np.arange(10), 100)).all()


def test_equal_targets_share_a_class():
    classes = quantile_classes(np.array([1.0] * 50 + [2.0] * 50))
    assert len(set(classes[:50])) == len(set(classes[50:])) == 1
