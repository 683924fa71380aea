"""The book-keeping way: one forward and one backward pass for the gradients by layer outputs, never by the weights.

Hooks note what went into each layer and the gradient by what came out of it; `layers.py` turns the two into norms and, once the
norms of all layers are known, into clipped sums.
"""

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn

from dpflbench.errors import DpflbenchError
from dpflbench.federation.gradients.functional import Loss
from dpflbench.federation.gradients.layers import RULES, Entry, Slots, unsupported
from dpflbench.interfaces import Layout


def obstacle(module: nn.Module) -> str:
    """What the rules cannot treat in a module; empty if they can treat all of it."""
    for name, part in module.named_modules():
        if any(p.requires_grad for p in part.parameters(recurse=False)) and (why := unsupported(part)):
            return f"{name or 'module'} is {why}"
    return ""


class Bookkeeper:
    """A private copy of the module with taps on the layers that own parameters."""

    def __init__(self, module: nn.Module, layout: Layout, loss: Loss) -> None:
        self.module = deepcopy(module).requires_grad_(False)
        self.layout, self.loss = layout, loss
        self.entries: list[Entry] = []
        self.sources: list[Tensor] = []  # layer outputs at which backpropagation ends
        self.seen: set[str] = set()
        self.recording = False
        starts = {t.name: t.start for t in layout.tensors}
        for name, part in self.module.named_modules():
            if hasattr(part, "inplace"):
                part.inplace = False  # would overwrite what a tap has noted
            slots = {own: starts[full] for own, _ in part.named_parameters(recurse=False)
                     if (full := f"{name}.{own}" if name else own) in starts}
            if slots:
                part.register_forward_hook(self._tap(name, slots))

    def load(self, theta: Tensor) -> None:
        """Put theta into the copy."""
        self.module.to(theta.device)
        params = dict(self.module.named_parameters())
        for t in self.layout.tensors:
            params[t.name].copy_(theta[t.start:t.stop].view(t.shape))

    def run(self, phi: Tensor | None, x: Tensor, y: Tensor) -> tuple[list[Entry], Tensor | None, Tensor]:
        """What each layer contributes, the gradient by phi [B, P] if x depends on it, and the losses [B]."""
        self.entries, self.sources, self.seen, self.recording = [], [], set(), True
        try:
            with torch.enable_grad():
                losses = self.loss(self.module(x), y)
                wanted = [*self.sources, *([] if phi is None else [phi])]
                grads = torch.autograd.grad(losses.sum(), wanted)
            return self.entries, None if phi is None else grads[-1], losses.detach()
        finally:
            self.recording = False
            self.entries, self.sources = [], []

    def _tap(self, name: str, slots: Slots) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def forward(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            if not self.recording:
                return
            if name in self.seen:
                raise DpflbenchError(f"{name}: runs more than once in a forward pass")
            self.seen.add(name)
            a = args[0].detach()
            if not output.requires_grad:
                output.requires_grad_()
                self.sources.append(output)

            def backward(g: Tensor) -> None:
                self.entries.extend(RULES[type(layer)](layer, slots, a, g))

            output.register_hook(backward)  # type: ignore[no-untyped-call]

        return forward
