"""Sensitivities: the printed bounds, reached by real neighbours and never exceeded."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from dpflbench.errors import DpflbenchError
from dpflbench.privacy.sensitivity import gradient_sensitivity, joint_sensitivity, loss_sensitivity


def clipped_mean(gradients, clip_norm, order):
    norms = np.linalg.norm(gradients, ord=order, axis=1, keepdims=True)
    return (gradients / np.maximum(1, norms / clip_norm)).mean(0)


def test_the_bounds_in_numbers():
    assert float(gradient_sensitivity(20.0, 500)) == 0.08  # 2 * 20 / 500
    assert float(loss_sensitivity(np.log(10), 500)) == pytest.approx(0.00460517)
    assert float(joint_sensitivity(20.0, 2.5, 500)) == pytest.approx(0.09)  # 2 * 22.5 / 500
    np.testing.assert_array_equal(gradient_sensitivity([1.0, 2.0], [4, 4]), [0.5, 1.0])


@pytest.mark.parametrize("order", [1, 2])
def test_opposite_gradients_reach_the_gradient_bound_and_random_ones_stay_below(order):
    rng = np.random.default_rng(0)
    bound = float(gradient_sensitivity(1.5, 10))
    data = rng.normal(size=(10, 7)) * 9
    worst = data.copy()
    data[0] = np.eye(7)[0] * 50
    worst[0] = -data[0]
    worst[1:] = data[1:]
    reached = np.linalg.norm(clipped_mean(data, 1.5, order) - clipped_mean(worst, 1.5, order), ord=order)
    assert reached == pytest.approx(bound)
    for _ in range(200):
        other = data.copy()
        other[rng.integers(10)] = rng.normal(size=7) * 10.0 ** rng.uniform(-3, 3)
        moved = np.linalg.norm(clipped_mean(data, 1.5, order) - clipped_mean(other, 1.5, order), ord=order)
        assert moved <= bound * (1 + 1e-12)


def test_losses_between_zero_and_their_bound_reach_the_loss_bound_without_a_factor_two():
    losses = np.clip(np.array([0.0, 5.0, 99.0]), 0, 3.0)
    other = np.clip(np.array([1e9, 5.0, 99.0]), 0, 3.0)
    assert other.mean() - losses.mean() == float(loss_sensitivity(3.0, 3))


def test_a_loss_at_the_un_noised_step_breaks_the_bound_and_one_at_the_noisy_step_does_not():
    """Ten examples, model w, loss min((w - x)², 100); one x goes from 0 to 20, the step is lr times the mean clipped
    gradient.
    """
    bound, lr, clip = float(loss_sensitivity(100.0, 10)), 1.0, 200.0

    def message(data, point=None):
        gradients = np.clip(2 * (5.0 - data), -clip, clip)  # at w = 5
        w = 5.0 - lr * gradients.mean() if point is None else point
        return np.clip((w - data) ** 2, 0, 100.0).mean()

    data, neighbour = np.zeros(10), np.array([20.0] + [0.0] * 9)
    data[1:], neighbour[1:] = 9.0, 9.0
    assert abs(message(data) - message(neighbour)) > bound * 1.3
    for released in np.linspace(-30, 30, 61):  # whatever the noisy step was, it is the same number in both worlds
        assert abs(message(data, released) - message(neighbour, released)) <= bound


def test_a_transform_that_saw_the_data_without_noise_moves_every_term_of_the_next_gradient():
    """phi = mean of the data (one noiseless step); next gradients sign(phi - x) of norm 1: the mean moves by 2, not by
    2 / n.
    """
    data, neighbour = np.array([0.01] + [0.0] * 9), np.array([-0.01] + [0.0] * 9)

    def second_gradient(x):
        return np.sign(x.mean() - np.zeros(10)).mean()

    assert abs(second_gradient(data) - second_gradient(neighbour)) == 2.0
    assert float(gradient_sensitivity(1.0, 10)) == 0.2


@pytest.mark.parametrize(("size", "clip"), [(0, 1.0), (-3, 1.0), (10, 0.0), (10, np.nan), (10, np.inf)])
def test_a_client_without_examples_and_a_clip_that_is_none_are_refused(size, clip):
    with pytest.raises(DpflbenchError, match="allowed: positive and finite"):
        gradient_sensitivity(clip, size)


def formulas(source: str) -> list[int]:
    """Lines that divide something with a clip bound in it by a number of examples."""

    def words(node):
        names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
        return " ".join(names + [n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)])

    divisions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
    return [
        n.lineno
        for n in divisions
        if re.search("clip|loss_bound", words(n.left)) and re.search("n_examples|size", words(n.right))
    ]


def test_nobody_else_writes_the_formula_down():
    assert formulas("scale = 2.0 * (setup.clip_norm + bound) / setup.n_examples") == [1]
    root = Path(__file__).parent.parent
    files = [f for package in ("dpflbench", "plugins") for f in (root / package).rglob("*.py")]
    found = [f"{f.relative_to(root)}:{line}" for f in files for line in formulas(f.read_text())]
    assert found == []  # sensitivity.py itself divides by names of its own
