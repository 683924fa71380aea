"""Features are fitted on training data only, scaled as documented, and the same on every run."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from dpflbench.errors import DpflbenchError
from dpflbench.tasks.features import FEATURES, Flatten, Pca, Standardise
from dpflbench.tasks.histograms import GradientHistograms, directions
from dpflbench.testing import check_feature


@pytest.fixture
def table():
    rng = np.random.default_rng(1)
    mixing = rng.normal(size=(6, 6)) * np.array([5, 3, 2, 1, 0.5, 0.1])
    train = torch.from_numpy((rng.normal(size=(400, 6)) @ mixing.T + 7).astype(np.float32))
    test = torch.from_numpy((rng.normal(size=(50, 6)) @ mixing.T + 7).astype(np.float32))
    return train, test


def test_every_kind_a_suite_may_name_is_there():
    assert set(FEATURES) == {"pca", "standardise", "flatten"}


def test_projections_are_those_of_scikit_learn_up_to_sign(table):
    train, test = table
    ours = Pca(3, scale="none").fit_apply(train, test)
    reference = PCA(3).fit(train.double().numpy())
    for mine, x in zip(ours, table, strict=True):
        expected = reference.transform(x.double().numpy())
        assert np.allclose(np.abs(mine.numpy()), np.abs(expected), atol=1e-4)


def test_signs_are_fixed_so_that_each_largest_loading_is_positive(table):
    train, _ = table
    loadings = Pca(3, scale="none").fit_apply(train, torch.eye(6) + train.mean(0))[1]
    mirrored = Pca(3, scale="none").fit_apply(train.flip(0), torch.eye(6) + train.mean(0))[1]
    assert (loadings[loadings.abs().argmax(0), torch.arange(3)] > 0).all()
    assert torch.allclose(loadings, mirrored, atol=1e-5)


def test_overall_scale_makes_the_mean_squared_training_norm_one_and_keeps_proportions(table):
    train, test = table
    scaled, plain = Pca(3).fit_apply(train, test)[0], Pca(3, scale="none").fit_apply(train, test)[0]
    assert scaled.square().sum(1).mean().item() == pytest.approx(1.0, abs=1e-5)
    ratio = scaled / plain
    assert torch.allclose(ratio, ratio[0, 0].expand_as(ratio), rtol=1e-3)


def test_each_scale_gives_every_component_unit_variance(table):
    scaled = Pca(4, scale="each", standardise=True).fit_apply(*table)[0]
    assert torch.allclose(scaled.var(0, unbiased=False), torch.ones(4), atol=1e-4)
    assert torch.allclose(scaled.mean(0), torch.zeros(4), atol=1e-5)


def test_overall_scale_does_not_depend_on_the_unit_of_the_input(table):
    train, test = table
    assert torch.allclose(Pca(3).fit_apply(train, test)[0], Pca(3).fit_apply(train * 100, test * 100)[0], atol=1e-5)


@pytest.mark.parametrize("features", [Pca(3), Pca(3, scale="each", standardise=True), Standardise()])
def test_nothing_is_fitted_on_the_test_part(table, features):
    train, test = table
    with_one, with_other = features.fit_apply(train, test), features.fit_apply(train, test * 50 + 3)
    assert torch.equal(with_one[0], with_other[0])


def test_images_are_projected_as_values_between_zero_and_one():
    images = torch.randint(0, 256, (60, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    as_bytes = Pca(5, scale="none").fit_apply(images, images[:7])
    as_values = Pca(5, scale="none").fit_apply(images.float() / 255, images[:7].float() / 255)
    assert as_bytes[0].shape == (60, 5)
    assert torch.allclose(as_bytes[1], as_values[1], atol=1e-5)


def test_constant_columns_do_no_harm():
    x = torch.cat([torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), torch.full((30, 2), 4.0)], 1)
    assert torch.isfinite(Pca(4, scale="each", standardise=True).fit_apply(x, x)[0]).all()
    assert torch.equal(Standardise().fit_apply(x, x)[0][:, 3:], torch.zeros(30, 2))


def test_more_components_than_there_can_be_are_refused():
    x = torch.randn(5, 9, generator=torch.Generator().manual_seed(0))
    with pytest.raises(DpflbenchError, match="at most 4 with 5 examples of 9 values"):
        Pca(5).fit_apply(x, x)
    with pytest.raises(DpflbenchError, match="components: 0"):
        Pca(0)


def test_images_are_standardised_by_channel():
    images = torch.randint(0, 256, (40, 3, 5, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    scaled, _ = Standardise().fit_apply(images, images)
    assert torch.allclose(scaled.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(scaled.var((0, 2, 3), unbiased=False), torch.ones(3), atol=1e-4)


def test_flatten_makes_rows_of_images():
    images = torch.full((2, 1, 3, 3), 255, dtype=torch.uint8)
    assert torch.equal(Flatten().fit_apply(images, images)[0], torch.ones(2, 9))


def pictures(count=6, channels=3, size=8):
    return torch.from_numpy(np.random.default_rng(5).integers(0, 256, (count, channels, size, size)).astype(np.uint8))


def test_an_edge_counts_for_its_direction_with_its_strength():
    ramp = torch.arange(8.0).expand(8, 8)[None, None] / 10  # grows by 0.1 a pixel to the right, flat downwards
    for turns, picture in enumerate((ramp, ramp.mT, ramp.flip(3), ramp.mT.flip(2))):  # right, down, left, up
        found = directions(picture, 4)[0, :, 2:-2, 2:-2].amax((1, 2))
        assert found.tolist() == pytest.approx([0.2 if b == turns else 0.0 for b in range(4)], abs=1e-6)
    between = directions((ramp + ramp.mT) / 2, 4)[0, :, 2:-2, 2:-2].amax((1, 2))
    assert between.tolist() == pytest.approx([0.5 * 0.02**0.5, 0.5 * 0.02**0.5, 0, 0], abs=1e-6)


def test_histograms_of_gradients_have_norm_one_and_depend_on_no_other_example():
    x = pictures()
    train, test = GradientHistograms().fit_apply(x, x[:2])
    assert train.shape == (6, 16 * (12 + 3))
    assert train.norm(dim=1).tolist() == pytest.approx([1.0] * 6, abs=1e-5)
    torch.testing.assert_close(test, train[:2])
    small, _ = GradientHistograms(numbers=20).fit_apply(x, x[:2])
    assert small.shape == (6, 20)
    torch.testing.assert_close(small, GradientHistograms(numbers=20).fit_apply(x[:1], x)[1])
    plain = GradientHistograms().fit_apply(torch.full((1, 1, 8, 8), 128, dtype=torch.uint8), x[:, :1])[0]
    assert bool(plain.isfinite().all())  # no edge anywhere


def test_histograms_of_gradients_conform_and_take_pictures_alone():
    check_feature(GradientHistograms)
    with pytest.raises(DpflbenchError, match=r"hog: examples of shape \(6,\); allowed: pictures"):
        GradientHistograms().fit_apply(torch.zeros(3, 6), torch.zeros(3, 6))
    with pytest.raises(DpflbenchError, match="bins: 1; allowed"):
        GradientHistograms(bins=1)
