"""The server's step on the noisy direction: post-processing, whatever it remembers.

`sgd` takes the direction as it is, `momentum` its running sum (v ← beta v + d, as the key `federation.momentum` always
did), `adam` and `yogi` divide its mean by the root of a second moment (Reddi et al., "Adaptive Federated Optimization",
2021, algorithm 2): without bias correction and with a second moment that starts at tau², as there.
"""

import torch
from torch import Tensor

from dpflbench.interfaces import Server

Moments = tuple[Tensor, ...]  # [D] each


def first_moments(server: Server, theta: Tensor) -> Moments:
    """What the server remembers before the first round."""
    if server.kind == "sgd":
        return ()
    if server.kind == "momentum":
        return (torch.zeros_like(theta),)
    return torch.zeros_like(theta), torch.full_like(theta, server.tau**2)


def stepped(server: Server, direction: Tensor, moments: Moments) -> tuple[Tensor, Moments]:
    """What is subtracted, before the learning rate, and the next moments."""
    if server.kind == "sgd":
        return direction, ()
    if server.kind == "momentum":
        velocity = server.beta * moments[0] + direction
        return velocity, (velocity,)
    mean, square = moments
    mean, new = server.beta * mean + (1 - server.beta) * direction, direction.square()
    if server.kind == "adam":
        square = server.beta_2 * square + (1 - server.beta_2) * new
    else:
        square = square - (1 - server.beta_2) * new * torch.sign(square - new)
    return mean / (square.sqrt() + server.tau), (mean, square)
