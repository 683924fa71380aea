"""Whether a column can be compared at all: has any private algorithm in it learnt more than a model without features?

A model trained into noise lands near chance, now above and now below; the best of several such is no winner.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dpflbench.report.statistics import LEVEL, interval
from dpflbench.results.record import Metric, Record

WAY = 0.1  # of the way from chance to a perfect score: a lead that needs no interval
RULE = (
    "At chance (grey on the page): no private algorithm beats chance there, so the column is left out of ranks and "
    "averages. Chance is 1 over the number of classes or, if that is better, what is recorded for predicting the "
    "majority or the mean. An algorithm beats it if it leads on the same seeds by more than half of the confidence "
    f"interval of that lead ({LEVEL} shared by the private algorithms of the column) or by a tenth of the way to a "
    "perfect score."
)


def chance(records: Iterable[Record]) -> dict[int, float]:
    """Seed → utility of the best model without features, as the records of a column have it; empty if they do not."""
    found: dict[int, float] = {}
    for record in records:
        references, classes = record.facts.get("references"), record.facts.get("n_classes")
        named = references.items() if isinstance(references, Mapping) else ()
        plain = [(str(k), float(v)) for k, v in named if isinstance(v, int | float)]
        values = [v for k, v in plain if k.startswith("predict_") and math.isfinite(v)]
        if record.metric.unit == "%" and isinstance(classes, int) and classes > 1:
            values.append(100 / classes)
        if values:
            found[int(record.config.get("seed", 0))] = (max if record.metric.higher_is_better else min)(values)
    return found


def learnt(values: Sequence[Mapping[int, float]], trivial: Mapping[int, float], metric: Metric) -> bool:
    """Whether any of several algorithms (seed → value) is better than chance by more than the margin of RULE; nobody is
    doubted where chance is not known.
    """
    if not trivial:
        return True
    sign = 1.0 if metric.higher_is_better else -1.0
    perfect = 0.0 if not metric.higher_is_better else 100.0 if metric.unit == "%" else math.inf
    for mine in values:
        leads = [sign * (mine[s] - trivial[s]) for s in sorted(mine.keys() & trivial.keys())]
        if leads:
            low, high = interval(leads, LEVEL / len(values))
            half = (high - low) / 2 if high > low else math.inf  # one seed, or equal ones, show no spread
            margin = min(half, WAY * abs(perfect - float(np.mean(list(trivial.values())))))
            if float(np.mean(leads)) > margin:
                return True
    return False
