"""The utility tables of a report: mean ± std over paired seeds, the best in bold, what is missing and why.

Rows and columns follow the suite's `report` part; an axis that is in neither makes one table for each of its values.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpflbench.report import labels
from dpflbench.report.comparison import indistinguishable, ranked, seed_warnings
from dpflbench.report.statistics import LEVEL
from dpflbench.report.table import Entry, Table, entry
from dpflbench.report.view import MEASURED, Group, Outcome, Setting, View, coordinate_key, descend
from dpflbench.results.record import Metric

Dims = Sequence[str]


class Notes:
    """Numbered footnotes: the same words get the same number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, text: str) -> str:
        """The mark of a note, kept for the list."""
        return f"[{self._numbers.setdefault(text, len(self._numbers) + 1)}]"

    def lines(self) -> list[str]:
        """All notes, in the order of their numbers."""
        return [f"[{n}] {text}" for text, n in self._numbers.items()]


def gap_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Why outcomes have no value, seeds with the same reason together: `diverged in seeds 1 and 4: ...`."""
    found: dict[tuple[str, str], list[int]] = {}
    for outcome in outcomes:
        found.setdefault((outcome.status, outcome.reason), []).append(outcome.seed)
    lines = []
    for (status, reason), seeds in found.items():
        which = (
            ""
            if status == "impossible"
            else f" in seed{'s' * (len(seeds) != 1)} {labels.listing([str(s) for s in seeds])}"
        )
        lines.append(f"{status}{which}: {reason}")
    return lines


def gap_text(outcomes: Sequence[Outcome]) -> str:
    """What stands in a cell without any value."""
    kinds = list(dict.fromkeys(o.status for o in outcomes))
    return " / ".join(kinds) if kinds else "–"


def utility_entry(view: View, group: Group | None, notes: Notes, marks: Mapping[str, set[str]]) -> Entry:
    """Mean ± std with its marks, or the reason why there is none."""
    if group is None:
        return entry("–", hint="not part of the suite")
    why = "; ".join(gap_lines(group.gaps))
    if not group.values:
        return entry(gap_text(group.gaps), mark=notes.mark(why), hint=why)
    text = labels.mean_std(group.mean, group.std)
    hint = ", ".join(f"seed {seed}: {labels.number(value)}" for seed, value in group.values.items())
    mark = "≈" if group.algorithm in marks.get("close", ()) else ""
    if group.gaps:
        text += f" ({len(group.values)}/{len(group.outcomes)})"
        mark = f"{mark} {notes.mark(why)}".strip()
    return entry(text, group.mean, bold=group.algorithm in marks.get("best", ()), mark=mark, hint=hint)


def _pick(coordinates: Mapping[str, Any], dims: Dims) -> dict[str, Any]:
    return {d: coordinates[d] for d in dims if d in coordinates}


def _distinct(view: View, dims: Dims) -> list[dict[str, Any]]:
    """Every combination of the given dimensions that occurs: the first dimension goes slowest, values in the manifest's
    order.
    """
    found: dict[str, dict[str, Any]] = {}
    for setting in view.settings:
        for algorithm in view.algorithms if "algorithm" in dims else [""]:
            place = _pick({**setting.coordinates, "algorithm": algorithm}, dims)
            found.setdefault(coordinate_key(place), place)
    ranks: dict[str, dict[str, int]] = {d: {} for d in dims}
    for place in found.values():
        for d, value in place.items():
            ranks[d].setdefault(coordinate_key({d: value}), len(ranks[d]))
    return sorted(found.values(), key=lambda place: [ranks[d][coordinate_key({d: v})] for d, v in place.items()])


def _place_label(place: Mapping[str, Any], joint: str) -> str:
    return (
        joint.join(labels.short(v) if d == "algorithm" else labels.coordinate(d, v) for d, v in place.items())
        or "utility"
    )


def _marks(view: View) -> dict[str, dict[str, set[str]]]:
    out = {}
    for setting in view.settings:
        order = ranked(view, setting)
        top = {g.algorithm for g in order if g.mean == order[0].mean}
        out[setting.key] = {"best": top, "close": indistinguishable(view, setting) - top}
    return out


def _metric_of(view: View, settings: Sequence[Setting]) -> Metric | None:
    found = {view.metrics[s.key] for s in settings}
    return next(iter(found)) if len(found) == 1 else None


def utility_tables(view: View) -> list[Table]:
    """Mean ± std of final utility, one table for each value of the axes that are neither rows nor columns."""
    opts = view.options
    marks = _marks(view)
    tables = []
    for number, panel in enumerate(_distinct(view, opts.panels)):
        inside = [
            s for s in view.settings if coordinate_key(_pick(s.coordinates, opts.panels)) == coordinate_key(panel)
        ]
        tables.append(_utility_table(view, panel, inside, marks, "utility" if number == 0 else f"utility-{number + 1}"))
    return tables


def _utility_table(
    view: View, panel: Mapping[str, Any], inside: Sequence[Setting], marks: Mapping[str, dict[str, set[str]]], key: str
) -> Table:
    opts, notes = view.options, Notes()
    by_place = {
        coordinate_key({**_pick(s.coordinates, opts.rows), **_pick(s.coordinates, opts.columns)}): s for s in inside
    }
    rows = _distinct(view, opts.rows)
    columns = _distinct(view, opts.columns) or [{}]

    def at(row: Mapping[str, Any], column: Mapping[str, Any]) -> tuple[Setting | None, str]:
        place = {**row, **column}
        algorithm = str(place.pop("algorithm", ""))
        return by_place.get(coordinate_key(place)), algorithm

    body = []
    for row in rows:
        items = []
        for column in columns:
            setting, algorithm = at(row, column)
            group = view.group(setting, algorithm) if setting else None
            items.append(utility_entry(view, group, notes, marks[setting.key] if setting else {}))
        body.append((*(_row_entry(view, d, v) for d, v in row.items()), *items))
    if opts.rows == ("algorithm",):
        body += _reference_rows([by_place.get(coordinate_key(column)) for column in columns], view)
    metric = _metric_of(view, inside)
    header = [_column_head(view, column, [s for r in rows if (s := at(r, column)[0])], metric) for column in columns]
    where = f" ({labels.coordinates(panel)})" if panel else ""
    what = labels.metric_label(metric) if metric else "utility"
    return Table(
        key,
        f"Utility{where}: {what}",
        (*(labels.axis(d) for d in opts.rows), *header),
        tuple(body),
        caption=caption(view, metric),
        notes=tuple([*legend(view), *notes.lines()]),
        labels=len(opts.rows),
    )


def _reference_rows(settings: Sequence[Setting | None], view: View) -> list[tuple[Entry, ...]]:
    """What trivial models reach (predicting the mean, least squares), where the data set says so."""
    found: list[dict[str, list[float]]] = []
    for setting in settings:
        here: dict[str, list[float]] = {}
        records = [r for g in view.in_setting(setting) for r in g.records] if setting else []
        seeds = {r.config.get("seed"): r for r in records}  # all algorithms of a seed have the same data
        for record in seeds.values():
            for name, value in (record.facts.get("references") or {}).items():
                here.setdefault(str(name), []).append(float(value))
        found.append(here)
    rows = []
    for name in dict.fromkeys(name for here in found for name in here):
        means = [float(np.mean(here[name])) if name in here else math.nan for here in found]
        stds = [float(np.std(here[name], ddof=1)) if len(here.get(name, ())) > 1 else math.nan for here in found]
        rows.append(
            (
                entry(name.replace("_", " "), mark="(trivial model)"),
                *(entry(labels.mean_std(m, s), m) for m, s in zip(means, stds, strict=True)),
            )
        )
    return rows


def _row_entry(view: View, dim: str, value: Any) -> Entry:
    if dim != "algorithm":
        return entry(labels.axis_value(value), float(value) if isinstance(value, int | float) else None)
    private = all(g.private for g in view.groups.values() if g.algorithm == value)
    return entry(value, mark="" if private else "(not private)")


def _column_head(view: View, column: Mapping[str, Any], settings: Sequence[Setting], metric: Metric | None) -> str:
    head = _place_label(column, "\n")
    own = _metric_of(view, settings) if settings else None
    return f"{head}\n{labels.metric_label(own)}" if metric is None and own is not None else head


def caption(view: View, metric: Metric | None) -> str:
    """What the figures are."""
    way = f", {labels.metric_direction(metric)}" if metric else ""
    seeds = len(view.seeds)
    spread = (
        f"Mean ± standard deviation over {seeds} paired seeds." if seeds > 1 else "One seed, so there is no spread."
    )
    return f"{view.options.value}: {MEASURED[view.options.value]}, after the last round{way}. {spread}"


def legend(view: View) -> list[str]:
    """What the signs mean."""
    lines = [
        "Bold (or *): best private algorithm of its column; ≈: not told apart from it by an exact paired test "
        f"(Holm-corrected, {LEVEL})."
    ]
    if any(g.values and g.gaps for g in view.groups.values()):
        lines.append(
            "(4/6): four of six seeds ended well; such a mean leaves out the seeds that went wrong, so it is not "
            "ranked."
        )
    return [*lines, *_public_features(view), *seed_warnings(view)]


def _public_features(view: View) -> list[str]:
    """That features were learnt from training data and nobody paid for it."""
    configs = [record.config for group in view.groups.values() for record in group.records]
    kinds = {str(descend(config, "task.dataset.features.kind")) for config in configs} - {"None", "flatten"}
    if not kinds:
        return []
    return [
        f"Features ({', '.join(sorted(kinds))}) are fitted on training data as public preprocessing; epsilon does "
        "not cover that."
    ]
