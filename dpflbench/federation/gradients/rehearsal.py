"""Rehearsal: before the first pass, both ways on a few made-up samples in float64, and how much room a sample takes.

A rule that misses a part of the gradient would make the norm too small and the privacy claim wrong: a module that calls a layer
twice, uses its weight elsewhere or overwrites an activation is caught here, whatever the reason. Real samples play no part.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn

from dpflbench.errors import DpflbenchError
from dpflbench.federation.gradients.bookkeeping import Bookkeeper
from dpflbench.federation.gradients.chunks import Chunk, Piece, as_input
from dpflbench.federation.gradients.functional import Functional
from dpflbench.federation.gradients.layout import unflatten
from dpflbench.federation.gradients.objective import Objective
from dpflbench.interfaces import IDENTITY, Layout

SAMPLES = 3
TOLERANCE = 1e-8


def made_up(module: nn.Module, like: Tensor, samples: int, dtype: torch.dtype) -> Tensor:
    """Samples shaped like those of a data set: normal numbers, or tokens that every embedding knows."""
    rng = torch.Generator().manual_seed(0)
    shape = (samples, *like.shape[1:])
    if like.is_floating_point() or like.dtype == torch.uint8:
        return torch.randn(shape, generator=rng, dtype=dtype)
    tokens = min((m.num_embeddings for m in module.modules() if isinstance(m, nn.Embedding)), default=2)
    return torch.randint(tokens, shape, generator=rng, dtype=like.dtype)


def rehearse(module: nn.Module, layout: Layout, objective: Objective, theta: Tensor, like: Tensor) -> str:
    """Why book-keeping does not serve a module; empty if its gradients and norms are those of torch.func."""
    module = deepcopy(module).to("cpu", torch.float64)
    x, y = made_up(module, like, SAMPLES, torch.float64), torch.zeros(SAMPLES, dtype=torch.int64)
    theta = theta.detach().to("cpu", torch.float64)
    theta = theta + 0.05 * torch.randn(theta.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    phi = theta.new_zeros(SAMPLES, 0)
    oracle = Functional(module, layout, objective.losses, IDENTITY, 0)
    try:
        expected, _, outputs = oracle.gradients(unflatten(theta, layout), phi, x, y)
    except (RuntimeError, ValueError) as e:
        raise DpflbenchError(f"{type(module).__name__}: torch.func cannot treat it sample by sample: {_line(e)}") from None
    with torch.no_grad():
        together = oracle.outputs(unflatten(theta, layout), None, x)
    if not torch.allclose(together, outputs, rtol=TOLERANCE, atol=TOLERANCE):
        raise DpflbenchError(f"{type(module).__name__}: a sample's output depends on others in its batch; each must stand alone")
    books = Bookkeeper(module, layout)
    try:
        with torch.no_grad():
            books.load(theta)
        entries, _ = books.run(x, None, lambda out: objective.gradient(out, y))
    except (RuntimeError, DpflbenchError) as e:
        return _line(e)
    found = theta.new_zeros(SAMPLES, layout.dim)
    for entry in entries:
        entry.add(found, Chunk([Piece(i, i, i + 1) for i in range(SAMPLES)]), None)
    norms = [torch.stack([e.norm(order) for e in entries]).sum(0) for order in (1, 2)]
    true = [expected.abs().sum(1), expected.square().sum(1)]
    same = all(torch.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE)
               for a, b in zip([found, *norms], [expected, *true], strict=True))
    return "" if same else "the rules miss a part of its gradient"


def sample_bytes(module: nn.Module, like: Tensor) -> int:
    """Bytes of one sample's input and of what its layers put out, in float32."""
    sizes = [like[0].numel()]
    with torch.no_grad():
        probe = deepcopy(module).to("cpu", torch.float32)
        for part in probe.modules():
            if next(part.children(), None) is None:
                part.register_forward_hook(lambda _m, _a, out: sizes.append(out.numel()))
        probe(as_input(made_up(module, like, 1, torch.float32)))
    return 4 * sum(sizes)


def _line(e: Exception) -> str:
    return str(e).strip().splitlines()[0][:160] if str(e).strip() else type(e).__name__
