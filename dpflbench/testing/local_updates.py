"""Check of a local update: its message moves by no more than it says when one example is replaced, and by no other way
than through `protect`.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpflbench.federation.gradients import Engine, initial_theta
from dpflbench.interfaces import ClientWork, Event, LocalUpdate
from dpflbench.tasks.task import Shards
from dpflbench.testing.factories import named, obtain
from dpflbench.testing.rules import attempt, needs_methods, pickled, refuse
from dpflbench.testing.worlds import standard_noise

CLIENTS, SIZE, FEATURES, CLIP = 3, 7, 4, 0.5


def check_local_update(part: Any, who: str = "") -> None:
    """Raise ConformanceError at the first broken rule; `part` is a local update or a factory of one."""
    who = named(part, "local update", who)
    local = obtain(part, who)
    needs_methods(who, local, LocalUpdate, {"event": 4, "compute": 2})
    pickled(who, local)
    for mechanism, accountant in standard_noise().values():
        given = mechanism, np.full(CLIENTS, CLIP), np.full(CLIENTS, SIZE, dtype=np.int64), 0.0
        event = attempt(who, "event(…)", "an Event", partial(local.event, *given))
        if not isinstance(event, Event) or event.sensitivity.shape != (CLIENTS,) or not (event.sensitivity > 0).all():
            refuse(
                who,
                f"event returns {event!r:.80}",
                "an Event with a positive sensitivity a client",
                "use mechanism.event",
            )
        if accountant.supports(event):
            continue  # refused at plan time under this noise
        here, there = (_message(local, mechanism.clip_order, world, who) for world in (0, 1))
        moved = torch.linalg.vector_norm((here - there).double(), ord=mechanism.clip_order, dim=1)
        over = moved > torch.as_tensor(event.sensitivity) * (1 + 1e-6)
        if bool(over.any()) and bool((event.steps == 1).all()):
            refuse(
                who,
                f"replacing one example moves a message by {float(moved.max()):.4g}, its event says "
                f"{event.sensitivity.max():.4g}",
                "a sensitivity that bounds every neighbour",
                "clip every example, and let the event say what one of them can do",
            )


def _message(local: Any, order: Any, world: int, who: str) -> Tensor:
    """The messages of three clients before noise; the first example of each differs between the two worlds."""
    rng = torch.Generator().manual_seed(3)
    x, y = torch.randn(CLIENTS * SIZE, FEATURES, generator=rng), torch.arange(CLIENTS * SIZE) % 2
    x[::SIZE] = 1000.0 if world else -1000.0
    module = nn.Linear(FEATURES, 2)
    with torch.no_grad():
        module.weight.zero_()
        module.bias.zero_()
    seen: list[Tensor] = []

    def protect(value: Tensor) -> Tensor:
        seen.append(value)
        return value

    work = ClientWork(
        engine=Engine(module, 2, order),
        theta=initial_theta(module),
        phi=torch.zeros(CLIENTS, 0),
        shards=Shards(x, y, np.arange(CLIENTS + 1) * SIZE),
        cohort=np.arange(CLIENTS),
        clip_norm=torch.full((CLIENTS,), CLIP),
        loss_bound=None,
    )
    message, _ = attempt(who, "compute(work, protect)", "messages and losses", lambda: local.compute(work, protect))
    if not seen:
        refuse(who, "compute never calls protect", "every release through protect", "return protect(value)")
    if message.shape != (CLIENTS, work.theta.numel()):
        refuse(
            who, f"messages have shape {tuple(message.shape)}", f"({CLIENTS}, {work.theta.numel()})", "a row a client"
        )
    return torch.as_tensor(message)
