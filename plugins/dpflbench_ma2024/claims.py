"""The paper's claims put to the test: each is split into comparisons, each of them a paired difference of results at
hand.

A comparison is true or false by its mean; it is unknown where the suite has nothing to say about it, or only by
records with something wrong about them. One that is false breaks a claim.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dpflbench.report import labels
from dpflbench.report.charts.choice import by_other_axes, name_of
from dpflbench.report.statistics import Paired, paired
from dpflbench.report.tables.table import Item, Table
from dpflbench.report.view import Column, Group, View
from dpflbench_ma2024.printed import deviation_notes, printed

RIVALS = ("DPSGD", "DMLDP", "WeiAvg", "PFA", "PRIVATEFL")  # of DPFL-BCS in the paper's ten panels
BASELINES = ("DPSGD", "DMLDP")
SHOWN = 3  # comparisons spelt out: those that break a claim, else those that carry it least surely
PAPER_ALPHA = 3.0
EPSILON, ALPHA, MECHANISM = "privacy.epsilon.high", "task.partition.alpha", "privacy.mechanism"


@dataclass(frozen=True, slots=True)
class Trial:
    """One comparison: whether it goes the claimed way, and in what words."""

    holds: bool
    text: str
    sure: bool = False  # its 95 % interval excludes zero


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a claim."""

    word: str  # held, not held, not testable
    evidence: str


def _verdict(found: Sequence[Trial], untested: Sequence[str] = ()) -> Verdict:
    if not found:
        return Verdict("not testable", "; ".join(untested) or "the suite has no such comparison")
    broken = [p for p in found if not p.holds]
    off, against = sum(p.holds and p.sure for p in found), sum(p.sure for p in broken)
    others = f"; of the others {against}" if broken else ""
    count = (
        f"{len(found) - len(broken)} of {len(found)} comparisons go the claimed way "
        f"({off} with an interval off zero{others})"
    )
    shown = broken or sorted(found, key=lambda p: p.sure)
    words = "; ".join(p.text for p in shown[:SHOWN]) + (
        f"; and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    )
    rest = f". Not tested: {'; '.join(untested)}" if untested else ""
    return Verdict("not held" if broken else "held", f"{count}: {words}{rest}")


def _group(view: View, column: Column, name: str) -> Group | None:
    """An algorithm's results in a column; None where there are none, or something is wrong with them."""
    group = view.group(column, name)
    return None if group is None or view.mark(group) else group


def _gain(view: View, column: Column, better: str, worse: str, other: Column | None = None) -> Paired | None:
    """How much better one is than another, positive is better, paired by seed; across two columns if `other` is
    given.
    """
    a, b = _group(view, column, better), _group(view, other or column, worse)
    if a is None or b is None:
        return None
    seeds = sorted(a.values.keys() & b.values.keys())
    sign = 1.0 if view.metrics[column.key].higher_is_better else -1.0
    return paired([sign * (a.values[s] - b.values[s]) for s in seeds]) if seeds else None


def _sure(gain: Paired) -> bool:
    return not math.isnan(gain.low) and (gain.low > 0 or gain.high < 0)


def _compared(gain: Paired, text: str, wanted: bool = True) -> Trial:
    digits = labels.decimals((gain.mean, gain.low, gain.high))
    span = "" if math.isnan(gain.low) else f" ({labels.span(gain.low, gain.high, digits)})"
    return Trial((gain.mean > 0) == wanted, f"{text} {labels.signed(gain.mean, digits)}{span}", _sure(gain))


def _versus(
    view: View, better: str, rivals: Iterable[str], columns: Iterable[Column], wanted: bool = True
) -> list[Trial]:
    return [
        _compared(gain, f"{better} against {rival}, {s.title}:", wanted)
        for s in columns
        for rival in rivals
        if (gain := _gain(view, s, better, rival)) is not None
    ]


def fixed(view: View) -> list[Column]:
    """Columns at the paper's fixed data heterogeneity, which claims 1 to 5 are about; all of them if none is."""
    here = [
        s for s in view.columns if isinstance(a := view.lookup(s, ALPHA), int | float) and math.isclose(a, PAPER_ALPHA)
    ]
    return here or list(view.columns)


def _of(view: View, path: str, name: str) -> list[Column]:
    return [s for s in fixed(view) if name_of(view.lookup(s, path)) == name]


def best_of_all(view: View) -> Verdict:
    """Claim 1."""
    found = _versus(view, "DPFL-BCS", RIVALS, fixed(view))
    tested = [s for s in fixed(view) if _versus(view, "DPFL-BCS", RIVALS, [s])]
    panels = {(name_of(view.lookup(s, "task.dataset")), name_of(view.lookup(s, MECHANISM))) for s in tested}
    return _verdict(found, [f"{10 - len(panels)} of the ten panels"] if found and len(panels) < 10 else [])


def laplace_costs_more(view: View) -> Verdict:
    """Claim 2."""
    found = []
    for title, columns in by_other_axes(view, [MECHANISM]):
        by_name = {name_of(view.lookup(s, MECHANISM)): s for s in columns if s in fixed(view)}
        if {"gaussian", "laplace"} <= by_name.keys():
            names = [(a, a) for a in view.algorithms if a not in BASELINES and a != "FedSGD"] + [BASELINES]
            for one, other in names:
                gain = _gain(view, by_name["gaussian"], one, other, by_name["laplace"])
                if gain is not None:
                    label = one if one == other else f"{one} against {other}"
                    found.append(_compared(gain, f"{labels.short(label)}, {title or 'all'}: Gaussian minus Laplace"))
    return _verdict(found, [] if found else ["needs both mechanisms"])


def weighting_beats_baselines(view: View) -> Verdict:
    """Claim 3."""
    return _verdict([p for name in ("WeiAvg", "PFA") for p in _versus(view, name, BASELINES, fixed(view))])


def personal_against_baselines(view: View) -> Verdict:
    """Claim 4: better under Gaussian noise, not better under Laplace noise."""
    gaussian = _versus(view, "PRIVATEFL", ["DPSGD"], _of(view, MECHANISM, "gaussian"))
    laplace = [
        Trial(not (gain.mean > 0 and (_sure(gain) or math.isnan(gain.low))), one.text, one.sure)
        for s in _of(view, MECHANISM, "laplace")
        if (gain := _gain(view, s, "PRIVATEFL", "DMLDP")) is not None
        for one in [_compared(gain, f"PRIVATEFL against DMLDP, {s.title}:")]
    ]
    cifar = [s for s in _of(view, "task.dataset", "cifar10") if s in _of(view, MECHANISM, "laplace")]
    worse = _versus(view, "PRIVATEFL", ["DMLDP"], cifar, wanted=False)
    missing = [text for text, found in (("Gaussian", gaussian), ("Laplace", laplace), ("CIFAR-10", worse)) if not found]
    return _verdict([*gaussian, *laplace, *worse], missing if gaussian or laplace else [])


def bias_helps_personal(view: View) -> Verdict:
    """Claim 5."""
    return _verdict(_versus(view, "PRIVATEFL-BCS", ["PRIVATEFL"], fixed(view)))


def _ends(view: View, axis: str) -> list[tuple[str, Column, Column]]:
    """Title, column with the smallest and column with the largest value of an axis, for each choice of the others."""
    out = []
    for title, columns in by_other_axes(view, [axis]):
        numbers = [s for s in columns if isinstance(s.coordinates.get(axis), int | float)]
        order = sorted(numbers, key=lambda s: float(s.coordinates[axis]))
        if len(order) > 1:
            out.append((title or "all", order[0], order[-1]))
    return out


def budgets_help_some(view: View) -> Verdict:
    """Claim 6: "not effectively" is taken as less than half of what DPFL-BCS, WeiAvg and PFA gain on average."""
    found = []
    for title, low, high in _ends(view, EPSILON):
        gains = {n: g for n in ("DPFL-BCS", *RIVALS) if (g := _gain(view, high, n, n, low)) is not None}
        winners = [n for n in ("DPFL-BCS", "WeiAvg", "PFA") if n in gains]
        found += [_compared(gains[n], f"{n}, {title}: gains") for n in winners]
        if winners:
            half, digits = sum(gains[n].mean for n in winners) / len(winners) / 2, view.digits(low)
            found += [
                Trial(
                    gains[n].mean < half,
                    f"{n}, {title}: gains {labels.signed(gains[n].mean, digits)}, half of the others' mean is "
                    f"{labels.signed(half, digits)}",
                    _sure(gains[n]),
                )
                for n in ("PRIVATEFL", *BASELINES)
                if n in gains
            ]
    return _verdict(found, [] if found else [f"needs an axis {EPSILON}"])


def skew_hurts(view: View) -> Verdict:
    """Claim 7: three comparisons, of which the second is about accuracies only."""
    found, untested = [], []
    for title, low, high in _ends(view, ALPHA):
        found += [
            _compared(gain, f"{labels.short(n)}, {title}: falls by")
            for n in view.algorithms
            if (gain := _gain(view, high, n, n, low)) is not None
        ]
        for baseline in BASELINES:
            lead = _gain(view, low, "DPFL-BCS", baseline)
            if lead is not None and view.metrics[low.key].unit == "%":
                words = f"DPFL-BCS, {low.title}: {labels.signed(lead.mean, 2)} points over {baseline}"
                found.append(Trial(30 <= lead.mean <= 40, words, _sure(lead)))
            found += [
                _compared(gain, f"{n}, {low.title}: over {baseline}", wanted=False)
                for n in ("WeiAvg", "PFA")
                if (gain := _gain(view, low, n, baseline)) is not None
            ]
    if not found:
        untested.append(f"needs an axis {ALPHA}")
    return _verdict(found, untested)


def projection_cannot_run(view: View) -> Verdict:
    """Claim 8."""
    models = [s for s in view.columns if name_of(view.lookup(s, "task.model")) == "resnet20"]
    here = [s for s in models if (g := _group(view, s, "PFA")) is not None and g.values]
    found = [Trial(False, f"PFA ran on ResNet-20, {s.title}", True) for s in here]
    return _verdict(found, [] if found else ["needs PFA on ResNet-20"])


CLAIMS: tuple[Callable[[View], Verdict], ...] = (
    best_of_all,
    laplace_costs_more,
    weighting_beats_baselines,
    personal_against_baselines,
    bias_helps_personal,
    budgets_help_some,
    skew_hurts,
    projection_cannot_run,
)


def verdicts(view: View) -> list[Verdict]:
    """What became of every claim of the paper, in its order."""
    return [test(view) for test in CLAIMS]


def claim_table(view: View) -> Table:
    """Each claim of the paper: held, not held or not testable, with the evidence."""
    tested = zip(printed()["claims"], verdicts(view), strict=True)
    rows = [
        (Item(str(n), n), Item(text), Item(found.word), Item(found.evidence))
        for n, (text, found) in enumerate(tested, 1)
    ]
    marked = dict.fromkeys(f"{labels.short(g.algorithm)} ({m})" for g in view.groups.values() if (m := view.mark(g)))
    notes = (
        "Held: every comparison these results allow goes the claimed way by its mean (that one does not beat another "
        "is broken by a lead with an interval off zero). Intervals: 95 %, paired by seed. Claims 1 to 5 are about the "
        "paper's fixed heterogeneity: where a suite has columns with its alpha of 3, those alone count for them.",
        *([f"Not compared where something is wrong with the records: {labels.listing(list(marked))}."] * bool(marked)),
        *deviation_notes(view, view.columns),
    )
    return Table(
        key="claims",
        title="The paper's claims under exact accounting",
        header=("no.", "claim", "verdict", "evidence"),
        rows=tuple(rows),
        caption=printed()["source"],
        notes=notes,
        labels=4,
    )
