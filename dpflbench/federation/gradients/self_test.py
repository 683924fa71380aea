"""Before the first pass, on made-up samples: do the rules give autograd's gradients, do modules and transforms that are
a stranger's run one sample at a time, and how much room does a sample take? Real samples play no part.

A rule that misses a part of the gradient would make the norm too small and the privacy claim wrong. The proof that
samples are apart is `rowwise.py`'s, or torch.func's by construction; what is looked at here is only whether the author
meant what then runs.
"""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from dpflbench.errors import DpflbenchError
from dpflbench.federation.gradients.bookkeeping import Bookkeeper
from dpflbench.federation.gradients.chunks import Chunk, Piece, as_input
from dpflbench.federation.gradients.contributions import Book
from dpflbench.federation.gradients.functional import Functional, transformed
from dpflbench.federation.gradients.layout import unflatten
from dpflbench.federation.gradients.objective import Objective
from dpflbench.federation.gradients.rowwise import first_line
from dpflbench.interfaces import IDENTITY, Layout, LocalTransform
from dpflbench.tasks.models import layer_name

SAMPLES = 3
TOLERANCE = 1e-8
BATCH, DECADES = 33, 3.0
FEW = 4  # samples of a batch


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
    theta = torch.cat(
        [
            params[t.name].detach().reshape(-1) if t.name in params else x.new_zeros(t.stop - t.start)
            for t in layout.tensors
        ]
    )
    # a little off the initial values: what starts at 0 must not hide what depends on it
    theta += 0.05 * torch.randn(theta.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected, found = _one_by_one(module, layout, objective, theta, x, y), theta.new_zeros(SAMPLES, layout.dim)
    for order, norm in ((1, expected.abs().sum(1)), (2, expected.square().sum(1))):
        books, book = Bookkeeper(module, layout), Book(order)
        try:
            books.load(theta)
            books.run(book, x, None, lambda out: objective.gradient(out, y))
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as e:
            return first_line(e)
        book.close()
        if book.norm is None or not _close(book.norm, norm):
            return "the rules miss a part of its gradient"
        for entry in book.entries:
            entry.add(found, Chunk([Piece(i, i, i + 1) for i in range(SAMPLES)]), theta.new_ones(SAMPLES))
    return "" if _close(found, 2.0 * expected) else "the rules miss a part of its gradient"


def rehearse_native(module: nn.Module, layout: Layout, objective: Objective, like: Tensor) -> str:
    """Why native kernels do not serve a module; empty if norms and sums are those of torch's, at one model and at
    models of clients, but for what float32 rounds.

    Of a few samples it may round to the other side of a ReLU or a maximum; a kernel that is wrong is so for all.
    """
    x = made_up(module, like, BATCH, torch.float32)
    y = torch.zeros(BATCH, dtype=torch.int64)
    module = deepcopy(module).to("cpu", torch.float32)
    clients = Chunk([Piece(0, 0, 20), Piece(1, 20, 21), Piece(2, 21, BATCH)])
    theta = 0.2 * torch.randn(len(clients.pieces), layout.dim, generator=torch.Generator().manual_seed(1))
    for own in (False, True):
        found = []
        for native in (False, True):
            books, book = Bookkeeper(module, layout, native), Book(2)
            if own:
                books.seat(theta, clients)
            else:
                books.load(theta[0])
            books.run(book, x, None, lambda out: objective.gradient(out, y))
            book.close()
            sums = torch.zeros(BATCH, layout.dim, dtype=torch.float64)
            for entry in book.entries:
                entry.add(sums, Chunk([Piece(i, i, i + 1) for i in range(BATCH)]), sums.new_ones(BATCH))
            found.append((sums, book.norm))
        (sums, norm), (other, other_norm) = found
        if norm is None or other_norm is None or _unlike(other_norm[:, None], norm[:, None]) > FEW:
            return "norms differ from torch's"
        if _unlike(other, sums) > FEW:
            return "gradients differ from torch's"
    return ""


def _one_by_one(module: nn.Module, layout: Layout, objective: Objective, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Gradients [B, D] of samples that run alone."""
    params = {name: p.detach().requires_grad_() for name, p in unflatten(theta, layout).items()}
    used = {name: p for name, p in params.items() if name in dict(module.named_parameters())}
    gradients = []
    with torch.enable_grad():
        for i in range(len(x)):
            loss = objective.losses(functional_call(module, used, (x[i : i + 1],)), y[i : i + 1]).sum()
            by = torch.autograd.grad(loss, list(params.values()), allow_unused=True, materialize_grads=True)
            gradients.append(torch.cat([g.reshape(-1) for g in by]))
    return torch.stack(gradients)


def _close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE)


def check_apart(alone: Functional, like: Tensor, why: str) -> None:
    """Refuse a module of which nothing is proved, and why, if torch.func cannot run it one sample at a time, or if that
    is not what it computes in a batch.

    One at a time no sample can see another, whatever the module does; but a module meant for batches is another one
    then, and its author should know.
    """
    module, name = deepcopy(alone.module).to("cpu"), type(alone.module).__name__
    alone = Functional(module, alone.layout, alone.objective, IDENTITY, 0)
    params = {t.name: module.get_parameter(t.name).detach() for t in alone.layout.tensors}
    dtype = next(iter(params.values())).dtype
    x = made_up(module, like, BATCH, dtype)
    y = torch.zeros(BATCH, dtype=torch.int64 if alone.objective.n_classes else dtype)
    pairs = []
    try:
        for scaled in _scaled(x):
            alone.gradients(params, x.new_zeros(BATCH, 0), scaled, y)
            with torch.no_grad():
                pairs.append((scaled, alone.outputs(params, None, scaled), functional_call(module, params, (scaled,))))
    except Exception as e:  # a stranger's code may raise anything
        raise DpflbenchError(
            f"{name}: {why}, and torch.func cannot run it one sample at a time: {first_line(e)}"
        ) from None
    for scaled, one_by_one, together in pairs:
        if not _alike(one_by_one, together):
            raise DpflbenchError(
                f"{name}: {_culprit(module, scaled)}: a sample's output depends on others in its batch; each must "
                f"stand alone ({why})"
            )


def check_transform_apart(transform: LocalTransform, phi_dim: int, like: Tensor) -> None:
    """Refuse a transform that torch.func cannot run row by row, or that comes out otherwise in a batch."""
    name, rng = type(transform).__name__, torch.Generator().manual_seed(2)
    x = made_up(nn.Identity(), like, BATCH, torch.float32)
    phi = 0.1 * torch.randn(BATCH, phi_dim, generator=rng)
    for scaled in _scaled(x):
        try:
            rows = transformed(transform, phi, scaled)
        except Exception as e:  # a stranger's code may raise anything
            raise DpflbenchError(f"transform {name}: cannot run row by row under torch.func: {first_line(e)}") from None
        if not _alike(rows, transform.apply(phi, scaled)):
            raise DpflbenchError(f"transform {name}: a row's output depends on other rows; each must stand alone")


def _scaled(x: Tensor) -> list[Tensor]:
    """The samples as they are, and small ones beside large ones."""
    if not x.is_floating_point():
        return [x, x]
    return [x, x * torch.logspace(-DECADES, DECADES, len(x), dtype=x.dtype).view(-1, *[1] * (x.ndim - 1))]


def _alike(a: Tensor, b: Tensor) -> bool:
    """Equal but for what rounding makes of float32; where either is not finite nothing is said."""
    return a.shape == b.shape and not _unlike(a, b)


def _unlike(a: Tensor, b: Tensor) -> int:
    """How many rows are not."""
    a, b = (t.nan_to_num(0.0, 0.0, 0.0).reshape(len(t), -1) for t in (a, b))
    return int(((a - b).abs() > 1e-3 * b.abs().amax(1, keepdim=True) + 1e-6).any(1).sum())


def _culprit(module: nn.Module, x: Tensor) -> str:
    """The first part whose output differs between a batch and its first sample alone, though its input does not."""
    notes: list[list[tuple[str, Any, Any]]] = [[], []]
    for name, part in module.named_modules():
        part.register_forward_hook(
            lambda _, args, out, name=name: notes[-1].append((name, args[0] if args else None, out))
        )
    with torch.no_grad():
        module(x[:1])
        notes.append([])
        module(x)
    for (name, a, one), (_, b, many) in zip(notes[1], notes[2], strict=False):
        tensors = all(isinstance(t, Tensor) and t.ndim for t in (a, b, one, many))
        if tensors and _alike(a, b[:1]) and not _alike(one, many[:1]):
            return layer_name(name, module.get_submodule(name)) if name else "its forward"
    return "its forward"


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
