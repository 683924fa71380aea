"""Noise efficiency and data coverage of a record, against what its ledger and budgets allow.

Weights are an aggregator's business and cannot all be had again; what no weights can undercut can, and a plain mean is
recomputed.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dpflbench.interfaces import Event, Mechanism
from dpflbench.judges.participation import GRADIENT, Rules
from dpflbench.privacy.information import data_coverage, least_variance
from dpflbench.results.record import Record

CLOSE = 1e-5  # relative: weights and variances are float32 on the way


def check_explanation(record: Record, rules: Rules) -> Iterator[str]:
    """What is wrong with the two numbers; nothing for a record that has none."""
    how, clients = record.facts.get("why"), record.clients
    if how is None or "weight" not in clients:
        return
    weight, uses = clients["weight"], clients["uses"]
    if not np.isfinite(weight).all() or weight[uses == 0].any():
        yield "a client that never took part has weight, or one has none that is a number"
        return
    if not _same(record.facts.get("data_coverage"), data_coverage(weight, clients["n_examples"])):
        yield "data coverage does not follow from weights and sizes"
    if "variance" not in how:
        return
    cohort, rounds = (int(record.config["federation"][name]) for name in ("cohort", "rounds"))
    clip = np.full(len(uses), float(record.facts["mechanism"]["clip_norm"]))
    message = rules.local.event(rules.mechanism, clip, clients["n_examples"], 0.0, rules.neighbours)
    message = replace(message, steps=message.steps * rules.passes)
    budgets = clients["epsilon"], clients["delta"]
    limit = least_variance(message, *budgets, rounds, rules.accountant.pure, rules.trust, cohort)
    if rules.cohorts == "poisson" or "clip_bounds" in record.facts:
        limit = math.nan  # what it is nobody has shown
    if not _same(how["limit"], limit):
        yield f"the least noise at its budgets is {limit:.3g}, not {how['limit']:.3g}"
    if not _same(record.facts.get("noise_efficiency"), how["limit"] / how["variance"]):
        yield "noise efficiency is not the least noise over what was injected"
    if not rules.trust.rows:
        found = _of_sums(record, rules, message, cohort)
        if not _same(how["variance"], found) and not math.isnan(found):
            yield f"noise of variance {how['variance']:.3g} a step, its sums have {found:.3g}"
        return
    least, mean = _noise(record, rules.mechanism, cohort)
    if (message.steps == 1).all() and not how["variance"] >= least * (1 - CLOSE):
        yield f"noise of variance {how['variance']:.3g} a step: with its releases no weights come below {least:.3g}"
    plain = how["weights"] == "plain mean"
    if (message.steps == 1).all() and plain and not _same(how["variance"], mean):
        yield f"noise of variance {how['variance']:.3g} a step, a plain mean of its releases has {mean:.3g}"


def _of_sums(record: Record, rules: Rules, message: Event, cohort: int) -> float:
    """Variance of a step per unit of weight, mean over rounds, where sums were noised; NaN where weights are not told
    by how far sums move.
    """
    events, factor = record.events, np.asarray(record.facts.get("clip_bounds", np.ones(1)), dtype=np.float64)
    rows = np.flatnonzero(events["kind"] == GRADIENT)
    if rules.cohorts == "poisson":
        share = rules.trust.counted(len(record.clients["uses"]))
        return float(rules.mechanism.variance(events["scale"][rows[:1]])[0]) / share
    rounds, whose = events["round"][rows], events["client"][rows]
    clip = factor[rounds] if len(factor) > 1 else 1.0
    weight = np.bincount(rounds, events["sensitivity"][rows] / (message.sensitivity[whose] * clip))
    personal = any("clip_factor" in note for note in record.notes)
    if personal or not math.isclose(float(weight.sum()), float(record.clients["weight"].sum()), rel_tol=CLOSE):
        return math.nan
    scale = events["scale"][rows][np.unique(rounds, return_index=True)[1]]
    noise = rules.mechanism.variance(scale / math.sqrt(rules.trust.counted(cohort)))
    return float(np.mean(noise / weight**2))


def _noise(record: Record, mechanism: Mechanism, cohort: int) -> tuple[float, float]:
    """Variance of a step, mean over rounds: the least that weights can make of the releases, and a plain mean's."""
    events = record.events
    gradient = events["kind"] != 1
    rounds, variance = events["round"][gradient], mechanism.variance(events["scale"][gradient])
    _, at = np.unique(rounds, return_inverse=True)
    with np.errstate(divide="ignore"):  # a release without noise is found elsewhere
        least = 1.0 / np.bincount(at, 1.0 / variance)
    return float(least.mean()), float(np.bincount(at, variance).mean()) / cohort**2


def _same(said: object, found: float) -> bool:
    if not isinstance(said, int | float):
        return not math.isfinite(found)  # only what is known is kept
    return math.isclose(said, found, rel_tol=CLOSE) or (math.isnan(said) and math.isnan(found))
