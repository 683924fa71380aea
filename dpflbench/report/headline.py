"""The headline of a report, one line a mechanism: who is best, how surely, for whom, why, and what was
not compared.

Nobody is crowned on partial results, nor where nobody has learnt anything; a lead that the seeds do not bear out is
called a lead.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpflbench.report.comparison import Difference, across, best, differences, ranked, role
from dpflbench.report.labels import axis_value, clean, coordinates, listing, number, p_equals, p_value, share, short
from dpflbench.report.statistics import LEVEL, smallest_p
from dpflbench.report.tables.who_pays import payment
from dpflbench.report.view import AT_CHANCE, UNFINISHED, Column, View
from dpflbench.results.record import Metric

MECHANISM = "privacy.mechanism"
NAMED = 3  # columns that are left out by name; of more the number is told
NOTHING = "No private algorithm has a result yet, so there is nothing to compare."
UNRANKED = "No private algorithm can be ranked, so there is nothing to compare."


@dataclass(frozen=True, slots=True)
class Line:
    """What is to be said about one mechanism."""

    mechanism: str  # empty: about all
    winner: str  # whom the seeds bear out; empty: nobody is crowned
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it."""
        return " ".join([*([f"{self.mechanism}:"] if self.mechanism else []), *self.sentences])


def headline(view: View) -> list[Line]:
    """A line for each mechanism of the columns, in their order."""
    if not _any_result(view, view.columns):
        return [Line("", "", (NOTHING,))]
    found: dict[str, list[Column]] = {}
    for column in view.columns:
        mechanism = view.lookup(column, MECHANISM)
        found.setdefault("" if mechanism is None else axis_value(mechanism), []).append(column)
    return [_line(view, mechanism, columns) for mechanism, columns in found.items()]


def _line(view: View, mechanism: str, columns: Sequence[Column]) -> Line:
    compared = [c for c in columns if ranked(view, c)]
    winner, sentences = "", list[str]()
    waiting = [
        e.status in UNFINISHED for c in columns for g in view.contestants(c) for e in g.endings if e.run is not None
    ]
    if any(waiting):
        sentences.append(f"Nobody is ahead yet: {sum(waiting)} of {len(waiting)} runs are missing or failed.")
    elif not compared and any(c.key in view.left_out for c in columns):
        where = "" if len(columns) == 1 else f" in any of {len(columns)} columns"
        sentences.append(f"No private algorithm beats chance{where}, so nobody is ahead.")
    elif compared:
        winner, sentences = _verdict(view, compared)
    else:
        sentences.append(UNRANKED if _any_result(view, columns) else NOTHING)
    left = [c for c in columns if view.left_out.get(c.key) == AT_CHANCE]
    if left and compared:
        sentences.append(_left(left, len(columns)))
    marked = dict.fromkeys(
        f"{short(g.algorithm)} ({m})" for c in columns for g in view.in_column(c) if (m := view.mark(g))
    )
    if marked:
        sentences.append(f"Not ranked: {listing(list(marked))}.")
    return Line(mechanism, winner, tuple(sentences))


def _any_result(view: View, columns: Sequence[Column]) -> bool:
    return any(g.private and g.values for c in columns for g in view.in_column(c))


def _left(left: Sequence[Column], of: int) -> str:
    names = [coordinates({a: v for a, v in c.coordinates.items() if a != MECHANISM}) for c in left]
    which = f" ({'; '.join(names)})" if len(names) <= NAMED else ""
    return (
        f"{len(left)} of {of} columns {'is' if len(left) == 1 else 'are'} left out: nobody beats chance there{which}."
    )


def _verdict(view: View, columns: Sequence[Column]) -> tuple[str, list[str]]:
    """Who is crowned, and the sentences about it."""
    overall, metric = across(view, columns), view.metrics[columns[0].key]
    wins = _wins(view, columns)
    if len(overall) < 2:  # metrics that have no mean, or nobody to compare with
        if len(wins) == 1 and all(len(ranked(view, c)) == 1 for c in columns):
            return "", [f"{short(wins[0][0])} is the only private algorithm that can be ranked."]
        return "", [_best_in(wins, len(columns))]
    sign = 1.0 if metric.higher_is_better else -1.0
    first = max(overall, key=lambda name: sign * float(np.mean(list(overall[name].values()))))
    found = differences(overall, first)
    second = max(found, key=lambda d: sign * d.paired.mean)
    lead, digits = -sign * second.paired.mean, view.digits(columns[0])
    over = f" on average over {len(columns)} columns" if len(columns) > 1 else ""
    ahead = f"{number(lead, digits)} {_unit(metric)} better than {short(second.algorithm)}, the next one"
    level = not number(lead, digits).strip("0.")
    if level:
        head = f"{short(first)} and {short(second.algorithm)} are level{over}"
    else:
        head = f"{short(first)} {'is the best private algorithm' if second.significant else 'leads'}{over}, {ahead}"
    sentences = [f"{head}.", _footing(second, len(found), sign, digits)]
    if len(columns) > 1:
        sentences.append(_best_in(wins, len(columns)))
    if not level:
        sentences += _for_whom(view, columns, first, second.algorithm) + _why(view, columns, first, second.algorithm)
    return first if second.significant and not level else "", sentences


def _unit(metric: Metric) -> str:
    return "points" if metric.unit == "%" else f"in {clean(metric.name, 40)}"


def _wins(view: View, columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Who is best in how many columns, most first."""
    winners = [role(view, g.algorithm, columns) for c in columns if (g := best(view, c)) is not None]
    return sorted(((name, winners.count(name)) for name in set(winners)), key=lambda item: (-item[1], item[0]))


def _best_in(wins: Sequence[tuple[str, int]], columns: int) -> str:
    (name, count), *others = wins
    rest = f"; {listing([f'{short(other)} in {n}' for other, n in others])}" if others else ""
    return f"{short(name)} is best in {count} of {columns} column{'s' * (columns != 1)}{rest}."


def _footing(against: Difference, comparisons: int, sign: float, digits: int) -> str:
    """What the seeds say about a lead."""
    paired, seeds = against.paired, f"{against.paired.n} seed{'s' * (against.paired.n != 1)}"
    low, high = sorted((-sign * paired.low, -sign * paired.high))
    span = "" if math.isnan(low) else f"95 % confidence interval {number(low, digits)} to {number(high, digits)}"
    if smallest_p(paired.n, comparisons) > LEVEL:
        corrected = " after Holm's correction" if smallest_p(paired.n) <= LEVEL else ""
        return f"With {seeds} nothing can be significant at {LEVEL}{corrected}{f' ({span})' if span else ''}."
    corrected = f", Holm-corrected over {comparisons} comparisons {p_value(against.p_holm)}" if comparisons > 1 else ""
    verdict = "significant" if against.significant else "not significant"
    test = f"Exact paired test over {seeds}: {p_equals(paired.p)}{corrected}: {verdict} at {LEVEL}"
    return f"{test} ({span})." if span else f"{test}."


def _why(view: View, columns: Sequence[Column], first: str, second: str) -> list[str]:
    """Noise efficiency and data coverage of the two, as means over columns, and whether they explain anything; nothing
    where a run has none.
    """
    told, more = [], False
    for key in ("noise_efficiency", "data_coverage"):
        means = []
        for name in (first, second):
            groups = [g for c in columns for g in ranked(view, c) if role(view, g.algorithm, columns) == name]
            values = [record.facts.get(key) for group in groups for record in group.records]
            if not values or not all(isinstance(v, float) and math.isfinite(v) for v in values):
                return []
            means.append(float(np.mean([v for v in values if isinstance(v, float)])))
        ours, theirs = map(share, means)
        told.append(f"{ours} against {theirs}")
        more = more or (means[0] > means[1] and ours != theirs)
    numbers = f"noise efficiency {told[0]}, data coverage {told[1]}"
    return [f"Why: {numbers}." if more else f"Why is not in the two numbers: {numbers}."]


def _for_whom(view: View, columns: Sequence[Column], first: str, second: str) -> list[str]:
    """What each third of the clients gains over the next algorithm, and what it puts in; nothing if not measured."""
    gains, shares = [], []
    for column in columns:
        groups = {role(view, g.algorithm, columns): g for g in ranked(view, column)}
        ours, theirs = payment(view, groups[first]), payment(view, groups[second])
        if ours is None or theirs is None:
            return []
        sign = 1.0 if view.metrics[column.key].higher_is_better else -1.0
        gains.append(sign * (np.array(ours.utility) - np.array(theirs.utility)))
        shares.append(np.array(ours.share))
    gain, share = np.mean(gains, axis=0), np.mean(shares, axis=0)
    if not np.all(np.isfinite(gain)):
        return []
    digits = view.digits(columns[0])
    strict, middle, loose = (
        f"{_verb(g) if i == 0 or _verb(g) != _verb(gain[0]) else ''} {number(abs(g), digits)}".strip()
        for i, g in enumerate(map(float, gain))
    )
    takes = ""
    if np.all(np.isfinite(share)):
        takes = f"; of all participations the strictest third has {share[0]:.0f} %, the loosest {share[2]:.0f} %"
    unit = _unit(view.metrics[columns[0].key])
    return [
        f"For whom: the third of clients with the strictest budgets {strict} {unit} against {short(second)} on "
        f"its data, the middle third {middle}, the loosest {loose}{takes}."
    ]


def _verb(gain: float) -> str:
    return "loses" if gain < 0 else "gains"
