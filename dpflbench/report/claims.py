"""The paper's claims put to the test: each is split into comparisons, each of them a paired difference of results at
hand.

A part is true or false by its mean; it is unknown where the suite has nothing to say about it. One false part breaks a
claim.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dpflbench.report import labels
from dpflbench.report.panels import by_other_axes, name_of
from dpflbench.report.statistics import Paired, paired
from dpflbench.report.view import Setting, View

RIVALS = (
    "DPSGD",
    "DMLDP",
    "WeiAvg",
    "PFA",
    "PRIVATEFL",
)  # private algorithms of the paper's ten panels beside DPFL-BCS
BASELINES = ("DPSGD", "DMLDP")
SHOWN = 3  # comparisons spelt out: those that break a claim, else those that carry it least surely
PAPER_ALPHA = 3.0
EPSILON, ALPHA, MECHANISM = "privacy.epsilon.high", "task.partition.alpha", "privacy.mechanism"


@dataclass(frozen=True, slots=True)
class Part:
    """One comparison: whether it goes the claimed way, and in what words."""

    holds: bool
    text: str
    sure: bool = False  # its 95 % interval excludes zero


@dataclass(frozen=True, slots=True)
class Claim:
    """What became of a claim."""

    verdict: str  # held, not held, not testable
    evidence: str


def _verdict(parts: Sequence[Part], untested: Sequence[str] = ()) -> Claim:
    if not parts:
        return Claim("not testable", "; ".join(untested) or "the suite has no such comparison")
    broken = [p for p in parts if not p.holds]
    off = sum(p.sure for p in parts)
    count = (
        f"{len(parts) - len(broken)} of {len(parts)} comparisons go the claimed way ({off} with an interval off zero)"
    )
    shown = broken or sorted(parts, key=lambda p: p.sure)
    words = "; ".join(p.text for p in shown[:SHOWN]) + (
        f"; and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    )
    rest = f". Not tested: {'; '.join(untested)}" if untested else ""
    return Claim("not held" if broken else "held", f"{count}: {words}{rest}")


def _gain(view: View, setting: Setting, better: str, worse: str, other: Setting | None = None) -> Paired | None:
    """How much better one is than another, positive is better, paired by seed; across two settings if `other` is
    given.
    """
    a, b = view.group(setting, better), view.group(other or setting, worse)
    if a is None or b is None:
        return None
    seeds = sorted(a.values.keys() & b.values.keys())
    sign = 1.0 if view.metrics[setting.key].higher_is_better else -1.0
    return paired([sign * (a.values[s] - b.values[s]) for s in seeds]) if seeds else None


def _sure(gain: Paired) -> bool:
    return not math.isnan(gain.low) and (gain.low > 0 or gain.high < 0)


def _part(gain: Paired, text: str, wanted: bool = True) -> Part:
    span = "" if math.isnan(gain.low) else f" ({labels.signed(gain.low)} to {labels.signed(gain.high)})"
    return Part((gain.mean > 0) == wanted, f"{text} {labels.signed(gain.mean)}{span}", _sure(gain))


def _where(setting: Setting) -> str:
    return labels.coordinates(setting.coordinates) or "all"


def _versus(
    view: View, better: str, rivals: Iterable[str], settings: Iterable[Setting], wanted: bool = True
) -> list[Part]:
    return [
        _part(gain, f"{better} against {rival}, {_where(s)}:", wanted)
        for s in settings
        for rival in rivals
        if (gain := _gain(view, s, better, rival)) is not None
    ]


def fixed(view: View) -> list[Setting]:
    """Settings at the paper's fixed data heterogeneity, which claims 1 to 5 are about; all of them if none is."""
    here = [
        s for s in view.settings if isinstance(a := view.lookup(s, ALPHA), int | float) and math.isclose(a, PAPER_ALPHA)
    ]
    return here or list(view.settings)


def _of(view: View, path: str, name: str) -> list[Setting]:
    return [s for s in fixed(view) if name_of(view.lookup(s, path)) == name]


def best_of_all(view: View) -> Claim:
    """Claim 1."""
    parts = _versus(view, "DPFL-BCS", RIVALS, fixed(view))
    panels = {(name_of(view.lookup(s, "task.dataset")), name_of(view.lookup(s, MECHANISM))) for s in fixed(view)}
    return _verdict(parts, [f"{10 - len(panels)} of the ten panels"] if parts and len(panels) < 10 else [])


def laplace_costs_more(view: View) -> Claim:
    """Claim 2."""
    parts = []
    for title, settings in by_other_axes(view, [MECHANISM]):
        by_name = {name_of(view.lookup(s, MECHANISM)): s for s in settings if s in fixed(view)}
        if {"gaussian", "laplace"} <= by_name.keys():
            names = [(a, a) for a in view.algorithms if a not in BASELINES and a != "FedSGD"] + [BASELINES]
            for one, other in names:
                gain = _gain(view, by_name["gaussian"], one, other, by_name["laplace"])
                if gain is not None:
                    label = one if one == other else f"{one} against {other}"
                    parts.append(_part(gain, f"{labels.short(label)}, {title or 'all'}: Gaussian minus Laplace"))
    return _verdict(parts, [] if parts else ["needs both mechanisms"])


def weighting_beats_baselines(view: View) -> Claim:
    """Claim 3."""
    return _verdict([p for name in ("WeiAvg", "PFA") for p in _versus(view, name, BASELINES, fixed(view))])


def personal_against_baselines(view: View) -> Claim:
    """Claim 4: better under Gaussian noise, not better under Laplace noise."""
    gaussian = _versus(view, "PRIVATEFL", ["DPSGD"], _of(view, MECHANISM, "gaussian"))
    laplace = [
        Part(not (gain.mean > 0 and (_sure(gain) or math.isnan(gain.low))), part.text, part.sure)
        for s in _of(view, MECHANISM, "laplace")
        if (gain := _gain(view, s, "PRIVATEFL", "DMLDP")) is not None
        for part in [_part(gain, f"PRIVATEFL against DMLDP, {_where(s)}:")]
    ]
    cifar = [s for s in _of(view, "task.dataset", "cifar10") if s in _of(view, MECHANISM, "laplace")]
    worse = _versus(view, "PRIVATEFL", ["DMLDP"], cifar, wanted=False)
    missing = [text for text, found in (("Gaussian", gaussian), ("Laplace", laplace), ("CIFAR-10", worse)) if not found]
    return _verdict([*gaussian, *laplace, *worse], missing if gaussian or laplace else [])


def bias_helps_personal(view: View) -> Claim:
    """Claim 5."""
    return _verdict(_versus(view, "PRIVATEFL-BCS", ["PRIVATEFL"], fixed(view)))


def _ends(view: View, axis: str) -> list[tuple[str, Setting, Setting]]:
    """Title, setting with the smallest and setting with the largest value of an axis, for each choice of the others."""
    out = []
    for title, settings in by_other_axes(view, [axis]):
        numbers = [s for s in settings if isinstance(s.coordinates.get(axis), int | float)]
        order = sorted(numbers, key=lambda s: float(s.coordinates[axis]))
        if len(order) > 1:
            out.append((title or "all", order[0], order[-1]))
    return out


def budgets_help_some(view: View) -> Claim:
    """Claim 6: "not effectively" is taken as less than half of what DPFL-BCS, WeiAvg and PFA gain on average."""
    parts = []
    for title, low, high in _ends(view, EPSILON):
        gains = {n: g for n in ("DPFL-BCS", *RIVALS) if (g := _gain(view, high, n, n, low)) is not None}
        winners = [n for n in ("DPFL-BCS", "WeiAvg", "PFA") if n in gains]
        parts += [_part(gains[n], f"{n}, {title}: gains") for n in winners]
        if winners:
            half = sum(gains[n].mean for n in winners) / len(winners) / 2
            parts += [
                Part(
                    gains[n].mean < half,
                    f"{n}, {title}: gains {labels.signed(gains[n].mean)}, half of the others' mean is "
                    f"{labels.signed(half)}",
                    _sure(gains[n]),
                )
                for n in ("PRIVATEFL", *BASELINES)
                if n in gains
            ]
    return _verdict(parts, [] if parts else [f"needs an axis {EPSILON}"])


def skew_hurts(view: View) -> Claim:
    """Claim 7: three parts, of which the second is about accuracies only."""
    parts, untested = [], []
    for title, low, high in _ends(view, ALPHA):
        parts += [
            _part(gain, f"{labels.short(n)}, {title}: falls by")
            for n in view.algorithms
            if (gain := _gain(view, high, n, n, low)) is not None
        ]
        for baseline in BASELINES:
            lead = _gain(view, low, "DPFL-BCS", baseline)
            if lead is not None and view.metrics[low.key].unit == "%":
                words = f"DPFL-BCS, {_where(low)}: {labels.signed(lead.mean)} points over {baseline}"
                parts.append(Part(30 <= lead.mean <= 40, words, _sure(lead)))
            parts += [
                _part(gain, f"{n}, {_where(low)}: over {baseline}", wanted=False)
                for n in ("WeiAvg", "PFA")
                if (gain := _gain(view, low, n, baseline)) is not None
            ]
    if not parts:
        untested.append(f"needs an axis {ALPHA}")
    return _verdict(parts, untested)


def projection_cannot_run(view: View) -> Claim:
    """Claim 8."""
    models = [s for s in view.settings if name_of(view.lookup(s, "task.model")) == "resnet20"]
    here = [s for s in models if (g := view.group(s, "PFA")) is not None and g.values]
    parts = [Part(False, f"PFA ran on ResNet-20, {_where(s)}", True) for s in here]
    return _verdict(parts, [] if parts else ["needs PFA on ResNet-20"])


CLAIMS: tuple[Callable[[View], Claim], ...] = (
    best_of_all,
    laplace_costs_more,
    weighting_beats_baselines,
    personal_against_baselines,
    bias_helps_personal,
    budgets_help_some,
    skew_hurts,
    projection_cannot_run,
)


def claims(view: View) -> list[Claim]:
    """Every claim of the paper, in its order."""
    return [test(view) for test in CLAIMS]
