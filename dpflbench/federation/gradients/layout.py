"""Layout: where the tensors of a module lie inside the flat vector theta [D], and the way there and back."""

import torch
from torch import Tensor, nn

from dpflbench.interfaces import Layout, ParameterTensor

NORMS = (nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase)


def layout_of(module: nn.Module) -> Layout:
    """Where each trainable tensor lies, in the module's own order; frozen tensors are no part of theta."""
    norms = {
        f"{name}.{own}" if name else own
        for name, part in module.named_modules()
        if isinstance(part, NORMS)
        for own, _ in part.named_parameters(recurse=False)
    }
    tensors, start = [], 0
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            stop = start + parameter.numel()
            tensors.append(ParameterTensor(name, tuple(parameter.shape), start, stop, name in norms))
            start = stop
    return Layout(tuple(tensors))


def initial_theta(module: nn.Module) -> Tensor:
    """The module's trainable parameters as one vector [D]."""
    return torch.cat([p.detach().reshape(-1) for p in module.parameters() if p.requires_grad]).clone()


def unflatten(theta: Tensor, layout: Layout) -> dict[str, Tensor]:
    """The tensors of theta by name, as views."""
    return {t.name: theta[t.start : t.stop].view(t.shape) for t in layout.tensors}
