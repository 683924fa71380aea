"""Rehearsal: before the first pass, both ways on a few made-up samples in float64, and how much room a sample takes.

A rule that misses a part of the gradient would make the norm too small and the privacy claim wrong: a module that calls
a layer twice, uses its weight elsewhere or overwrites an activation is caught here, whatever the reason. Real samples
play no part.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.func import functional_call

from dpflbench.errors import DpflbenchError
from dpflbench.federation.gradients.bookkeeping import Bookkeeper
from dpflbench.federation.gradients.chunks import Chunk, Piece, as_input
from dpflbench.federation.gradients.contributions import Book
from dpflbench.federation.gradients.layout import unflatten
from dpflbench.federation.gradients.objective import Objective
from dpflbench.interfaces import Layout

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


def rehearse(module: nn.Module, layout: Layout, objective: Objective, like: Tensor) -> str:
    """Why book-keeping does not serve a module; empty if its gradients and norms are those of autograd, sample by
    sample.
    """
    module = deepcopy(module).to("cpu", torch.float64)
    x, y = made_up(module, like, SAMPLES, torch.float64), torch.zeros(SAMPLES, dtype=torch.int64)
    params = dict(module.named_parameters())
    theta = torch.cat([params[t.name].detach().reshape(-1) for t in layout.tensors])
    # a little off the initial values: what starts at 0 must not hide what depends on it
    theta += 0.05 * torch.randn(theta.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected, alone, together = _one_by_one(module, layout, objective, theta, x, y)
    if not _close(alone, together):
        raise DpflbenchError(
            f"{type(module).__name__}: a sample's output depends on others in its batch; each must stand alone"
        )
    found = theta.new_zeros(SAMPLES, layout.dim)
    for order, norm in ((1, expected.abs().sum(1)), (2, expected.square().sum(1))):
        books, book = Bookkeeper(module, layout), Book(order)
        try:
            books.load(theta)
            books.run(book, x, None, lambda out: objective.gradient(out, y))
        except (RuntimeError, DpflbenchError, TypeError, ValueError, LookupError, AttributeError) as e:
            return _line(e)
        book.close()
        if book.norm is None or not _close(book.norm, norm):
            return "the rules miss a part of its gradient"
        for entry in book.entries:
            entry.add(found, Chunk([Piece(i, i, i + 1) for i in range(SAMPLES)]), theta.new_ones(SAMPLES))
    return "" if _close(found, 2.0 * expected) else "the rules miss a part of its gradient"


def _one_by_one(
    module: nn.Module, layout: Layout, objective: Objective, theta: Tensor, x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients [B, D] and outputs of samples that run alone, and the outputs of the batch."""
    params = {name: p.detach().requires_grad_() for name, p in unflatten(theta, layout).items()}
    gradients, outputs = [], []
    with torch.enable_grad():
        for i in range(len(x)):
            out = functional_call(module, params, (x[i : i + 1],))
            by = torch.autograd.grad(
                objective.losses(out, y[i : i + 1]).sum(),
                list(params.values()),
                allow_unused=True,
                materialize_grads=True,
            )
            gradients.append(torch.cat([g.reshape(-1) for g in by]))
            outputs.append(out.detach())
        together: Tensor = functional_call(module, params, (x,))
    return torch.stack(gradients), torch.cat(outputs), together.detach()


def _close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE)


def sample_bytes(module: nn.Module, like: Tensor) -> int:
    """Bytes one sample takes in a pass, in float32: its input, what the layers put out, and the gradients that are kept
    by row.
    """
    sizes = [like[0].numel()]

    def note(layer: nn.Module, _: object, out: Tensor) -> None:
        outer = isinstance(layer, nn.Embedding) or (isinstance(layer, nn.Linear) and out.ndim == 2)
        sizes.append(out.numel() + (0 if outer else sum(p.numel() for p in layer.parameters())))

    with torch.no_grad():
        probe = deepcopy(module).to("cpu", torch.float32)
        for part in probe.modules():
            if next(part.children(), None) is None:
                part.register_forward_hook(note)
        probe(as_input(made_up(module, like, 1, torch.float32)))
    return 4 * sum(sizes)


def _line(e: Exception) -> str:
    return str(e).strip().splitlines()[0][:160] if str(e).strip() else type(e).__name__
