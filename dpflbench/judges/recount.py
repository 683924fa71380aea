"""The recount of one record: every number is computed again from its ledger events and its configuration.

The recorded epsilon_spent is only compared, never used. Each check returns what it found wrong, in words.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from dpflbench.assembly import Assembler
from dpflbench.canonical import content_digest
from dpflbench.catalogue import Catalogue
from dpflbench.errors import DpflbenchError
from dpflbench.federation.local import protecting
from dpflbench.frame import PrivacyFrame
from dpflbench.hookspecs import KINDS as KINDS_OF_PARTS
from dpflbench.interfaces import Accountant, Algorithm, Event, Mechanism, Trust
from dpflbench.judges.coherence import EXACT, check_coherence
from dpflbench.judges.explanation import check_explanation
from dpflbench.judges.participation import Rules, check_participation
from dpflbench.judges.second_accountant import SLACK
from dpflbench.keys import Origin, key_of
from dpflbench.privacy.chain import COLUMNS, chain_of
from dpflbench.privacy.gaussian_dp import delta as delta_of
from dpflbench.privacy.ledger import KINDS, epsilon_of, totals
from dpflbench.privacy.residuals import is_normal
from dpflbench.results.record import Record
from dpflbench.results.rulings import NOT_AS_CLAIMED, UNPRICED
from dpflbench.schema import build

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Recount:
    """What came out for one record: what is wrong, and who was asked what its releases cost."""

    problems: tuple[str, ...]
    accountants: tuple[str, ...] = ()  # one or two; none where no privacy was promised
    doubts: tuple[str, ...] = ()  # what could not be looked at


def rules_of(config: Mapping[str, Any], catalogue: Catalogue) -> Rules:
    """The installed parts a record names; DpflbenchError if one is not installed."""
    noise = {k: v for k, v in config["privacy"]["mechanism"].items() if k != "accountant"}
    accountant = config["privacy"]["mechanism"]["accountant"]
    local, algorithm = _made(catalogue, "local_updates", config["federation"]["local"]), _algorithm(config, catalogue)
    frame = PrivacyFrame(
        trust_in(config), config["privacy"].get("unit", "example"), config["federation"].get("cohorts", "exact"), local
    )
    return Rules(
        _made(catalogue, "mechanisms", noise),
        _made(catalogue, "accountants", accountant),
        protecting(local, frame.unit),
        config["privacy"].get("neighbours", frame.neighbours),
        int(algorithm.rule.passes) if local.ruled and frame.unit == "example" else 1,
        algorithm.aggregator,
        frame.trust,
        frame.cohorts,
    )


def trust_in(config: Mapping[str, Any]) -> Trust:
    """The trust that a canonical configuration names."""
    given: Any = (config.get("privacy") or {}).get("trust", "local")
    return Trust(given) if isinstance(given, str) else Trust(**given)  # type: ignore[arg-type]


def _algorithm(config: Mapping[str, Any], catalogue: Catalogue) -> Algorithm:
    """The algorithm of a record."""
    problems: list[str] = []
    made = Assembler(catalogue, problems).algorithm(config["algorithm"], "algorithm")
    if problems:
        raise DpflbenchError(problems[0])
    found: Algorithm = made.value
    return found


def _made(catalogue: Catalogue, kind: str, given: Mapping[str, Any]) -> Any:
    """The installed part that a record's configuration names; DpflbenchError if there is none."""
    tag, problems = KINDS_OF_PARTS[kind].tag, list[str]()
    rest = {k: v for k, v in given.items() if k != tag}
    made = build(catalogue.get(kind, str(given.get(tag))).factory, rest, kind, problems)
    if problems:
        raise DpflbenchError(problems[0])
    return made


def recount(record: Record, catalogue: Catalogue, second: bool = True) -> Recount:
    """What is wrong with one record taken by itself; the second accountant, who may be slow, is asked if `second`."""
    problems = check_coherence(record)
    facts, config = record.facts, record.config
    if facts and content_digest([config, record.plugins, facts["data_digest"]])[:20] != record.id:
        problems.append("the run id is not the digest of configuration, plugins and data")
    if not record.private or not facts:
        return Recount(tuple(problems))
    if not record.events:
        return Recount((*problems, "private, and yet there is no ledger"))
    malformed = check_columns(record)
    if malformed:
        return Recount((*problems, *malformed))
    try:
        rules = rules_of(config, catalogue)
    except DpflbenchError as e:  # not installed here
        return Recount(tuple(problems), doubts=(f"{UNPRICED}: {e}",))
    problems += [*check_noise(record, rules.mechanism), *check_chain(record, rules.accountant)]
    problems += [*check_budgets(record, catalogue), *check_participation(record, rules)]
    if record.status == "done":
        problems += check_explanation(record, rules)
    found, accountants = check_spending(record, rules, second)
    return Recount((*problems, *found), accountants)


def check_noise(record: Record, mechanism: Mechanism) -> Iterator[str]:
    """The noise has the law its mechanism draws, and hangs on the key and the name that its configuration says."""
    law, noise, privacy = record.facts["mechanism"]["law"], record.facts["noise"], record.config["privacy"]
    if law != mechanism.law.name:
        yield f"noise of law {law}, {mechanism.name} is {mechanism.law.name}"
    key, pinned = key_of(noise["key"], "facts.noise.key"), privacy.get("noise_key")
    if (noise["origin"] == "pinned") != (pinned is not None) or noise["origin"] not in get_args(Origin):
        yield f"its noise key is {noise['origin']}, and its configuration pins {'one' if pinned else 'none'}"
    elif pinned is not None and key != key_of(pinned, "privacy.noise_key"):
        yield "its noise key is not the one its configuration pins"
    name = "" if privacy.get("paired_noise") else content_digest(record.config) if pinned else record.id
    if noise["run"] != name:
        yield f"its noise is that of '{noise['run']}', by its configuration that of '{name}'"


def check_chain(record: Record, accountant: Accountant) -> list[str]:
    """Every link of the ledger's chain, from budgets and releases."""
    facts, clients = record.facts, record.clients
    chain = chain_of(accountant.name, clients["epsilon"], clients["delta"], record.events)
    kept, links = np.asarray(facts.get("ledger_chain")), chain.links
    problems = [] if chain.digest == facts["ledger_digest"] else ["the ledger digest does not match the releases"]
    if kept.shape != links.shape:
        problems.append(
            f"the ledger's chain has {len(kept) if kept.ndim else 'no'} links, {len(links)} rounds were charged"
        )
    elif not np.array_equal(kept, links):
        at = int((kept != links).any(1).argmax())
        round = np.unique(record.events["round"])[at]
        problems.append(f"the ledger's chain breaks in round {round}: its releases, or budgets, are not those charged")
    return problems


def check_columns(record: Record) -> list[str]:
    """Ledger and client columns must have the right names, lengths and ranges before anything is computed from them."""
    events, n = record.events, int(record.config["federation"]["clients"])
    if set(events) != set(COLUMNS) or len({len(column) for column in events.values()}) != 1:
        return [f"releases need columns {', '.join(COLUMNS)} of one length"]
    if any(events[name].dtype != dtype for name, dtype in COLUMNS.items()):
        return [f"releases are {', '.join(str(c.dtype) for c in events.values())}"]
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


def check_spending(record: Record, rules: Rules, ask: bool = True) -> tuple[list[str], tuple[str, ...]]:
    """No client's epsilon, by the run's accountant and by its second opinion, is above its budget or what was
    recorded.
    """
    events, clients, accountant = record.events, record.clients, rules.accountant
    whose = events["client"].astype(np.int64)
    columns = {name: events[name] for name in ("sensitivity", "scale", "rate", "steps")}
    releases = Event(kind="gradient", law=rules.mechanism.law.name, neighbours=rules.neighbours, **columns)
    why = accountant.supports(releases)
    if why:
        return [f"accountant {accountant.name} has no proof for the releases: {why}"], ()
    budgets = clients["epsilon"], clients["delta"]
    curve = accountant.of(*(column[whose] for column in budgets)).cost(releases)
    total, order = totals(whose, events["round"], curve, accountant.of(*budgets).budget(*budgets))
    spent = epsilon_of(accountant, total, order, curve.shape[1], *budgets)
    problems = [f"{NOT_AS_CLAIMED}: {accountant.unproved}"] if accountant.unproved else []
    problems += [] if accountant.adaptive else _unequal(record, accountant)
    if not np.allclose(events["cost"], curve[np.arange(len(whose)), order[whose]], rtol=EXACT, atol=0):
        problems.append("a recorded cost is not that of its release")
    problems += _overspent(spent, clients["epsilon"], accountant.name)
    problems += _underpriced(releases, whose, spent, clients["delta"], rules)
    differs = ~(np.abs(spent - clients["epsilon_spent"]) <= SLACK * (1 + spent))
    if differs.any():
        at = int(np.flatnonzero(differs)[0])
        problems.append(f"client {at}: recorded epsilon {clients['epsilon_spent'][at]:.9g}, recomputed {spent[at]:.9g}")
    if not ask and type(accountant).second_opinion is not Accountant.second_opinion:
        return problems, (accountant.name, "another who was not asked")
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


def _unequal(record: Record, accountant: Accountant) -> list[str]:
    """What an accountant for plans fixed beforehand has no proof for: another plan on the way, unequal releases."""
    if len(record.notes) > 1:
        return [f"{len(record.notes)} plans; accountant {accountant.name} has a proof for one, made before the first"]
    columns = [record.events[name] for name in ("client", "kind", "sensitivity", "scale", "rate", "steps")]
    kinds = np.unique(np.stack([np.asarray(column, dtype=np.float64) for column in columns]), axis=1)
    twice = kinds[0, 1:][np.diff(kinds[0]) == 0]
    if not len(twice):
        return []
    return [f"client {int(twice[0])}: releases that differ; accountant {accountant.name} has a proof for equal ones"]


def _underpriced(releases: Event, whose: Array, spent: Array, delta: Array, rules: Rules) -> list[str]:
    """What normal noise gives away is known, whoever prices it and whoever agrees: releases of all of a client's
    records compose to one mu, and at the epsilon charged that has a delta. Sampled ones can only add to it.
    """
    if not is_normal(rules.mechanism.law):
        return []
    some = (releases.rate == 1) & (releases.scale > 0)
    ratio = np.square(releases.sensitivity[some] / releases.scale[some]) * releases.steps[some]
    shown = delta_of(spent * (1 + SLACK) + SLACK, np.sqrt(np.bincount(whose[some], ratio, len(spent))))
    low = shown > delta * (1 + 1e-6)
    if not low.any():
        return []
    at = int(np.flatnonzero(low)[0])
    return [
        f"client {at}: epsilon {spent[at]:.9g} by {rules.accountant.name}, where its noise gives away delta "
        f"{shown[at]:.3g} and not {delta[at]:.3g}"
    ]


def _overspent(spent: Array, allowed: Array, who: str) -> list[str]:
    over = ~(spent <= allowed + SLACK * (1 + allowed))
    if not over.any():
        return []
    at = int(np.argmax(np.nan_to_num(spent - allowed, nan=np.inf, posinf=np.inf)))
    return [f"{over.sum()} clients overspend by {who}; client {at}: epsilon {spent[at]:.9g} of {allowed[at]:.9g}"]
