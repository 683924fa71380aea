"""What a neighbour is, and how far one can move a client's message: the only place that decides either.

Two data sets of a client are neighbours when they differ in ONE EXAMPLE (sample-level privacy, `privacy.unit:
example`) or, with `unit: client`, in as many as one likes. `replace`: by any other examples. `zero_out`: by ones that
contribute nothing, the gradient and the loss 0 at every model; of a whole client, the message. Whoever keeps zero_out
at epsilon keeps replace at 2 epsilon (and a delta that grows by 1 + exp(epsilon)), so that tables of the two are not
comparable and a table has one. Under both, sizes are equal, so n_examples is public: it may scale noise, weigh clients
and stand in a record. What is divided by below is public too: a client's size, or the EXPECTED size of a batch drawn
from it, never the realised one, which one example moves as well.
"""

import numpy as np
from numpy.typing import ArrayLike

from dpflbench.errors import DpflbenchError
from dpflbench.interfaces import Floats, Neighbours

HALF = 0.5
CLIPS = {"zero_out": 1.0, "replace": 2.0}  # how far one example moves a sum of clipped gradients, in clip bounds


def gradient_sensitivity(clip_norm: ArrayLike, n_examples: ArrayLike, neighbours: Neighbours = "replace") -> Floats:
    """2 clip_norm / n_examples, or 1: the most the mean clipped gradient moves, in the norm it was clipped in. [...]
    and [...] → [...].

    Proof. Each example's gradient g is replaced by g / max(1, |g| / clip_norm), of norm at most clip_norm. Only one of
    the n_examples terms of the mean differs between neighbours, by at most the sum of the norms of the old and the new
    one, and under zero_out one of the two is 0. |.| is L2 for Gaussian and L1 for Laplace noise, over ALL coordinates
    of the message at once; clipping each tensor by itself would multiply the bound.

    The learning rate cancels. The paper's message is lr * gradient, of sensitivity 2 lr clip_norm / n_examples, with
    noise lr times ours: the ratio that privacy depends on is the same, and lr is public, so multiplying the noisy
    gradient by it is post-processing.

    A personal transform phi counts as part of the message: it must be clipped jointly with the model's gradient and
    trained from the NOISED one. phi shapes the gradients of all the client's examples at the next participation; a phi
    that had seen the data without noise would move every term of that mean when one example is replaced, not one term,
    and the bound would be 2 clip_norm.
    """
    bound, size = _positive(clip_norm=clip_norm, n_examples=n_examples)
    return np.asarray(CLIPS[neighbours] * bound / size)


def loss_sensitivity(loss_bound: ArrayLike, n_examples: ArrayLike) -> Floats:
    """loss_bound / n_examples: the most the mean of losses clipped to [0, loss_bound] moves. [...] and [...] → [...].

    Proof. One term of the mean differs, and both its values lie in [0, loss_bound], under either relation. No factor
    two: a loss has a sign, a gradient not.

    This holds at any model that does not depend on the client's data except through what it already released. A second
    loss "after the client's step" must therefore be taken at theta - lr * (its own NOISY update): given that release
    the point is fixed, and adaptive composition applies. At theta - lr * (its un-noised update) the point itself moves
    with the example and drags all n_examples losses along, by lr * 2 clip_norm / n_examples times their slope, for
    which clipping the gradients used gives no bound at all.
    """
    bound, size = _positive(loss_bound=loss_bound, n_examples=n_examples)
    return np.asarray(bound / size)


def joint_sensitivity(
    clip_norm: ArrayLike, loss_bound: ArrayLike, n_examples: ArrayLike, neighbours: Neighbours = "replace"
) -> Floats:
    """2 (clip_norm + loss_bound) / n_examples under replace: gradient and up to two losses, noised at one scale (the
    paper's stage 1).

    Proof. The gradient moves by at most its own bound, each loss by loss_bound / n_examples (above; the
    second at the noisy step, that is after the noisy gradient, which adaptive composition allows). In L1 these add up
    to the bound exactly; in L2 their root sum of squares is smaller, so for Gaussian noise the bound is valid and
    loose.
    """
    return gradient_sensitivity(clip_norm, n_examples, neighbours) + 2.0 * loss_sensitivity(loss_bound, n_examples)


def quantile_sensitivity(neighbours: Neighbours = "replace") -> float:
    """1, or 1/2 under zero_out: the most a whole client moves Σ (b_n - 1/2), b_n whether its message is within a clip.

    Proof. Its term is 1/2 or -1/2; zero_out makes it 0. Nobody else's term depends on it.
    """
    return HALF * CLIPS[neighbours]


def client_sensitivity(clip_norm: ArrayLike, neighbours: Neighbours = "replace") -> Floats:
    """2 clip_norm, or 1: the most the message of a whole client moves when all its data changes. [...] → [...].

    Proof. The message, however it was computed, is clipped as a whole to norm clip_norm: old and new one are at most
    the sum of their norms apart, and under zero_out (the client contributes nothing) one of the two is 0. Neither size
    nor batches nor steps matter, so local training is ordinary SGD, and the clip comes last. Clipping every example's
    gradient instead bounds the mean of all steps too, but nobody need compute those.
    """
    bound, _ = _positive(clip_norm=clip_norm, one=1.0)
    return np.asarray(CLIPS[neighbours] * bound)


def _positive(**values: ArrayLike) -> tuple[Floats, Floats]:
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in values.items()}
    for name, array in arrays.items():
        bad = ~((array > 0) & np.isfinite(array))
        if bad.any():
            raise DpflbenchError(f"sensitivity: {name} is {array[bad].flat[0]}; allowed: positive and finite")
    first, second = arrays.values()
    return first, second
