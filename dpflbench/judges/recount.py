"""The recount of one record: every number is computed again from its ledger events and its configuration.

The recorded epsilon_spent is only compared, never used. Each check returns what it found wrong, in words.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpflbench.canonical import content_digest
from dpflbench.catalogue import Catalogue
from dpflbench.errors import DpflbenchError
from dpflbench.hookspecs import KINDS as KINDS_OF_PARTS
from dpflbench.interfaces import Accountant, Event, LocalUpdate, Mechanism
from dpflbench.judges.second_accountant import SLACK
from dpflbench.privacy.ledger import COLUMNS, KINDS, NOT_FROZEN, totals
from dpflbench.privacy.sensitivity import loss_sensitivity
from dpflbench.results.record import Record
from dpflbench.schema import build

Array = NDArray[Any]
EXACT = 1e-9  # relative: what recomputing a float64 formula on another machine may change


@dataclass(frozen=True, slots=True)
class Recount:
    """What came out for one record: what is wrong, and who was asked what its releases cost."""

    problems: tuple[str, ...]
    accountants: tuple[str, ...] = ()  # one or two; none where no privacy was promised


@dataclass(frozen=True, slots=True)
class Rules:
    """The parts of a record's own configuration that say what a release is and costs."""

    mechanism: Mechanism
    accountant: Accountant
    local: LocalUpdate


def rules_of(config: Mapping[str, Any], catalogue: Catalogue) -> Rules:
    """The installed parts a record names; DpflbenchError if one is not installed."""
    noise = {k: v for k, v in config["privacy"]["mechanism"].items() if k != "accountant"}
    accountant = config["privacy"]["mechanism"]["accountant"]
    return Rules(
        _made(catalogue, "mechanisms", noise),
        _made(catalogue, "accountants", accountant),
        _made(catalogue, "local_updates", config["federation"]["local"]),
    )


def _made(catalogue: Catalogue, kind: str, given: Mapping[str, Any]) -> Any:
    """The installed part that a record's configuration names; DpflbenchError if there is none."""
    tag, problems = KINDS_OF_PARTS[kind].tag, list[str]()
    rest = {k: v for k, v in given.items() if k != tag}
    made = build(catalogue.get(kind, str(given.get(tag))).factory, rest, kind, problems)
    if problems:
        raise DpflbenchError(problems[0])
    return made


def recount(record: Record, catalogue: Catalogue) -> Recount:
    """What is wrong with one record taken by itself."""
    problems = []
    facts, config = record.facts, record.config
    if facts and content_digest([config, record.plugins, facts["data_digest"]])[:20] != record.id:
        problems.append("the run id is not the digest of configuration, plugins and data")
    if not record.private:
        if record.events and len(record.events["client"]):
            problems.append("not private, and yet there are releases in a ledger")
        return Recount(tuple(problems))
    if not record.events or not facts:
        if record.status == "done":
            problems.append("done, and yet there is no ledger")
        return Recount(tuple(problems))
    malformed = check_columns(record)
    if malformed:
        return Recount((*problems, *malformed))
    rules = rules_of(config, catalogue)
    budgets = {"epsilon": record.clients["epsilon"], "delta": record.clients["delta"]}
    if content_digest({"accountant": rules.accountant.name, **budgets, **record.events}) != facts["ledger_digest"]:
        problems.append("the ledger digest does not match the releases")
    problems += [*check_budgets(record, catalogue), *check_schedule(record), *check_sensitivities(record, rules)]
    found, accountants = check_spending(record, rules)
    return Recount((*problems, *found), accountants)


def check_columns(record: Record) -> list[str]:
    """Ledger and client columns must have the right names, lengths and ranges before anything is computed from them."""
    events, n = record.events, int(record.config["federation"]["clients"])
    if set(events) != set(COLUMNS) or len({len(column) for column in events.values()}) != 1:
        return [f"releases need columns {', '.join(COLUMNS)} of one length"]
    for name in ("n_examples", "epsilon", "delta", "epsilon_spent"):
        if record.clients[name].shape != (n,):
            return [f"clients.{name} has shape {record.clients[name].shape}, there are {n} clients"]
    if len(events["client"]) == 0:
        return ["done without a single release"] if record.status == "done" else []
    inside = (events["client"] >= 0) & (events["client"] < n) & np.isin(events["kind"], range(len(KINDS)))
    inside &= (events["round"] >= 0) & (events["round"] < int(record.config["federation"]["rounds"]))
    inside &= (events["sensitivity"] > 0) & np.isfinite(events["sensitivity"]) & (events["scale"] >= 0)
    inside &= (events["rate"] > 0) & (events["rate"] <= 1) & (events["steps"] > 0)
    at = np.flatnonzero(~inside)
    return (
        [f"release {at[0]}: client, round, kind, sensitivity, scale, rate or steps is out of range"] if len(at) else []
    )


def check_budgets(record: Record, catalogue: Catalogue) -> list[str]:
    """The budgets must be those that configuration and seed draw."""
    from dpflbench.randomness import Streams

    privacy, n = record.config["privacy"], int(record.config["federation"]["clients"])
    rng = Streams(int(record.config["seed"])).numpy("budgets")
    problems = []
    for name in ("epsilon", "delta"):
        given = privacy.get(name)
        if given is None and name == "delta":
            drawn = np.zeros(n)
        elif given is None:
            return [f"privacy.{name}: no distribution to draw the budgets from"]
        else:
            drawn = _made(catalogue, "budgets", given).draw(n, rng)
        if not np.allclose(record.clients[name], drawn, rtol=EXACT, atol=0):
            at = int(np.argmax(~np.isclose(record.clients[name], drawn, rtol=EXACT, atol=0)))
            problems.append(
                f"client {at}: {name} {record.clients[name][at]:.9g}, configuration and seed give {drawn[at]:.9g}"
            )
    return problems


def check_schedule(record: Record) -> list[str]:
    """Each round has exactly the configured number of distinct clients, losses come from them alone, and uses are as
    recorded.
    """
    federation, events = record.config["federation"], record.events
    n, size, rounds = int(federation["clients"]), int(federation["cohort"]), int(federation["rounds"])
    taking_part = events["kind"] != KINDS.index("loss")
    pairs = events["round"].astype(np.int64) * n + events["client"]
    cohort, times = np.unique(pairs[taking_part], return_counts=True)
    problems = []
    if (times > 1).any():
        problems.append(f"round {cohort[times > 1][0] // n}: client {cohort[times > 1][0] % n} takes part twice")
    per_round = np.bincount(cohort // n, minlength=rounds)
    played = rounds if record.status == "done" else int(per_round.nonzero()[0].max(initial=-1)) + 1
    odd = np.flatnonzero(per_round[:played] != size)
    if len(odd):
        problems.append(f"round {odd[0]}: {per_round[odd[0]]} clients take part, the cohort is {size}")
    stray = ~np.isin(pairs[~taking_part], cohort)
    if stray.any():
        problems.append(
            f"round {events['round'][~taking_part][stray][0]}: a loss from a client that does not take part"
        )
    uses = record.clients.get("uses")
    if record.status == "done" and (uses is None or not np.array_equal(np.bincount(cohort % n, minlength=n), uses)):
        problems.append("the recorded uses are not those of the ledger")
    return problems


def check_sensitivities(record: Record, rules: Rules) -> list[str]:
    """Every release has the sensitivity, rate and steps that clip bound, loss bound and client size imply, and noise of
    a positive scale.
    """
    events, size = record.events, record.clients["n_examples"].astype(np.int64)
    if int(size.sum()) != int(record.facts["n_train"]):
        return [f"clients hold {int(size.sum())} examples, the run {record.facts['n_train']}"]
    problems = [] if (events["scale"] > 0).all() else ["a release without noise"]
    starts = np.array([int(note["round"]) for note in record.notes])
    if not len(starts) or starts[0] != 0 or (np.diff(starts) <= 0).any():
        return [*problems, "the plans of the run are not in its notes"]
    which = np.searchsorted(starts, events["round"], side="right") - 1
    for at, note in enumerate(record.notes):
        for number, kind in enumerate(KINDS):
            rows = (which == at) & (events["kind"] == number)
            if rows.any():
                problems += _check_kind(record, rules, note, kind, rows)
    return problems


def _check_kind(record: Record, rules: Rules, note: Mapping[str, Any], kind: str, rows: Array) -> list[str]:
    """Releases of one kind under one plan, held against what the local update says they are."""
    size, whose = record.clients["n_examples"].astype(np.int64), record.events["client"][rows]
    factor = np.asarray(note.get("clip_factor", np.ones(len(size))), dtype=np.float64)
    clip = float(record.config["privacy"]["clip"]) * factor
    bound = float((note.get("probe") or {}).get("loss_bound", math.nan))
    if kind != "gradient" and not bound > 0:
        return [f"a {kind} release in a plan without a probe"]
    if kind == "loss":
        expected = rules.mechanism.event(kind, loss_sensitivity(bound, size)).of(whose)
    else:
        expected = rules.local.event(rules.mechanism, clip, size, bound if kind == "joint" else 0.0).of(whose)
    for name in ("sensitivity", "rate", "steps"):
        found, wanted = record.events[name][rows], getattr(expected, name)
        wrong = np.flatnonzero(~np.isclose(found, wanted, rtol=EXACT, atol=0))
        if len(wrong):
            at = wrong[0]
            return [
                f"client {whose[at]}: {kind} {name} {found[at]:.9g}, clip, loss bound and size give {wanted[at]:.9g}"
            ]
    return []


def check_spending(record: Record, rules: Rules) -> tuple[list[str], tuple[str, ...]]:
    """No client's epsilon, by the run's accountant and by its second opinion, is above its budget or what was
    recorded.
    """
    events, clients, accountant = record.events, record.clients, rules.accountant
    whose = events["client"].astype(np.int64)
    columns = {name: events[name] for name in ("sensitivity", "scale", "rate", "steps")}
    releases = Event(kind="gradient", law=rules.mechanism.law, **columns)
    why = accountant.supports(releases)
    if why:
        return [f"accountant {accountant.name} has no proof for the releases: {why}"], ()
    cost = accountant.cost(releases)
    total, order = totals(whose, events["round"], cost, accountant.budget(clients["epsilon"], clients["delta"]))
    charged = np.where(order[:, None] == np.arange(cost.shape[1]), total, np.inf)  # one frozen order a client
    spent = np.where(order == NOT_FROZEN, 0.0, accountant.epsilon(charged, clients["delta"]))
    problems = []
    if events["cost"].size != cost.size or not np.allclose(
        events["cost"].reshape(cost.shape), cost, rtol=EXACT, atol=0
    ):
        problems.append("a recorded cost is not that of its release")
    problems += _overspent(spent, clients["epsilon"], accountant.name)
    differs = ~(np.abs(spent - clients["epsilon_spent"]) <= SLACK * (1 + spent))
    if differs.any():
        at = int(np.flatnonzero(differs)[0])
        problems.append(f"client {at}: recorded epsilon {clients['epsilon_spent'][at]:.9g}, recomputed {spent[at]:.9g}")
    second = accountant.second_opinion(releases, whose, clients["delta"])
    if second is None:
        return problems, (accountant.name,)
    name, theirs = second
    problems += _overspent(theirs, clients["epsilon"], name)
    above = ~(theirs <= spent + SLACK * (1 + spent))
    if above.any():
        at = int(np.flatnonzero(above)[0])
        problems.append(f"client {at}: epsilon {spent[at]:.9g} by {accountant.name}, {theirs[at]:.9g} by {name}")
    return problems, (accountant.name, name)


def _overspent(spent: Array, allowed: Array, who: str) -> list[str]:
    over = ~(spent <= allowed + SLACK * (1 + allowed))
    if not over.any():
        return []
    at = int(np.argmax(np.nan_to_num(spent - allowed, nan=np.inf, posinf=np.inf)))
    return [f"{over.sum()} clients overspend by {who}; client {at}: epsilon {spent[at]:.9g} of {allowed[at]:.9g}"]
