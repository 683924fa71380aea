"""A record against itself: status, plans, curve, final values, client columns and facts must tell one story.

Nothing is asked but the record. Each check returns what it found wrong, in words.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpflbench.federation.evaluate import pooled
from dpflbench.results.record import ACCURACY, MSE, Record

Array = NDArray[Any]
EXACT = 1e-9  # relative: what recomputing a float64 formula on another machine may change
CLIENTS = ("n_examples", "n_holdout", "epsilon", "delta", "epsilon_spent")
ENDED = ("utility_shared", "utility_personal")  # client columns of a run that is done
FINAL = (
    "utility_global",
    "loss",
    "utility_mean_phi",
    "utility_personal",
    "utility_shared",
    "best_utility_global",
    "best_round",
)
CURVES = ("round", "utility_global", "loss")
DIGEST = re.compile("[0-9a-f]{64}")


def check_coherence(record: Record) -> list[str]:
    """What a record says of itself that cannot all be true."""
    problems = [*_status(record), *_promise(record)]
    if not record.facts:
        return problems
    shapes = list(_shapes(record))
    if shapes:
        return [*problems, *shapes]
    return [*problems, *_clients(record), *_facts(record), *_plans(record), *_curves(record), *_final(record)]


def rounds_done(record: Record) -> int:
    """Whole rounds played, by the recorded uses; where coins decide who takes part, by what was counted."""
    uses = record.clients.get("uses")
    if by_coins(record):
        return 0 if uses is None else int(record.facts["why"]["rounds"])
    return 0 if uses is None else int(uses.sum()) // int(record.config["federation"]["cohort"])


def by_coins(record: Record) -> bool:
    """Whether cohorts are drawn by coins, so that their sizes vary."""
    return bool(record.config["federation"].get("cohorts") == "poisson")


def _status(record: Record) -> Iterator[str]:
    """How a run ended, and what that leaves behind."""
    if record.status == "done":
        if record.reason:
            yield f"done, and yet it has a reason why not: {record.reason}"
        if not record.facts or not record.final:
            yield "done, and yet there are no facts or final values"
    else:
        if not record.reason:
            yield f"{record.status} without a reason"
        if record.final:
            yield f"{record.status}, and yet there are final values"
    if not record.facts and (record.status != "failed" or record.clients or record.events or record.rounds):
        yield f"{record.status}, and yet nothing is known of its data and model"


def _promise(record: Record) -> Iterator[str]:
    """Whether privacy was promised stands in the configuration: a budget, or none."""
    privacy = record.config.get("privacy") or {}
    if record.private != ("epsilon" in privacy):
        yield f"private is {record.private}, and its configuration has {'a' if 'epsilon' in privacy else 'no'} budget"
    if record.private or not record.facts:
        return
    if len(record.events.get("client", ())):
        yield "not private, and yet there are releases in a ledger"
    promised = record.clients["epsilon"], record.clients["epsilon_spent"], record.clients["delta"]
    if not (np.isinf(promised[0]).all() and np.isinf(promised[1]).all() and not promised[2].any()):
        yield "not private, and yet clients have a finite epsilon or a delta"


def _shapes(record: Record) -> Iterator[str]:
    """Client columns and curves by name and length, before anything is computed from them."""
    n, done = int(record.config["federation"]["clients"]), record.status == "done"
    names = {*CLIENTS, *(ENDED if done else ())}
    begun = bool(record.rounds)  # evaluated once before the first round
    if set(record.clients) - {"weight"} != names | ({"uses"} if begun else set()):
        yield f"clients have columns {', '.join(record.clients)}"
    for name, column in record.clients.items():
        if column.shape != (n,):
            yield f"clients.{name} has shape {column.shape}, there are {n} clients"
    if begun and set(record.rounds) != set(CURVES):
        yield f"rounds have columns {', '.join(record.rounds)}"
    if done and not (begun and set(record.final) == set(FINAL)):
        yield f"final values are {', '.join(record.final)}"


def _clients(record: Record) -> Iterator[str]:
    """Sizes are counts, and uses are those of whole rounds."""
    clients, federation = record.clients, record.config["federation"]
    if (clients["n_examples"] < 1).any() or (clients["n_holdout"] < 0).any():
        yield "a client has no examples, or fewer than none held out"
    if "uses" in clients:
        uses, done = clients["uses"], rounds_done(record)
        rounds, cohort = int(federation["rounds"]), int(federation["cohort"])
        whole = by_coins(record) or int(uses.sum()) == done * cohort
        if uses.min() < 0 or uses.max() > done or not whole or done > rounds:
            yield f"uses sum to {uses.sum()}, which is no number of rounds of {cohort} clients up to {rounds}"
        elif (record.status == "done") and done != rounds:
            yield f"done after {done} of {rounds} rounds by its uses"
    for name in ENDED if record.status == "done" and record.facts["n_classes"] else ():
        right = clients[name] * clients["n_holdout"] / 100  # examples classified rightly: whole numbers
        odd = (clients["n_holdout"] > 0) & ~((np.abs(right - np.rint(right)) < 1e-6) & (right >= 0))
        if (odd | (right > clients["n_holdout"])).any():
            yield f"clients.{name}: no share of {clients['n_holdout'][odd.argmax()]} held-out examples"


def _facts(record: Record) -> Iterator[str]:
    """Counts add up, digests are digests, and mechanism and metric are those of the configuration."""
    facts, clients = record.facts, record.clients
    if int(clients["n_examples"].sum()) != int(facts["n_train"]):
        yield f"clients hold {int(clients['n_examples'].sum())} examples, the run {facts['n_train']}"
    if record.metric != (ACCURACY if facts["n_classes"] else MSE):
        yield f"{record.metric.name} is not the metric of a task with {facts['n_classes']} classes"
    if not (int(facts["dim"]) > 0 and int(facts["phi_dim"]) >= 0 and int(facts["n_test"]) > 0):
        yield f"dimension {facts['dim']} + {facts['phi_dim']}, {facts['n_test']} test examples"
    for name in ("data_digest", "split_digest", "initial_model", *(("final_model",) if record.rounds else ())):
        if not DIGEST.fullmatch(str(facts[name])):
            yield f"{name} is no digest"
    said, privacy = facts["mechanism"], record.config.get("privacy") or {}
    clip = float(privacy.get("clip", np.inf))
    if float(said["clip_norm"]) != clip:
        yield f"clipped to {said['clip_norm']}, by its configuration to {clip}"
    noise: Mapping[str, Any] = (
        privacy["mechanism"] if record.private else {"name": "none", "accountant": {"name": "none"}}
    )
    asked = noise["name"], noise["accountant"]["name"]
    if (said["name"], said["accountant"]) != asked:
        yield f"noise is {said['name']} under {said['accountant']}, by its configuration {' under '.join(asked)}"


def _plans(record: Record) -> Iterator[str]:
    """Plans follow each other without a gap and reach as far as the run came."""
    done, rounds = rounds_done(record), int(record.config["federation"]["rounds"])
    at = 0
    for note in record.notes:
        start, horizon = int(note["round"]), int(note["horizon"])
        if start != at or horizon < 1 or start >= max(done, 1):
            break
        at = start + horizon
    else:
        if at >= done and at <= rounds:
            return
    yield "the plans of the run are not in its notes: they must cover its rounds one after the other"


def _curves(record: Record) -> Iterator[str]:
    """Evaluated when the configuration says, with values that a test set of that size can give."""
    if not record.rounds:
        return
    rounds, every = int(record.config["federation"]["rounds"]), int(record.config["evaluate"]["every"])
    due = np.array(sorted({*range(0, rounds + 1, every), rounds}))
    if not np.array_equal(record.rounds["round"], due[due <= rounds_done(record)]):
        yield f"evaluated after other rounds than every {every} of those played"
    utility, loss, size = record.rounds["utility_global"], record.rounds["loss"], int(record.facts["n_test"])
    if not (np.isfinite(loss).all() and (loss >= 0).all()):
        yield "a loss that is negative or not finite"
    if record.facts["n_classes"]:
        right = utility * size / 100
        if (
            not (np.abs(right - np.rint(right)) < max(0.02, 2e-6 * size)).all()
            or ((utility < 0) | (utility > 100)).any()
        ):
            yield f"utility is no share of {size} test examples"
    elif not np.array_equal(utility, loss):
        yield "utility of a regression is not its loss"


def _final(record: Record) -> Iterator[str]:
    """Final values are those of the last round, the best round is the best, and clients' values average to theirs."""
    if record.status != "done":
        return
    final, curves, clients = record.final, record.rounds, record.clients
    best = int((np.argmax if record.metric.higher_is_better else np.argmin)(curves["utility_global"]))
    counts = clients["n_holdout"].astype(float)
    expected: dict[str, float] = {
        "utility_global": curves["utility_global"][-1],
        "loss": curves["loss"][-1],
        "best_utility_global": curves["utility_global"][best],
        "best_round": curves["round"][best],
        "utility_personal": pooled(clients["utility_personal"], counts),
        "utility_shared": pooled(clients["utility_shared"], counts),
    }
    if not int(record.facts["phi_dim"]):  # nothing personal: all models are the shared one
        expected["utility_mean_phi"] = curves["utility_global"][-1]
        same = np.array_equal(clients["utility_personal"], clients["utility_shared"], equal_nan=True)
        if not same and not record.facts.get("personal_models"):
            yield "personal utilities differ from shared ones, and there is nothing personal"
    for name, value in expected.items():
        if not np.isclose(final[name], value, rtol=EXACT, atol=0, equal_nan=True):
            yield f"final.{name} is {final[name]:.9g}, rounds and clients give {value:.9g}"
