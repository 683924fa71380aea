"""What all figures share: which settings they show, how panels are named, when an axis is logarithmic."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpflbench.report import labels
from dpflbench.report.statistics import Floats
from dpflbench.report.view import Setting, View, coordinate_key
from dpflbench.results.record import Metric

MAX_PANELS = 16


def name_of(value: Any) -> str:
    """The name in a part's configuration, which may be the name alone."""
    return str(value.get("name") or value.get("kind") or "") if isinstance(value, dict) else str(value)


def representatives(view: View) -> list[Setting]:
    """The first setting of each mechanism and data set."""
    found: dict[tuple[str, str], Setting] = {}
    for setting in view.settings:
        kind = (name_of(view.lookup(setting, "privacy.mechanism")), name_of(view.lookup(setting, "task.dataset")))
        found.setdefault(kind, setting)
    return list(found.values())


def panel_title(setting: Setting, view: View) -> str:
    """What stands above the panel of a setting."""
    return labels.coordinates(setting.coordinates) or labels.short(view.name)


def needs_log(metric: Metric, values: Floats) -> bool:
    """Errors that differ by more than an order of magnitude need a logarithmic axis."""
    known = values[np.isfinite(values)]
    return bool(not metric.higher_is_better and known.size and known.min() > 0 and known.max() > 10 * np.median(known))


def shown_settings(view: View) -> tuple[Sequence[Setting], str]:
    """The settings a figure has room for, and a sentence if those are not all."""
    if len(view.settings) <= MAX_PANELS:
        return view.settings, ""
    return view.settings[:MAX_PANELS], f" The first {MAX_PANELS} of {len(view.settings)} settings; the tables have all."


def by_other_axes(view: View, axes: Sequence[str]) -> list[tuple[str, list[Setting]]]:
    """Settings grouped by all axes but the given ones, each group with its label."""
    found: dict[str, list[Setting]] = {}
    names: dict[str, str] = {}
    for setting in view.settings:
        rest = {a: v for a, v in setting.coordinates.items() if a not in axes}
        found.setdefault(coordinate_key(rest), []).append(setting)
        names[coordinate_key(rest)] = labels.coordinates(rest)
    return [(names[key], settings) for key, settings in found.items()]
