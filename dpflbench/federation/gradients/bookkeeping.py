"""The book-keeping way: one forward and one backward pass for the gradients by layer outputs, never by the weights.

Taps note what went into each layer and the gradient by what came out of it; `layers.py` turns the two into norms and,
once the norms of all layers are known, into clipped sums.
"""

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn

from dpflbench.federation.gradients.chunks import Chunk
from dpflbench.federation.gradients.contributions import Book, Entry, Rows, Slots
from dpflbench.federation.gradients.lanes import Own, Passage, Tapped, stacks
from dpflbench.federation.gradients.layers import conv2d, embedding, layer_norm, linear
from dpflbench.federation.gradients.normalisation import GroupNorm
from dpflbench.federation.gradients.own import WAYS, Seats
from dpflbench.interfaces import Layout

Head = Callable[[Tensor], Tensor]  # outputs → gradient by them
RULES: dict[type[nn.Module], Callable[..., list[Entry]]] = {
    nn.Linear: linear,
    nn.Conv2d: conv2d,
    nn.LayerNorm: layer_norm,
    nn.Embedding: embedding,
}


def obstacle(module: nn.Module) -> str:
    """What the rules cannot treat in a module; empty if they can treat all of it."""
    for name, part in module.named_modules():
        if any(p.requires_grad for p in part.parameters(recurse=False)) and (why := _unsupported(part)):
            return f"{'model.' if name else 'model'}{name} is {why}"
    return ""


def _unsupported(layer: nn.Module) -> str:
    """Why a layer has no rule; empty if it has one. Subclasses may compute something else, so only the exact types
    count.
    """
    kind = type(layer).__name__
    if type(layer) not in RULES and type(layer) is not nn.GroupNorm:
        return kind
    if isinstance(layer, nn.Conv2d) and layer.padding_mode != "zeros":
        return f"{kind} with {layer.padding_mode} padding"
    if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse):
        return f"{kind} with max_norm, scale_grad_by_freq or sparse"
    return ""


class Bookkeeper:
    """A private copy of a module whose layers run once and whose rows are apart (`rowwise.py`), with taps on those that
    own parameters; with `native` kernels in stacks where that can be (`lanes.py`).
    """

    def __init__(self, module: nn.Module, layout: Layout, native: bool = False) -> None:
        self.module = deepcopy(module).requires_grad_(False)
        self.layout = layout
        self._params = dict(self.module.named_parameters())
        self._book = Book(None)
        self._seats: Seats | None = None  # None: all samples meet the parameters loaded
        self._sources: list[Tensor] = []  # where backpropagation ends: nothing before needs a gradient
        self._taps: list[tuple[Tensor, Callable[[Tensor], None]]] = []  # a layer's output, what its gradient is for
        self._slots: dict[nn.Module, Slots] = {}
        starts = {t.name: t.start for t in layout.tensors}
        for name, part in self.module.named_modules():
            slots = {
                own: starts[full]
                for own, _ in part.named_parameters(recurse=False)
                if (full := f"{name}.{own}" if name else own) in starts
            }
            self._slots[part] = slots
            if slots and isinstance(part, nn.GroupNorm):
                part.forward = partial(self._group_norm, part, slots)  # type: ignore[method-assign]
            elif slots:
                part.forward = partial(self._way, part, slots)
        for stack in stacks(self.module) if native else ():
            stack.install(self._stack, self._own)

    def load(self, theta: Tensor) -> None:
        """Put theta [D] into the copy, on theta's device."""
        self._to(theta.device)
        self._seats = None
        for t in self.layout.tensors:
            if t.name in self._params:  # what the forward does not use is not there
                self._params[t.name].copy_(theta[t.start : t.stop].view(t.shape))

    def seat(self, theta: Tensor, chunk: Chunk) -> None:
        """Let the chunk's samples meet their client's row of theta [K, D]."""
        self._to(theta.device)
        self._seats = Seats(chunk, theta)

    def _to(self, device: torch.device) -> None:
        if device != next(iter(self._params.values())).device:
            self._params = dict(self.module.to(device).named_parameters())

    def run(self, book: Book, x: Tensor, phi: Tensor | None, head: Head) -> Tensor | None:
        """Put what each layer contributes into the book; the gradient by phi [B, P] if x depends on it."""
        self._book, self._sources, self._taps = book, [], []
        with torch.enable_grad():
            out = self.module(x)
            for output, note in self._taps:
                output.register_hook(note)  # type: ignore[no-untyped-call]
            wanted = self._sources if phi is None else [*self._sources, phi]
            grads = torch.autograd.grad(out, wanted, head(out.detach()), allow_unused=True)
        self._sources, self._taps = [], []
        return None if phi is None else grads[-1]

    def _way(self, layer: nn.Module, slots: Slots, x: Tensor) -> Tensor:
        kind = type(layer)
        out: Tensor = kind.forward(layer, x) if self._seats is None else WAYS[kind](self._seats, layer, slots, x)
        self._tap(slots, layer, x.detach(), out)
        return out

    def _own(self) -> Own | None:
        seats = self._seats
        if seats is None:
            return None
        return seats.chunk.sizes, lambda layer, name: seats.parameter(layer, name, self._slots[layer])

    def _stack(self, passage: Passage, x: Tensor) -> Tensor:
        book = self._book

        def note(layer: nn.Module, name: str, rows: Tensor) -> None:
            if name in self._slots[layer]:
                book.put([Rows(self._slots[layer][name], rows, tuple(getattr(layer, name).shape))])

        anchor = x.new_zeros((), requires_grad=True)
        self._sources.append(anchor)
        out: Tensor = Tapped.apply(x, anchor, passage, note)  # type: ignore[no-untyped-call]
        return out

    def _tap(self, slots: Slots, layer: nn.Module, a: Tensor, output: Tensor) -> None:
        book = self._book

        def note(g: Tensor) -> None:
            book.put(RULES[type(layer)](layer, slots, a, g))

        self._taps.append((output, note))
        if not output.requires_grad:
            output.requires_grad_()
            self._sources.append(output)

    def _group_norm(self, layer: nn.GroupNorm, slots: Slots, x: Tensor) -> Tensor:
        book = self._book

        def note(by_weight: Tensor, by_bias: Tensor) -> None:
            rows = {"weight": by_weight, "bias": by_bias}
            book.put([Rows(start, rows[own], tuple(layer.weight.shape)) for own, start in slots.items()])

        if not x.requires_grad:
            x = x.detach().requires_grad_()
            self._sources.append(x)
        weight: Tensor = layer.weight
        bias: Tensor | None = layer.bias
        if self._seats is not None:
            weight = self._seats.spread(self._seats.parameter(layer, "weight", slots))
            bias = None if bias is None else self._seats.spread(self._seats.parameter(layer, "bias", slots))
        out: Tensor = GroupNorm.apply(x, weight, bias, layer, note)  # type: ignore[no-untyped-call]
        return out
