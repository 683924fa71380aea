"""Check of a local transform: the identity at its start, row by row, differentiable in phi, and drawn from the rng
alone.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from dpflbench.federation.gradients.functional import transformed
from dpflbench.federation.leftovers import ClientCode
from dpflbench.interfaces import Layout, LocalTransform
from dpflbench.testing.factories import named, obtain
from dpflbench.testing.rules import (
    attempt,
    difference,
    keep,
    leaves_nothing,
    needs_methods,
    no_global_draws,
    pickled,
    refuse,
    unchanged,
)
from dpflbench.testing.worlds import LAYOUT, devices

CLIENTS = 5
VMAP, ONE_BY_ONE = "apply under torch.func.vmap", "an apply that works for one sample at a time"
SHAPES: tuple[tuple[int, ...], ...] = ((10,), (1, 8, 8), (3, 8, 8))  # features, grey images, colour images


def check_transform(part: Any, who: str = "") -> None:
    """Raise ConformanceError at the first broken rule; `part` is a transform or a factory of one."""
    who = named(part, "transform", who)
    transform = obtain(part, who)
    needs_methods(who, transform, LocalTransform, {"init": 4, "apply": 2})
    if not isinstance(getattr(transform, "norm_local", None), bool):
        refuse(
            who,
            "has no norm_local",
            "true or false: are normalisation parameters personal too?",
            "add a field norm_local: bool = False",
        )
    again = pickled(who, transform)
    _forgets(transform, who)
    for shape in SHAPES:
        phi = _initial(transform, shape, who)
        if difference(phi, _initial(transform, shape, who)) or difference(phi, _initial(again, shape, who)):
            refuse(
                who,
                "init under one seed gives different phi",
                "a function of its arguments and the rng",
                "draw from the rng argument only (torch.rand(…, generator=rng))",
            )
        _start_is_identity(transform, phi, shape, who)
    for shape in SHAPES:
        phi = _initial(transform, shape, who)
        if phi.shape[1]:
            _row_by_row(transform, phi, shape, who)
            _differentiable(transform, phi, shape, who)


def _initial(transform: Any, shape: tuple[int, ...], who: str) -> Tensor:
    layout: Layout = LAYOUT
    with no_global_draws(who, "init"):
        phi = attempt(
            who,
            "init(n_clients, input_shape, layout, rng)",
            "phi [N, P]",
            lambda: transform.init(CLIENTS, shape, layout, torch.Generator().manual_seed(3)),
        )
    if not isinstance(phi, Tensor) or phi.ndim != 2 or len(phi) != CLIENTS or phi.dtype != torch.float32:
        found = f"{phi.dtype} {tuple(phi.shape)}" if isinstance(phi, Tensor) else type(phi).__name__
        refuse(
            who,
            f"init for {CLIENTS} clients returns {found}",
            f"a float32 tensor ({CLIENTS}, P)",
            "return one row of phi a client",
        )
    if not bool(torch.isfinite(phi).all()):
        refuse(who, "init returns a phi that is not finite", "finite numbers", "start from the identity")
    tail = sum(t.stop - t.start for t in layout.tensors if t.norm) if transform.norm_local else 0
    if phi.shape[1] < tail or bool((phi[:, phi.shape[1] - tail :] != 0).any()):
        refuse(
            who,
            f"norm_local is true but phi does not end with {tail} zeros",
            "the last columns to be offsets of normalisation tensors",
            "append zeros for every tensor of the layout with norm=True",
        )
    return phi


def _inputs(shape: tuple[int, ...], rows: int = CLIENTS, seed: int = 4) -> Tensor:
    return torch.randn(rows, *shape, generator=torch.Generator().manual_seed(seed))


def _forgets(transform: Any, who: str) -> None:
    """Nothing of x survives a call, in a batch or one sample at a time as in a run."""
    starts = [(shape, _initial(transform, shape, who)) for shape in SHAPES]

    def call(seed: int) -> Tensor:
        seen = []
        for shape, phi in starts:
            x = _inputs(shape, seed=100 + seed)
            seen.append(x.clone().view(-1))
            _applied(transform, phi, x, who)
            if phi.shape[1]:
                attempt(who, VMAP, ONE_BY_ONE, partial(transformed, transform, phi, x))
        return torch.cat(seen)

    leaves_nothing(who, ClientCode.of(transform), call)


def _applied(transform: Any, phi: Tensor, x: Tensor, who: str) -> Tensor:
    before = keep((phi, x))
    with no_global_draws(who, "apply"):
        out = attempt(who, "apply(phi, x)", "transformed inputs", lambda: transform.apply(phi, x))
    unchanged(who, "apply", before, (phi, x), "its input ")
    if not isinstance(out, Tensor) or out.shape != x.shape or out.dtype != x.dtype or out.device != x.device:
        found = f"{out.dtype} {tuple(out.shape)} on {out.device}" if isinstance(out, Tensor) else type(out).__name__
        refuse(
            who,
            f"apply returns {found}",
            f"{x.dtype} {tuple(x.shape)} on {x.device}, as x",
            "keep shape, type and device of x",
        )
    return out


def _start_is_identity(transform: Any, phi: Tensor, shape: tuple[int, ...], who: str) -> None:
    for device in devices():
        x = _inputs(shape).to(device)
        moved = float((_applied(transform, phi.to(device), x, who) - x).abs().max())
        if not moved <= 1e-6:
            refuse(
                who,
                f"at its initial phi, apply moves inputs of shape {shape} by {moved:.2g}",
                "the identity at the start",
                "start from scale 1 and shift 0: all algorithms begin at the same model",
            )


def _moved(phi: Tensor) -> Tensor:
    return phi + 0.1 * torch.randn(phi.shape, generator=torch.Generator().manual_seed(5))


def _row_by_row(transform: Any, phi: Tensor, shape: tuple[int, ...], who: str) -> None:
    """A row's output depends on its own phi and x only, in batches of any size and for inputs of any size: otherwise
    one client's data reaches another's message. A run applies it row by row; a batch would be another transform.
    """
    for times, decades in ((1, 0.0), (8, 0.0), (8, 3.0)):
        phis, x = _moved(phi).repeat(times, 1), _inputs(shape, times * CLIENTS)
        x = x * torch.logspace(-decades, decades, len(x)).view(-1, *[1] * len(shape))  # small rows beside large ones
        whole = _applied(transform, phis, x, who)
        for i in range(0, len(x), times):
            alone = _applied(transform, phis[i : i + 1], x[i : i + 1], who)
            if not torch.allclose(alone[0], whole[i], rtol=1e-5, atol=1e-6):
                refuse(
                    who,
                    "a row's output depends on other rows of the batch",
                    "apply to work row by row",
                    "use no statistics over the batch",
                )


def _differentiable(transform: Any, phi: Tensor, shape: tuple[int, ...], who: str) -> None:
    """phi has a gradient in both engines: by backpropagation and, one sample at a time, under vmap."""
    phi, x = _moved(phi), _inputs(shape)
    weight = _inputs(shape, 1)[0]

    def loss(row: Tensor, sample: Tensor) -> Tensor:
        out: Tensor = transform.apply(row[None], sample[None])
        return (out[0] * weight).square().sum()

    leaf = phi.clone().requires_grad_()
    out = attempt(who, "apply(phi, x)", "transformed inputs", lambda: transform.apply(leaf, x))
    if not out.requires_grad:
        refuse(
            who,
            "its output has no gradient by phi",
            "a differentiable apply",
            "use torch operations on phi, without detach or .data",
        )
    by_backward = torch.autograd.grad((out * weight).square().sum(), leaf)[0]
    by_vmap = attempt(who, VMAP, ONE_BY_ONE, lambda: vmap(grad(loss))(phi, x))
    if not bool(torch.isfinite(by_backward).all()) or not torch.allclose(by_backward, by_vmap, rtol=1e-3, atol=1e-4):
        refuse(
            who,
            "the gradient by phi is not finite or differs between one sample and a batch",
            "the same gradient row by row",
            "avoid branches on values and operations over the batch",
        )
