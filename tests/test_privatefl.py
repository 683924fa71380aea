"""PRIVATEFL's personal transform: sizes, the identity to the bit, what gamma and beta do, what stays local."""

import pytest
import torch
from algorithm_setups import layout
from hypothesis import given, settings
from hypothesis import strategies as st

from dpflbench.errors import DpflbenchError
from dpflbench_algorithms.bcs import BiasedSelection
from dpflbench_algorithms.parts import Mean, UniformSelection
from dpflbench_algorithms.privatefl import PersonalAffine, privatefl
from dpflbench_algorithms.privatefl_bcs import privatefl_bcs

RNG = torch.Generator().manual_seed(0)


def phi_of(shape, n=3, transform=None, tensors=None):
    return (transform or PersonalAffine()).init(n, shape, tensors or layout(4), RNG)


@pytest.mark.parametrize(("shape", "size"), [((1, 28, 28), 785), ((3, 32, 32), 3075), ((10,), 11), ((50,), 51)])
def test_a_client_s_transform_has_the_paper_s_size(shape, size):
    assert phi_of(shape).shape == (3, size)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([(1, 5, 4), (3, 2, 2), (7,)]), st.integers(0, 2**31))
def test_it_starts_as_the_identity_to_the_bit(shape, seed):
    x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(seed)) * 100
    assert torch.equal(PersonalAffine().apply(phi_of(shape, n=4), x), x)


def test_images_have_a_factor_a_channel_and_a_shift_a_pixel():
    # two channels of 1 × 2 pixels: gamma (2, 3), beta ((1, 0), (0, -1))
    phi = torch.tensor([[2.0, 3.0, 1.0, 0.0, 0.0, -1.0]])
    x = torch.tensor([[[[10.0, 20.0]], [[30.0, 40.0]]]])
    assert PersonalAffine().apply(phi, x).tolist() == [[[[21.0, 40.0]], [[90.0, 119.0]]]]


def test_features_have_one_factor_and_a_shift_each():
    phi = torch.tensor([[2.0, 0.5, -1.0], [1.0, 0.0, 3.0]])
    x = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    assert PersonalAffine().apply(phi, x).tolist() == [[2.5, 3.0], [1.0, 5.0]]


def test_its_gradients_are_those_of_the_paper():
    # by beta: the gradient by the transformed input; by gamma: its inner product with the input
    phi = phi_of((3,), n=1).requires_grad_()
    x, upstream = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[0.5, -1.0, 2.0]])
    (gradient,) = torch.autograd.grad((PersonalAffine().apply(phi, x) * upstream).sum(), phi)
    assert gradient.tolist() == [[4.5, 0.5, -1.0, 2.0]]


def test_norm_local_appends_a_zero_for_every_parameter_of_a_normalisation_layer():
    tensors = layout(6, 4, 5, 4, norm=(1, 3))
    phi = phi_of((2,), transform=PersonalAffine(norm_local=True), tensors=tensors)
    assert phi.shape == (3, 3 + 8)
    assert (phi[:, 3:] == 0).all()
    x = torch.ones(3, 2)
    assert torch.equal(PersonalAffine().apply(phi, x), x)  # the tail is the engine's
    assert phi_of((2,), tensors=tensors).shape == (3, 3)


def test_frozen_there_is_nothing_to_train():
    transform = PersonalAffine(frozen=True)
    assert phi_of((1, 28, 28), transform=transform).shape == (3, 0)
    x = torch.randn(2, 1, 28, 28)
    assert transform.apply(torch.zeros(2, 0), x) is x


def test_other_inputs_are_refused_with_their_shape():
    with pytest.raises(DpflbenchError, match=r"inputs have shape \[28, 28\]; allowed: features \[F\] or images"):
        phi_of((28, 28))


def test_privatefl_is_uniform_selection_the_mean_and_the_transform():
    algorithm = privatefl(norm_local=True)
    assert (algorithm.name, algorithm.selector, algorithm.aggregator) == ("PRIVATEFL", UniformSelection(), Mean())
    assert algorithm.transform == PersonalAffine(norm_local=True)
    assert algorithm.mechanisms is None


def test_privatefl_bcs_only_swaps_the_selector():
    ours, plain = privatefl_bcs(probe_rounds=5), privatefl()
    assert ours.selector == BiasedSelection(probe_rounds=5)
    assert (ours.aggregator, ours.transform) == (plain.aggregator, plain.transform)
