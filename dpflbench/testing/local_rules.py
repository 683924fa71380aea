"""Check of a local rule: tensors of the right shapes, client by client, a function of what it is handed and of nothing
it keeps, on models and noisy gradients made up here.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dpflbench.interfaces import Finished, Journey, LocalRule, Setup, Visit
from dpflbench.testing.factories import named, obtain
from dpflbench.testing.rules import (
    attempt,
    difference,
    keep,
    needs_methods,
    no_global_draws,
    pickled,
    refuse,
    unchanged,
)
from dpflbench.testing.worlds import setup_of, standard_noise

COHORT = (1, 4, 9)
STEPS = (3.0, 3.0, 2.0)


def check_local_rule(part: Any, who: str = "") -> None:
    """Raise ConformanceError at the first broken rule; `part` is a local rule or a factory of one."""
    who = named(part, "local rule", who)
    rule = obtain(part, who)
    needs_methods(who, rule, LocalRule, {"init": 2, "start": 1, "direction": 3, "finish": 2, "personal": 2})
    passes = getattr(rule, "passes", None)
    if not isinstance(passes, int) or isinstance(passes, bool) or passes < 1:
        refuse(who, f"passes is {passes!r}", "1 or more passes over the steps", "set passes: ClassVar[int] = 1")
    setup = setup_of(standard_noise()["gaussian"])
    first, attributes = played(rule, setup, who), keep(rule)
    for again in (rule, pickled(who, rule)):
        if difference(first, played(again, setup, who)):
            refuse(
                who,
                "the same rounds twice give different messages",
                "a function of its arguments",
                "keep what changes in `own` and `shared`, and draw nothing",
            )
    unchanged(who, "a round", attributes, rule, "its own attributes ")
    _client_by_client(rule, setup, who)


def played(rule: Any, setup: Setup, who: str, cohort: tuple[int, ...] = COHORT, rounds: int = 2) -> dict[str, Any]:
    """Two rounds of a cohort: messages, what is kept and what is shared."""
    theta = _numbers(0, setup.layout.dim)
    with no_global_draws(who, "a local rule"):
        shared, own = attempt(who, "init(setup, theta)", "(shared, own)", lambda: rule.init(setup, theta))
        _rows(own, setup.n_clients, "init", who)
        out: dict[str, Any] = {}
        for round in range(rounds):
            finished = _round(rule, setup, theta, round, shared, own, cohort, who)
            own = {k: v.index_copy(0, torch.tensor(cohort), finished.own[k]) for k, v in own.items()}
            shared, theta = finished.shared, theta - 0.1 * finished.messages.mean(0)
            out[f"messages {round}"] = finished.messages
        models = attempt(who, "personal(theta, own)", "models or None", lambda: rule.personal(theta, own))
    if models is not None and models.shape != (setup.n_clients, theta.numel()):
        refuse(who, f"personal models of {tuple(models.shape)}", "[N, D], or None", "a row for every client")
    return {**out, "own": own, "shared": shared}


def _round(
    rule: Any, setup: Setup, theta: Tensor, round: int, shared: Any, own: Any, cohort: tuple[int, ...], who: str
) -> Finished:
    at, dim = torch.tensor(cohort), theta.numel()
    steps = torch.tensor([STEPS[COHORT.index(n)] for n in cohort])
    visit = Visit(
        round=round,
        rounds=10,
        theta=theta,
        n_clients=setup.n_clients,
        lr=0.1,
        steps=steps,
        shared=shared,
        own={name: value[at] for name, value in own.items()},
    )
    before, journeys = keep(visit), []
    for number in range(rule.passes):
        now = replace(visit, number=number)
        model = attempt(who, "start(visit)", "models [K, D]", partial(rule.start, now))
        _shaped(model, (len(cohort), dim), "start", who)
        noisy = torch.stack([_numbers(100 * round + 10 * number + n + 1, dim) for n in cohort])
        towards = attempt(
            who, "direction(noisy, model, visit)", "steps [K, D]", partial(rule.direction, noisy, model, now)
        )
        _shaped(towards, (len(cohort), dim), "direction", who)
        journeys.append(Journey(model - 0.1 * towards * steps[:, None], noisy))
    last = replace(visit, number=rule.passes - 1)
    finished = attempt(who, "finish(journeys, visit)", "a Finished", lambda: rule.finish(journeys, last))
    if not isinstance(finished, Finished):
        refuse(who, f"finish returns {type(finished).__name__}", "a dpflbench.interfaces.Finished", "see LocalRule")
    _shaped(finished.messages, (len(cohort), dim), "finish", who)
    _rows(finished.own, len(cohort), "finish", who)
    if set(finished.own) != set(own):
        refuse(who, f"keeps {sorted(finished.own)}", f"{sorted(own)}, as init does", "return every row again")
    unchanged(who, "a round", before, visit, "what it was handed ")
    return finished


def _client_by_client(rule: Any, setup: Setup, who: str) -> None:
    """What a client sends in its first round is its own business: nobody else in the cohort changes it."""
    whole = played(rule, setup, who, rounds=1)["messages 0"]
    for at, n in enumerate(COHORT):
        alone = played(rule, setup, who, (n,), rounds=1)["messages 0"]
        if not torch.allclose(alone[0], whole[at], rtol=1e-5, atol=1e-6):
            refuse(
                who,
                "a client's message depends on who else is in the cohort",
                "row n of every tensor from row n of what comes in",
                "no sums over the first axis but for `shared`",
            )


def _shaped(value: Any, shape: tuple[int, ...], what: str, who: str) -> None:
    if not isinstance(value, Tensor) or value.shape != shape or value.dtype != torch.float32:
        found = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        refuse(who, f"{what} returns {found}", f"float32 {shape}", "a row for every client of the cohort")


def _rows(own: Any, count: int, what: str, who: str) -> None:
    good = isinstance(own, Mapping) and all(isinstance(v, Tensor) and len(v) == count for v in own.values())
    if not good:
        refuse(who, f"{what} keeps {own!r:.80}", f"name → tensor with {count} rows", "return {} where nothing is kept")


def _numbers(seed: int, dim: int) -> Tensor:
    return torch.randn(dim, generator=torch.Generator().manual_seed(seed))
