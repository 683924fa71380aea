"""Check of a local update: its releases move by no more than its event says when one example changes, as often and at
the rate it says, and by no other way than through `protect`.

Protection is played here by zeros: what a client gets back does not depend on its data, so that two neighbours walk the
same way, and whatever differs between them differs in a release. A client that steps by what it should have released
first walks another way, and its next release shows it.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpflbench.draws import Draws
from dpflbench.federation.gradients import Engine, initial_theta
from dpflbench.interfaces import PLAIN, ClientWork, Event, Floats, Ints, LocalUpdate, Visit
from dpflbench.tasks.task import Shards
from dpflbench.testing.factories import named, obtain
from dpflbench.testing.rules import attempt, needs_methods, pickled, refuse
from dpflbench.testing.worlds import standard_accountant, standard_noise

CLIENTS, SIZE, FEATURES, CLIP = 3, 7, 4, 0.5
TRIALS, FAR = 40, 6.0  # participations of everybody; standard deviations that chance does not explain


def check_local_update(part: Any, who: str = "") -> None:
    """Raise ConformanceError at the first broken rule; `part` is a local update or a factory of one."""
    who = named(part, "local update", who)
    local = obtain(part, who)
    needs_methods(who, local, LocalUpdate, {"event": 6, "compute": 2})
    pickled(who, local)
    for mechanism, usual in standard_noise().values():
        given = mechanism, np.full(CLIENTS, CLIP), np.full(CLIENTS, SIZE, dtype=np.int64), 0.0, local.neighbours
        event = attempt(who, "event(…)", "an Event", partial(local.event, *given))
        if not isinstance(event, Event) or event.sensitivity.shape != (CLIENTS,) or not (event.sensitivity > 0).all():
            refuse(
                who,
                f"event returns {event!r:.80}",
                "an Event with a positive sensitivity a client",
                "use mechanism.event",
            )
        accountant = standard_accountant(local.accountant) if local.accountant else usual
        if accountant.supports(event):
            continue  # refused at plan time under this noise
        _check_releases(local, event, mechanism.clip_order, who)


def _check_releases(local: Any, event: Event, order: Any, who: str) -> None:
    """Both worlds of every trial, release by release."""
    seen = []
    for trial in range(TRIALS if (event.rate < 1).any() else 1):
        here, there = (_releases(local, event, order, world, trial, who) for world in (0, 1))
        moved = np.stack([np.linalg.norm(a - b, ord=order, axis=1) for a, b in zip(here, there, strict=True)])
        if (moved > event.sensitivity * (1 + 1e-6)).any():
            refuse(
                who,
                f"one example moves a release by {moved.max():.4g}, its event says {event.sensitivity.max():.4g}",
                "a sensitivity that bounds every neighbour, at every step",
                "clip every example, divide by the expected batch, and step by what `protect` returns",
            )
        seen.append(moved > 0)
    drawn = np.stack(seen)  # [trials, steps, K], was the example in the batch
    rate, count = float(event.rate[0]), drawn.size
    if drawn.mean() > rate + FAR * np.sqrt(rate * (1 - rate) / count) + 1e-9:
        refuse(
            who,
            f"an example takes part in {drawn.mean():.3f} of the releases, its event says {rate:.3f}",
            "the rate at which records are drawn",
            "draw every record by a coin of the event's rate: work.batches",
        )
    if rate < 1 and drawn.shape[1] > 1 and (drawn == drawn[:, :1]).all():
        refuse(
            who,
            "draws one batch for all steps of a participation",
            "coins of its own for every step",
            "toss work.batches anew at every step",
        )


def _releases(local: Any, event: Event, order: Any, world: int, trial: int, who: str) -> list[Floats]:
    """What three clients release before noise, step by step; the first example of each differs between the worlds."""
    rng = torch.Generator().manual_seed(3)
    x, y = torch.randn(CLIENTS * SIZE, FEATURES, generator=rng), torch.arange(CLIENTS * SIZE) % 2
    x[::SIZE] = 1000.0 if world else (0.0 if event.neighbours == "zero_out" else -1000.0)
    module = nn.Linear(FEATURES, 2, bias=False)  # without one, an example of zeros contributes nothing
    with torch.no_grad():
        module.weight.zero_()
    seen: list[Floats] = []
    times = np.zeros(CLIENTS, dtype=np.int64)

    def protect(value: Tensor, rows: Ints | None = None) -> Tensor:
        at = np.arange(CLIENTS) if rows is None else rows
        times[at] += 1
        whole = np.zeros((CLIENTS, value.shape[1]))
        whole[at] = value.detach().double().numpy()
        seen.append(whole)
        return torch.zeros_like(value)

    theta = initial_theta(module)
    work = ClientWork(
        engine=Engine(module, 2, order),
        theta=theta,
        phi=torch.zeros(CLIENTS, 0),
        shards=Shards(x, y, np.arange(CLIENTS + 1) * SIZE),
        cohort=np.arange(CLIENTS),
        clip_norm=torch.full((CLIENTS,), CLIP),
        loss_bound=None,
        event=event,
        batches=Draws(trial.to_bytes(32, "big")),
        rule=PLAIN,
        visit=Visit(
            round=0, rounds=1, theta=theta, n_clients=CLIENTS, lr=1.0, steps=torch.tensor(event.steps.tolist()).float()
        ),
    )
    computed = attempt(who, "compute(work, protect)", "a Computed", lambda: local.compute(work, protect))
    if (times != event.steps).any():
        refuse(
            who,
            f"compute calls protect {times.max()} times",
            f"{int(event.steps.max())} releases, as its event says",
            "every release through protect",
        )
    if computed.messages.shape != (CLIENTS, theta.numel()):
        refuse(
            who,
            f"messages have shape {tuple(computed.messages.shape)}",
            f"({CLIENTS}, {theta.numel()})",
            "a row a client",
        )
    if bool((computed.messages != 0).any()):
        refuse(
            who,
            "a message is not made of what protect returned",
            "nothing that was not released",
            "return what protect returns, or what follows from it",
        )
    return seen
