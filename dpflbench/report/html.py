"""The report as one HTML page: no network, works from disk. Everything from suites, plugins and records is escaped.

A content policy in the page itself forbids requests of any kind and any script but the page's own, so that a name that
got past the escaping would still be inert.
"""

import base64
import hashlib
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from dpflbench import __version__
from dpflbench.report import labels
from dpflbench.report.chart import Chart
from dpflbench.report.comparison import seed_warnings, winner_sentence
from dpflbench.report.svg import chart_svg
from dpflbench.report.table import Table, entry
from dpflbench.report.view import View


def _part(name: str) -> str:
    return (files("dpflbench.report") / name).read_text(encoding="utf-8")


def records_table(view: View) -> Table:
    """Every cell with the id, status and digest of its record."""
    rows = []
    for setting in view.settings:
        where = labels.coordinates(setting.coordinates) or "all"
        for group in view.in_setting(setting):
            for o in group.outcomes:
                seconds = o.record.measured.get("seconds") if o.record else None
                took = float(seconds) if isinstance(seconds, int | float) else math.nan
                rows.append(
                    (
                        entry(o.run or "–"),
                        entry(o.status),
                        entry(where),
                        entry(group.algorithm),
                        entry(o.seed, o.seed),
                        entry(labels.number(o.value), o.value),
                        entry(labels.number(took), took),
                        entry(o.reason),
                    )
                )
    header = ("record", "status", "setting", "algorithm", "seed", "value", "seconds", "reason")
    return Table(
        "records",
        "Records",
        header,
        tuple(rows),
        labels=4,
        caption="Every number above comes from one of these files, records/<id>.json.",
    )


def environment_table(view: View) -> Table:
    """Versions, packages, devices and machines the records come from, with how many come from each."""
    counts: dict[tuple[str, str], int] = {}
    for record in view.records.values():
        facts = {f"version of {k}": v for k, v in (record.measured.get("versions") or {}).items()}
        facts |= {f"source of {k}": v for k, v in record.plugins.items()}
        facts |= {k: record.measured[k] for k in ("device", "threads", "machine") if k in record.measured}
        facts |= {k.replace("_", " "): record.facts[k] for k in ("data_digest", "gradient_path") if k in record.facts}
        for name, value in facts.items():
            counts[name, str(value)] = counts.get((name, str(value)), 0) + 1
    rows = tuple((entry(name), entry(value), entry(n, n)) for (name, value), n in sorted(counts.items()))
    return Table("environment", "Environment", ("what", "value", "records"), rows, labels=2)


def suite_text(view: View) -> str:
    """The resolved suite as YAML."""
    import yaml

    from dpflbench.canonical import encode

    return str(yaml.safe_dump(encode(view.suite), sort_keys=False, allow_unicode=True, width=120))


def _cell_value(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else repr(float(value))


def html_report(view: View, tables: Sequence[Table], drawn: Sequence[Chart]) -> str:
    """The whole page; tables and charts in reading order, utility tables at the top."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    script, style = _part("page.js"), _part("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "clean": lambda text: labels.clean(text, 2000),
        "lines": lambda text: str(text).split("\n"),
        "value": _cell_value,
    }
    charts: list[dict[str, Any]] = [
        {"key": c.key, "title": c.title, "caption": c.caption, "body": Markup(chart_svg(c, view.algorithms))}
        for c in drawn
    ]
    main = [t for t in tables if t.key.startswith("utility")]
    rest = [t for t in tables if not t.key.startswith("utility")]
    return environment.from_string(_part("page.html.j2")).render(
        title=labels.clean(view.name, 100),
        description=labels.clean(view.suite.get("description") or "", 1000),
        winner=winner_sentence(view),
        warnings=[*seed_warnings(view), *(f"unreadable record: {p}" for p in view.problems)],
        main=main,
        charts=charts,
        rest=[*rest, environment_table(view), records_table(view)],
        suite=suite_text(view),
        version=__version__,
        style=Markup(style),
        script=Markup(script),
        digest=digest,
        numbers={
            "cells": sum(len(g.outcomes) for g in view.groups.values()),
            "records": len(view.records),
            "settings": len(view.settings),
            "seeds": len(view.seeds),
        },
    )
