"""What can be wrong with one record: every number is recomputed from its ledger events and its configuration.

The recorded epsilon_spent is only compared, never used. Each check returns what it found wrong, in words.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpflbench.canonical import content_digest
from dpflbench.judges.second_accountant import SLACK, client_epsilons
from dpflbench.privacy.ledger import COLUMNS, GRADIENT, JOINT, KINDS, LOSS
from dpflbench.privacy.sensitivity import gradient_sensitivity, joint_sensitivity, loss_sensitivity
from dpflbench.results.record import Record

Array = NDArray[Any]
EXACT = 1e-9  # relative: what recomputing a float64 formula on another machine may change


def check_record(record: Record) -> list[str]:
    """What is wrong with one record taken by itself."""
    problems = []
    facts, config = record.facts, record.config
    if facts and content_digest([config, record.plugins, facts["data_digest"]])[:20] != record.id:
        problems.append("the run id is not the digest of configuration, plugins and data")
    if not record.private:
        if record.events and len(record.events["client"]):
            problems.append("not private, and yet there are releases in a ledger")
        return problems
    if not record.events or not facts:
        return problems if record.status != "done" else [*problems, "done, and yet there is no ledger"]
    malformed = check_columns(record)
    if malformed:
        return [*problems, *malformed]
    mechanism = str(config["privacy"]["mechanism"]["name"])
    ledger = {
        "mechanism": mechanism,
        "epsilon": record.clients["epsilon"],
        "delta": record.clients["delta"],
        **record.events,
    }
    if content_digest(ledger) != facts["ledger_digest"]:
        problems.append("the ledger digest does not match the releases")
    for check in (check_budgets, check_schedule, check_sensitivities, check_spending):
        problems += check(record)
    return problems


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
    at = np.flatnonzero(~inside)
    return [f"release {at[0]}: client, round, kind, sensitivity or scale is out of range"] if len(at) else []


def check_budgets(record: Record) -> list[str]:
    """The budgets must be those that configuration and seed draw."""
    from dpflbench.randomness import Streams
    from dpflbench.tasks.population import DISTRIBUTIONS

    privacy, n = record.config["privacy"], int(record.config["federation"]["clients"])
    rng = Streams(int(record.config["seed"])).numpy("budgets")
    problems = []
    for name in ("epsilon", "delta"):
        given = privacy.get(name)
        if given is None and name == "delta":
            drawn = np.zeros(n)
        elif given is None or given.get("kind") not in DISTRIBUTIONS:
            return [f"privacy.{name}: no distribution to draw the budgets from"]
        else:
            drawn = DISTRIBUTIONS[given["kind"]](**{k: v for k, v in given.items() if k != "kind"}).draw(n, rng)
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
    taking_part = events["kind"] != LOSS
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


def check_sensitivities(record: Record) -> list[str]:
    """Every release has the sensitivity that clip bound, loss bound and client size imply, and noise of a positive
    scale.
    """
    events, size = record.events, record.clients["n_examples"].astype(np.float64)
    if int(size.sum()) != int(record.facts["n_train"]):
        return [f"clients hold {int(size.sum())} examples, the run {record.facts['n_train']}"]
    problems = [] if (events["scale"] > 0).all() else ["a release without noise"]
    starts = np.array([int(note["round"]) for note in record.notes])
    if not len(starts) or starts[0] != 0 or (np.diff(starts) <= 0).any():
        return [*problems, "the plans of the run are not in its notes"]
    which = np.searchsorted(starts, events["round"], side="right") - 1
    for at, note in enumerate(record.notes):
        for kind in (GRADIENT, LOSS, JOINT):
            rows = (which == at) & (events["kind"] == kind)
            if rows.any():
                problems += _check_kind(record, note, kind, events["client"][rows], events["sensitivity"][rows])
    return problems


def _check_kind(record: Record, note: Mapping[str, Any], kind: int, whose: Array, found: Array) -> list[str]:
    size = record.clients["n_examples"].astype(np.float64)
    factor = np.asarray(note.get("clip_factor", np.ones(len(size))), dtype=np.float64)
    clip = float(record.config["privacy"]["clip"]) * factor[whose]
    bound = float((note.get("probe") or {}).get("loss_bound", math.nan))
    if kind != GRADIENT and not bound > 0:
        return [f"a {KINDS[kind]} release in a plan without a probe"]
    if kind == GRADIENT:
        expected = gradient_sensitivity(clip, size[whose])
    elif kind == LOSS:
        expected = loss_sensitivity(bound, size[whose])
    else:
        expected = joint_sensitivity(clip, bound, size[whose])
    wrong = np.flatnonzero(~np.isclose(found, expected, rtol=EXACT, atol=0))
    if not len(wrong):
        return []
    at = wrong[0]
    return [
        f"client {whose[at]}: {KINDS[kind]} sensitivity {found[at]:.9g}, clip, loss bound and size give "
        f"{expected[at]:.9g}"
    ]


def check_spending(record: Record) -> list[str]:
    """No client's epsilon, by the second opinion, is above its budget or different from what the record says."""
    events, clients, mechanism = record.events, record.clients, str(record.config["privacy"]["mechanism"]["name"])
    with np.errstate(divide="ignore"):  # no noise: an infinite ratio, an infinite epsilon
        ratio = events["sensitivity"] / events["scale"]
    spent = client_epsilons(mechanism, events["client"], ratio, clients["delta"])
    problems = []
    cost = ratio**2 if mechanism == "gaussian" else ratio
    if events["cost"].shape != cost.shape or not np.allclose(events["cost"], cost, rtol=EXACT, atol=0):
        problems.append("a recorded cost is not that of its release")
    over = spent > clients["epsilon"] + SLACK * (1 + clients["epsilon"])
    if over.any():
        at = int(np.argmax(spent - clients["epsilon"]))
        problems.append(
            f"{over.sum()} clients overspend; client {at}: epsilon {spent[at]:.9g} of {clients['epsilon'][at]:.9g}"
        )
    differs = ~(np.abs(spent - clients["epsilon_spent"]) <= SLACK * (1 + spent))
    if differs.any():
        at = int(np.flatnonzero(differs)[0])
        problems.append(f"client {at}: recorded epsilon {clients['epsilon_spent'][at]:.9g}, recomputed {spent[at]:.9g}")
    return problems
