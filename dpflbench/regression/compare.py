"""The comparison: one check for each place and tier, each with a verdict and a sentence.

Coverage   every run of the baseline is there and ended as it did then.
Utility    at equal epsilon: the mean of the paired differences over seeds. A loss beyond the tolerance fails when a
           one-sided paired t-test at 5 % sees it, or when there are too few seeds (under three) to tell; otherwise
           it is noted.
Numerics   on a CPU whose last bits are those of the baseline's machine, the final models are the same to the bit.
           Others are noted where utility passes, for an improvement is no failure; `--strict-numerics` fails them all.
Privacy    every run is verified by the second accountant.
Run time   CPU seconds of the rounds in units of a reference step, as the median over the runs of an algorithm.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np

from dpflbench.catalogue import load
from dpflbench.errors import DpflbenchError
from dpflbench.judges.verify import verify
from dpflbench.regression.baseline import Baseline, Contestant, Sample, baseline_of
from dpflbench.report.labels import clean, number, signed
from dpflbench.report.statistics import interval
from dpflbench.results.cells import Results

Tier = Literal["coverage", "utility", "numerics", "privacy", "run time"]
Verdict = Literal["ok", "failed", "skipped"]
FEW = 3  # below that many seeds a test says nothing, and the tolerance alone decides
LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class Limits:
    """What a gate lets pass."""

    tolerance: float = 0.5  # points of accuracy; of other metrics per cent of the baseline's mean
    slowdown: float = 2.0  # of an algorithm's run time; inf: any
    strict_numerics: bool = False  # other models fail even where utility passes


STANDARD = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A place in numbers."""

    before: float
    now: float
    difference: float  # now - before, in the metric's own direction
    low: float
    high: float
    seeds: int


@dataclass(frozen=True, slots=True)
class Check:
    """What one tier says about one place."""

    tier: Tier
    name: str
    verdict: Verdict
    message: str
    figures: Figures | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All checks."""

    name: str
    checks: tuple[Check, ...]

    @property
    def failed(self) -> tuple[Check, ...]:
        """What went wrong."""
        return tuple(c for c in self.checks if c.verdict == "failed")

    def _repr_markdown_(self) -> str:
        from dpflbench.regression.output import as_markdown

        return as_markdown(self)


def compare(results: Results, baseline: Baseline, limits: Limits = STANDARD) -> Comparison:
    """The results against the baseline, tier by tier."""
    now = baseline_of(results)
    checks = list(_coverage(now, baseline))
    shared = [(then, now.places[key]) for key, then in baseline.places.items() if key in now.places]
    utilities = [check for then, here in shared for check in _utility(then, here, limits.tolerance)]
    checks += utilities
    if not any(check.figures for check in utilities):
        checks.append(
            Check("coverage", "everything", "failed", "nothing was measured: no run of the baseline has a utility here")
        )
    passed = {check.name for check in utilities if check.verdict == "ok"}
    for then, here in shared:
        checks += _numerics(then, here, limits.strict_numerics or then.title not in passed)
    checks += _privacy(results)
    checks += _run_time(shared, limits.slowdown)
    return Comparison(results.manifest.name, tuple(checks))


def _coverage(now: Baseline, then: Baseline) -> Iterator[Check]:
    if now.value != then.value:
        yield Check("coverage", "everything", "failed", f"the table shows {now.value}, the baseline {then.value}")
    for key, old in then.places.items():
        new = now.places.get(key)
        wrong = []
        for seed, sample in sorted(old.samples.items()):
            found = None if new is None else new.samples.get(seed)
            if found is None:
                why = "not in the table" if new is None or seed not in new.gaps else new.gaps[seed]
                wrong.append(f"seed {seed}: {clean(why, 200)}")
            elif found.status != sample.status and found.status != "done":
                wrong.append(f"seed {seed}: {found.status}, was {sample.status}")
        total = len(old.samples)
        yield Check(
            "coverage", old.title, "failed" if wrong else "ok", "; ".join(wrong) or f"all {total} runs are there"
        )
    for key in now.places.keys() - then.places.keys():
        yield Check("coverage", now.places[key].title, "skipped", "new: not in the baseline")


def _paired(then: Contestant, here: Contestant) -> Iterator[tuple[int, Sample, Sample]]:
    """Seed, old and new sample where both were run."""
    for seed, old in sorted(then.samples.items()):
        new = here.samples.get(seed)
        if new is not None:
            yield seed, old, new


def _utility(then: Contestant, here: Contestant, tolerance: float) -> Iterator[Check]:
    """The one check of a place where both have values."""
    pairs = [(seed, a, b) for seed, a, b in _paired(then, here) if a.status == b.status == "done"]
    if not pairs:
        return
    name = then.title
    unequal = {
        "budgets": any(a.budgets != b.budgets for _, a, b in pairs),
        "the metric": then.metric != here.metric,
        "the data or its split": any(a.task != b.task for _, a, b in pairs),
    }
    if any(unequal.values()):
        what = " and ".join(thing for thing, differs in unequal.items() if differs)
        yield Check("utility", name, "failed", f"not at equal epsilon on equal data: {what} changed since the baseline")
        return
    before, now = np.array([a.utility for _, a, _ in pairs]), np.array([b.utility for _, _, b in pairs])
    gain = (now - before) * (1.0 if then.metric.higher_is_better else -1.0)
    low, high = interval(now - before)
    figures = Figures(
        before=float(before.mean()),
        now=float(now.mean()),
        difference=float((now - before).mean()),
        low=low,
        high=high,
        seeds=len(pairs),
    )
    allowed = tolerance if then.metric.unit == "%" else abs(figures.before) * tolerance / 100
    unit = {"%": " points"}.get(then.metric.unit, "")
    loss = -float(gain.mean())
    change = f"{signed(figures.difference)}{unit} over {len(pairs)} seeds"
    if loss <= allowed:
        word = "unchanged" if not gain.any() else "not worse" if loss <= 0 else "within tolerance"
        yield Check("utility", name, "ok", word, figures)
    elif len(pairs) >= FEW and not interval(gain, 2 * LEVEL)[1] < 0:
        noted = f"{change}: beyond {number(allowed)}{unit}, but seeds differ too much to tell; add seeds"
        yield Check("utility", name, "ok", noted, figures)
    else:
        why = "a paired t-test sees it" if len(pairs) >= FEW else "too few seeds to blame chance"
        yield Check("utility", name, "failed", f"{change}, a loss beyond {number(allowed)}{unit}; {why}", figures)


def _numerics(then: Contestant, here: Contestant, strict: bool) -> Iterator[Check]:
    same: list[int] = []
    other: list[int] = []
    unlike = ""
    for seed, old, new in _paired(then, here):
        if not old.model or not new.model:
            continue
        if not old.numerics or old.numerics != new.numerics:
            unlike = (
                f"torch {old.torch} then, torch {new.torch} now"
                if old.torch != new.torch
                else "another device, CPU or thread count"
            )
            continue
        (same if old.model == new.model else other).append(seed)
    name = then.title
    if other:
        seeds = ", ".join(map(str, other))
        yield Check(
            "numerics",
            name,
            "failed" if strict else "skipped",
            f"another final model for seeds {seeds} on the same arithmetic"
            + ("" if strict else ", utility passes")
            + "; if that is meant, --update-baseline",
        )
    elif same:
        yield Check("numerics", name, "ok", f"{len(same)} final models are the same to the bit")
    elif unlike:
        yield Check("numerics", name, "skipped", f"not comparable: {unlike}")


def _privacy(results: Results) -> list[Check]:
    good, doubts, checks = 0, list[str](), []
    for finding in verify(results, load()):
        if finding.problems:
            checks.append(Check("privacy", clean(finding.label), "failed", clean("; ".join(finding.problems))))
        elif finding.doubts:
            doubts += [f"{finding.label}: {finding.doubts[0]}"]
        elif not finding.missing:
            good += 1
    if good:
        checks.append(Check("privacy", "verify", "ok", f"{good} runs stand a recount"))
    if doubts:
        checks.append(Check("privacy", "unverified", "skipped", clean(f"{len(doubts)} runs, as {doubts[0]}")))
    return checks


def check_verified(results: Results) -> None:
    """DpflbenchError unless every run is verified: what a gate is held against must be beyond doubt."""
    found = [f for f in verify(results, load()) if not f.missing and not f.ruling.stands]
    if found:
        why = "; ".join(f"{clean(f.label)}: {f.ruling.verdict}: {clean(f.ruling.reasons[0])}" for f in found[:3])
        raise DpflbenchError(f"a baseline must be verified; {len(found)} findings: {why}")


def _run_time(shared: list[tuple[Contestant, Contestant]], limit: float) -> Iterator[Check]:
    """One check an algorithm: the first run of a process pays for imports, so medians are compared and not means."""
    times: dict[str, list[tuple[float, float]]] = {}
    for then, here in shared:
        both = [
            (a.work, b.work)
            for _, a, b in _paired(then, here)
            if a.work > 0 and b.work > 0 and (a.status, a.device) == (b.status, b.device)
        ]
        times.setdefault(then.algorithm, []).extend(both)
    for algorithm, pairs in times.items():
        name = clean(algorithm, 60)
        if not pairs:
            yield Check(
                "run time", name, "skipped", "not comparable: another device, or no reference step beside a run"
            )
            continue
        ratio = median(b for _, b in pairs) / median(a for a, _ in pairs)
        text = f"{ratio:.2f} times the baseline's, in reference steps, over {len(pairs)} runs"
        yield Check(
            "run time",
            name,
            "failed" if ratio > limit else "ok",
            f"{text}; allowed: {limit:g}" if ratio > limit else text,
        )


def counts(comparison: Comparison) -> Mapping[str, int]:
    """How many checks ended how."""
    return {verdict: sum(c.verdict == verdict for c in comparison.checks) for verdict in ("ok", "failed", "skipped")}
