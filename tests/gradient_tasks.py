"""What the tests of gradients share: every model with made-up samples, a personal transform, and how far samples are
from where a model is not smooth.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from dpflbench.tasks.models import MODELS
from dpflbench.tasks.task import Shards

SIZES = np.array([3, 1, 0, 6, 2])


@dataclass(frozen=True)
class Shift:
    """x (1 + scale) + shift by feature; with norm_local the tail of phi belongs to the normalisation layers."""

    norm_local: bool = False

    def init(self, n_clients, input_shape, layout, rng):
        raise NotImplementedError

    def apply(self, phi, x):
        n = x[0].numel()
        return x * (1.0 + phi[:, :n].reshape(x.shape)) + phi[:, n : 2 * n].reshape(x.shape)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def task_of(input_shape, n_classes, sizes=SIZES, dtype=torch.float64, seed=0):
    m = int(sum(sizes))
    x = torch.randn(m, *input_shape, generator=rng(seed), dtype=dtype)
    y = (
        torch.randint(n_classes, (m,), generator=rng(seed + 1))
        if n_classes
        else torch.randn(m, generator=rng(seed + 1), dtype=dtype)
    )
    return Shards(x, y, np.concatenate([[0], np.cumsum(sizes)]))


def model_and_task(name, dtype=torch.float64):
    model = MODELS[name]()
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(rng(7).get_state())
        module = model.build(model.default_input, model.default_outputs).to(dtype)
    n_classes = 0 if name == "linear" else model.default_outputs
    return module, task_of(model.default_input, n_classes, dtype=dtype), n_classes


def distance_to_a_kink(module, x):
    """By sample [B]: how far the nearest input of a ReLU is from 0, and of a max pool from a change of its maximum."""
    nearest = []

    def note(layer, args, _):
        a = args[0].detach()
        if isinstance(layer, nn.ReLU):
            nearest.append(a.abs().flatten(1).amin(1))
        elif isinstance(layer, nn.MaxPool2d):
            best = nn.functional.unfold(a.flatten(0, 1)[:, None], 2, stride=2).topk(2, dim=1).values
            gap = torch.where(best[:, 0] > 0, best[:, 0] - best[:, 1], 1.0)  # 0 behind a ReLU has no slope
            nearest.append(gap.reshape(len(a), -1).amin(1))

    hooks = [part.register_forward_hook(note) for part in module.modules()]
    with torch.no_grad():
        module(x)
    for hook in hooks:
        hook.remove()
    return torch.stack(nearest).amin(0) if nearest else torch.ones(len(x))
