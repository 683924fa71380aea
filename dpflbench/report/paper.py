"""Paper mode: the printed figures of Ma et al. (arXiv 2408.08642) beside ours, and what differs between their settings
and ours.

`report.paper` is `table1`, `table2`, one of the figures (which print no values) or `all`; each of them adds the table
of claims.
"""

import json
import math
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from dpflbench.errors import DpflbenchError
from dpflbench.report import labels
from dpflbench.report.claims import claims
from dpflbench.report.panels import name_of
from dpflbench.report.table import Table, entry
from dpflbench.report.view import Setting, View

KINDS = ("table1", "table2", "fig-utility", "fig-selection", "fig-privacy", "fig-data", "claims", "all")
CONSTANTS = ("rho_min", "gamma", "smoothness", "strong_convexity")
SYMBOLS = {"rho_min": "ρ min", "gamma": "γ", "smoothness": "L", "strong_convexity": "μ"}


@lru_cache(maxsize=1)
def printed() -> dict[str, Any]:
    """Everything the paper prints, and its settings."""
    found: dict[str, Any] = json.loads((files("dpflbench.report") / "paper.json").read_text(encoding="utf-8"))
    return found


def dataset_of(view: View, setting: Setting) -> str:
    """The data set of a setting, by the name it has in a suite."""
    return name_of(view.lookup(setting, "task.dataset"))


def mechanism_of(view: View, setting: Setting) -> str:
    """The mechanism of a setting."""
    return name_of(view.lookup(setting, "privacy.mechanism"))


def deviations(view: View, setting: Setting) -> dict[str, tuple[str, str]]:
    """Where a setting is not the paper's: path → our value and theirs."""
    dataset = dataset_of(view, setting)
    known = printed()["settings"]
    found: dict[str, tuple[str, str]] = {}
    for path, theirs in ({**known["common"], **known[dataset]} if dataset in known else {}).items():
        ours = view.lookup(setting, path)
        if path == "privacy.clip" and isinstance(ours, dict):
            ours = ours.get(mechanism_of(view, setting))
        ours = name_of(ours) if isinstance(ours, dict) else ours
        same = (
            math.isclose(ours, theirs)
            if isinstance(ours, int | float) and isinstance(theirs, int | float)
            else ours == theirs
        )
        if not same:
            found[path] = ("not set" if ours is None else labels.axis_value(ours), labels.axis_value(theirs))
    return found


def as_printed(view: View) -> list[Setting]:
    """Settings at the heterogeneity the printed tables are for; others cannot be put beside them."""
    return [
        s for s in view.settings if not {"privacy.epsilon.high", "task.partition.alpha"} & deviations(view, s).keys()
    ]


def _deviation_notes(view: View, settings: list[Setting]) -> tuple[str, ...]:
    found: dict[str, tuple[list[str], str]] = {}
    for setting in settings:
        for path, (ours, theirs) in deviations(view, setting).items():
            found.setdefault(path, ([], theirs))[0].append(ours)
    lines = [
        f"{path}: {labels.listing(list(dict.fromkeys(ours)))}, the paper has {theirs}"
        for path, (ours, theirs) in found.items()
    ]
    return tuple(f"Differs from the paper: {line}." for line in lines) or (
        "All settings the paper gives are as printed.",
    )


def table_1(view: View) -> Table | None:
    """The paper's table 1 beside ours: PRIVATEFL with and without biased selection."""
    rows, used = [], []
    for setting in as_printed(view):
        theirs = printed()["table1"].get(mechanism_of(view, setting), {})
        for algorithm, by_dataset in theirs.items():
            pair, group = by_dataset.get(dataset_of(view, setting)), view.group(setting, algorithm)
            if pair is None or group is None:
                continue
            used.append(setting)
            gap = group.mean - pair[0]
            ours = labels.mean_std(group.mean, group.std) if group.values else "; ".join({o.status for o in group.gaps})
            rows.append(
                (
                    entry(labels.coordinates(setting.coordinates) or "all"),
                    entry(algorithm),
                    entry(labels.metric_label(view.metrics[setting.key])),
                    entry(labels.mean_std(*pair), pair[0]),
                    entry(ours, group.mean),
                    entry(labels.signed(gap), gap),
                )
            )
    if not rows:
        return None
    notes = (
        f"Ours is {view.options.value}; the paper does not say which personal transform its test uses.",
        *_deviation_notes(view, list(dict.fromkeys(used))),
    )
    return Table(
        "paper-table1",
        "The paper's table 1: final utility, printed and ours",
        ("setting", "algorithm", "metric", "printed", "ours", "ours − printed"),
        tuple(rows),
        caption=printed()["source"],
        notes=notes,
        labels=3,
    )


def table_2(view: View) -> Table | None:
    """The paper's table 2 beside ours: constants estimated by biased client selection."""
    rows, used = [], []
    for setting in as_printed(view):
        theirs = printed()["table2"].get(dataset_of(view, setting), {}).get(mechanism_of(view, setting))
        for group in view.in_setting(setting):
            notes = [n for r in group.records for n in r.notes]
            ours = {c: [float(n[c]) for n in notes if isinstance(n.get(c), int | float)] for c in CONSTANTS}
            if theirs is None or not any(ours.values()):
                continue
            used.append(setting)
            items = []
            for constant in CONSTANTS:
                mean = float(np.mean(ours[constant])) if ours[constant] else math.nan
                items += [
                    entry(labels.number(theirs[constant], 3), theirs[constant]),
                    entry(labels.number(mean, 3), mean),
                ]
            rows.append((entry(labels.coordinates(setting.coordinates) or "all"), entry(group.algorithm), *items))
    if not rows:
        return None
    header = [f"{SYMBOLS[c]}\n{which}" for c in CONSTANTS for which in ("printed", "ours")]
    note = (
        "By default the constants follow from the learning-rate schedule and are not fitted: one equation cannot "
        "determine "
        "five unknowns, and the printed ones break the theorem's γ = 8 L / μ."
    )
    return Table(
        "paper-table2",
        "The paper's table 2: constants, printed and ours",
        ("setting", "algorithm", *header),
        tuple(rows),
        caption=printed()["source"],
        notes=(note, *_deviation_notes(view, list(dict.fromkeys(used)))),
        labels=2,
    )


def claim_table(view: View) -> Table:
    """Each claim of the paper: held, not held or not testable, with the evidence."""
    tested = zip(printed()["claims"], claims(view), strict=True)
    rows = [
        (entry(n, n), entry(text), entry(claim.verdict), entry(claim.evidence))
        for n, (text, claim) in enumerate(tested, 1)
    ]
    notes = (
        "Held: every comparison these results allow goes the claimed way by its mean (that one does not beat "
        "another is "
        "broken by a lead with an interval off zero). Intervals: 95 %, paired by seed. Claims 1 to 5 are about "
        "the paper's fixed "
        "heterogeneity: where a suite has settings with its alpha of 3, those alone count for them.",
        *_deviation_notes(view, list(view.settings)),
    )
    return Table(
        "claims",
        "The paper's claims under exact accounting",
        ("no.", "claim", "verdict", "evidence"),
        tuple(rows),
        caption=printed()["source"],
        notes=notes,
        labels=4,
    )


def paper_tables(view: View) -> list[Table]:
    """What paper mode adds; nothing unless the suite asks for it."""
    asked = view.options.paper
    if asked is None:
        return []
    if asked not in KINDS:
        raise DpflbenchError(f"report.paper: {labels.clean(asked, 60)!r}; allowed: {', '.join(KINDS)}")
    found = [
        table_1(view) if asked in ("table1", "all") else None,
        table_2(view) if asked in ("table2", "all") else None,
    ]
    return [*(table for table in found if table is not None), claim_table(view)]
