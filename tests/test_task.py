"""From a data set to a task: test split, limit, held-out shards, references; each decision with its own draws."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dpflbench.errors import DpflbenchError
from dpflbench.interfaces import Examples
from dpflbench.randomness import Streams
from dpflbench.tasks.datasets import load_task
from dpflbench.tasks.features import Pca
from dpflbench.tasks.mnist import Mnist
from dpflbench.tasks.partition import Dirichlet, Iid, Writer


class Numbered:
    """A data set whose x are the numbers 0 … 99 (0 … 79 for training), so that every example can be followed."""

    loads = 0

    def __init__(self, regression=False, test_share=None, groups=False):
        self.regression, self.groups = regression, groups
        if test_share is not None:
            self.test_share = test_share

    def __repr__(self):
        return f"Numbered({self.regression})"

    def availability(self, root):
        raise NotImplementedError

    def digest(self, root):
        return "numbered"

    def load(self, root):
        type(self).loads += 1
        x = torch.arange(100.0)[:, None].repeat(1, 2)
        y = 3.0 * x[:, 0] + 1.0 if self.regression else torch.arange(100) % 4
        writers = torch.arange(100) // 10
        groups = {"groups": writers[:80], "test_groups": writers[80:]} if self.groups else {}
        return Examples(x[:80], y[:80], x[80:], y[80:], 0 if self.regression else 4, **groups)


def build(dataset=None, partition=None, n_clients=4, holdout=0.1, split="official", seed=0, **more):
    return load_task(
        dataset or Numbered(), None, partition or Iid(1), n_clients, holdout, split, Streams(seed), None, **more
    )


def numbers(x):
    return set(x[:, 0].int().tolist())


def test_every_training_example_is_trained_on_or_held_out_and_the_test_part_is_the_official_one():
    task = build()
    assert numbers(task.train.x) | numbers(task.holdout.x) == set(range(80))
    assert not numbers(task.train.x) & numbers(task.holdout.x)
    assert numbers(task.test_x) == set(range(80, 100))
    assert task.train.sizes.tolist() == [18] * 4
    assert task.holdout.sizes.tolist() == [2] * 4
    assert task.train.offsets.tolist() == [0, 18, 36, 54, 72]


def test_labels_stay_with_their_examples():
    task = build(partition=Dirichlet(1.0, 2))
    for shards in (task.train, task.holdout):
        assert torch.equal(shards.x[:, 0].long() % 4, shards.y)
    assert torch.equal(task.test_x[:, 0].long() % 4, task.test_y)


def test_without_holdout_everything_is_trained_on():
    task = build(holdout=0.0)
    assert len(task.train.x) == 80
    assert task.holdout.sizes.tolist() == [0] * 4


def test_holding_out_more_does_not_change_who_owns_what():
    some, more = build(holdout=0.1), build(holdout=0.5)
    for client in range(4):
        owned = [
            numbers(shards.x[slice(*shards.offsets[client : client + 2])]) for shards in (some.train, some.holdout)
        ]
        again = [
            numbers(shards.x[slice(*shards.offsets[client : client + 2])]) for shards in (more.train, more.holdout)
        ]
        assert owned[0] | owned[1] == again[0] | again[1]
        assert owned[1] < again[1]


def test_the_same_seed_gives_the_same_task_and_another_seed_another():
    one, same, other = build(), build(), build(seed=1)
    assert torch.equal(one.train.x, same.train.x)
    assert not torch.equal(one.train.x, other.train.x)


def test_the_papers_split_draws_as_many_test_examples_from_everything():
    task = build(split="paper")
    assert len(task.test_x) == 20
    assert numbers(task.test_x) != set(range(80, 100))
    assert numbers(task.test_x) | numbers(task.train.x) | numbers(task.holdout.x) == set(range(100))
    assert numbers(build(split="paper", seed=1).test_x) != numbers(task.test_x)


def test_a_data_sets_own_test_share_and_a_limit_are_honoured():
    task = build(Numbered(test_share=0.1), split="paper", limit=50)
    assert len(task.test_x) == 5
    assert task.train.sizes.sum() + task.holdout.sizes.sum() == 45


def test_a_limit_on_the_official_split_leaves_the_test_part_alone():
    task = build(limit=40, holdout=0.0)
    assert len(task.train.x) == 40
    assert numbers(task.train.x) < set(range(80))
    assert numbers(task.test_x) == set(range(80, 100))


@pytest.mark.parametrize(
    ("split", "limit", "text"), [("official", 81, "1 to 80"), ("paper", 101, "1 to 100"), ("paper", 2, "leave 0")]
)
def test_an_impossible_limit_is_refused(split, limit, text):
    with pytest.raises(DpflbenchError, match=text):
        build(split=split, limit=limit)


def test_an_impossible_holdout_is_refused():
    with pytest.raises(DpflbenchError, match=r"holdout: 1\.0; allowed"):
        build(holdout=1.0)


@pytest.mark.parametrize("split", ["official", "paper"])
def test_writers_stay_whole_under_both_splits(split):
    task = build(Numbered(groups=True), Writer(5), n_clients=5, holdout=0.0, split=split)
    for client in range(5):
        owned = task.train.x[slice(*task.train.offsets[client : client + 2]), 0]
        assert len({int(number) // 10 for number in owned}) == 1


def test_regression_knows_what_trivial_models_reach():
    task = build(Numbered(regression=True), holdout=0.0)
    y = 3.0 * np.arange(100) + 1.0
    assert task.references["predict_the_mean"] == pytest.approx(((y[80:] - y[:80].mean()) ** 2).mean())
    assert task.references["least_squares"] == pytest.approx(0.0, abs=1e-6)
    assert task.n_outputs == 1


def test_classification_knows_what_its_most_frequent_class_reaches():
    class Lopsided(Numbered):
        def load(self, root):
            y = (torch.arange(100) % 5 == 0).long()  # 16 of 80 and 4 of 20
            return replace(super().load(root), y_train=y[:80], y_test=y[80:], n_classes=2)

    assert build(Lopsided(), holdout=0.0).references == {"predict_the_majority": 80.0}


def test_features_of_the_official_split_are_computed_once(tmp_path, monkeypatch):
    monkeypatch.setenv("DPFLBENCH_CACHE", str(tmp_path))
    before = Numbered.loads
    tasks = [load_task(Numbered(), Pca(1), Iid(1), 4, 0.1, "official", Streams(seed), None) for seed in (0, 1, 2)]
    assert Numbered.loads == before + 1
    assert tasks[0].n_classes == 4
    assert tasks[0].input_shape == (1,)


def test_a_data_set_that_does_not_show_its_parameters_is_not_cached(tmp_path, monkeypatch):
    class Nameless(Numbered):
        __repr__ = object.__repr__

    monkeypatch.setenv("DPFLBENCH_CACHE", str(tmp_path))
    before = Nameless.loads
    for _ in range(2):
        load_task(Nameless(), Pca(1), Iid(1), 4, 0.1, "official", Streams(0), None)
    assert Nameless.loads == before + 2
    assert not list(tmp_path.iterdir())


def test_features_of_the_papers_split_are_fitted_on_that_seeds_training_part(tmp_path, monkeypatch):
    monkeypatch.setenv("DPFLBENCH_CACHE", str(tmp_path))
    for seed in (0, 1):
        task = load_task(Numbered(), Pca(1), Iid(1), 4, 0.0, "paper", Streams(seed), None)
        assert task.train.x.square().sum(1).mean().item() == pytest.approx(1.0, abs=1e-5)
        assert task.train.x.mean().item() == pytest.approx(0.0, abs=1e-5)


def test_mnist_as_fifty_principal_components_is_the_main_jobs_task():
    task = load_task(Mnist(), Pca(50), Dirichlet(3.0), 100, 0.1, "official", Streams(0), None)
    assert task.input_shape == (50,)
    assert task.n_outputs == 10
    assert len(task.test_x) == 10_000
    assert task.train.sizes.sum() + task.holdout.sizes.sum() == 60_000
    assert task.train.x.square().sum(1).mean().item() == pytest.approx(1.0, abs=0.01)
    assert task.train.sizes.min() >= 9


def test_images_stay_bytes():
    task = load_task(Mnist(), None, Iid(), 10, 0.1, "official", Streams(0), None)
    assert task.train.x.dtype == torch.uint8
    assert task.input_shape == (1, 28, 28)
