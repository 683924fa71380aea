"""The torch.func way: one sample at a time by vmap, where no sample can see another. Slower, and the oracle of the fast
way. A personal transform always goes this way, for it is a stranger's.
"""

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from dpflbench.federation.gradients.objective import Objective
from dpflbench.interfaces import Layout, LocalTransform


def transformed(transform: LocalTransform, phi: Tensor, x: Tensor) -> Tensor:
    """The transform of x [B, ...] by a row of phi [B, P] each."""
    rows: Tensor = vmap(lambda own, sample: transform.apply(own[None], sample[None])[0])(phi, x)
    return rows


class Functional:
    """Gradients and outputs of each sample as rows. `straight` is the module where its rows are proved to be apart."""

    def __init__(
        self, module: nn.Module, layout: Layout, objective: Objective, transform: LocalTransform, phi_dim: int
    ) -> None:
        self.module, self.layout, self.objective = module, layout, objective
        self.transform, self.phi_dim = transform, phi_dim
        self.local = [t for t in layout.tensors if t.norm] if transform.norm_local else []
        self.tail = phi_dim - sum(t.stop - t.start for t in self.local)
        self.straight: nn.Module | None = None

    def to(self, device: torch.device) -> None:
        """Move the module's buffers and frozen parameters."""
        self.module.to(device)
        if self.straight is not None:
            self.straight.to(device)

    def gradients(self, params: dict[str, Tensor], phi: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Per-sample gradients by theta [B, D] and phi [B, P], and outputs [B, outputs]."""
        params, dims = self._personal(params, phi)

        def loss(params: dict[str, Tensor], phi: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            out = self._forward(params, phi[None] if self.phi_dim else None, x[None])
            return self.objective.losses(out, y[None])[0], out[0]

        rows = vmap(grad(loss, argnums=(0, 1), has_aux=True), in_dims=(dims, 0, 0, 0))
        (by_name, by_phi), outputs = rows(params, phi, x, y)
        by_theta = torch.cat([by_name[t.name].flatten(1) for t in self.layout.tensors], dim=1)
        at = self.tail
        for t in self.local:
            by_phi[:, at : at + t.stop - t.start] += by_theta[:, t.start : t.stop]
            by_theta[:, t.start : t.stop] = 0.0
            at += t.stop - t.start
        return by_theta, by_phi, outputs

    def outputs(self, params: dict[str, Tensor], phi: Tensor | None, x: Tensor) -> Tensor:
        """Outputs [B, outputs] for inputs with a row of phi each, or with phi at the identity."""
        if not self.phi_dim:
            phi = None
        if self.straight is not None and (phi is None or not self.local):
            known = {name: p for name, p in params.items() if name in dict(self.straight.named_parameters())}
            x = x if phi is None else transformed(self.transform, phi, x)
            straight: Tensor = functional_call(self.straight, known, (x,))
            return straight
        params, dims = (params, dict.fromkeys(params)) if phi is None else self._personal(params, phi)
        own = x.new_zeros(len(x), 0) if phi is None else phi
        result: Tensor = vmap(
            lambda params, phi, x: self._forward(params, phi[None], x[None])[0], in_dims=(dims, 0, 0)
        )(params, own, x)
        return result

    def _forward(self, params: dict[str, Tensor], phi: Tensor | None, x: Tensor) -> Tensor:
        if phi is not None and phi.shape[1]:
            x = self.transform.apply(phi, x)
        result: Tensor = functional_call(self.module, params, (x,))
        return result

    def _personal(self, params: dict[str, Tensor], phi: Tensor) -> tuple[dict[str, Tensor], dict[str, int | None]]:
        """Parameters with each sample's own normalisation where the transform keeps that local, and what vmap maps
        over.
        """
        dims: dict[str, int | None] = {name: None for name in params}
        params, at = dict(params), self.tail
        for t in self.local:
            stop = at + t.stop - t.start
            params[t.name] = params[t.name] + phi[:, at:stop].view(-1, *t.shape)
            dims[t.name], at = 0, stop
        return params, dims
