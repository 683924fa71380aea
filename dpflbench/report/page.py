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
from dpflbench.canonical import encode
from dpflbench.report import labels
from dpflbench.report.charts.chart import Chart
from dpflbench.report.charts.draw import Looks, draw, legend
from dpflbench.report.charts.svg import e, n
from dpflbench.report.comparison import seed_warnings, winner_sentence
from dpflbench.report.tables.origin import environment_table, records_table
from dpflbench.report.tables.table import Table
from dpflbench.report.view import View

PANEL = 320.0  # units a panel is wide; the style sheet makes it fit


def _part(name: str) -> str:
    return (files("dpflbench.report") / name).read_text(encoding="utf-8")


def suite_text(view: View) -> str:
    """The resolved suite as YAML."""
    import yaml

    return str(yaml.safe_dump(encode(view.suite), sort_keys=False, allow_unicode=True, width=120))


def chart_html(chart: Chart, looks: Looks) -> str:
    """All panels of a chart, each an SVG that the keyboard reaches, and its legend, whose names are switches."""
    panels = "".join(
        f'<svg viewBox="0 0 {n(d.wide)} {n(d.high)}" role="img" tabindex="0" aria-label="{e(d.title)}">{d.body}</svg>'
        for d in draw(chart, looks, PANEL)
    )
    keys = ""
    for key, text, name in legend(chart, looks):
        item = f'<svg viewBox="0 0 34 12" class="ks" aria-hidden="true">{key}</svg>{e(text)}'
        switch = f'<button type="button" class="k" aria-pressed="true" data-toggle="{e(text)}">{item}</button>'
        keys += switch if name else f'<span class="k">{item}</span>'
    return f'<div class="panels">{panels}</div>' + (f'<div class="legend">{keys}</div>' if keys else "")


def _cell_value(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else repr(float(value))


def _example(table: Table) -> str:
    """Words to filter by, from the table itself."""
    return " ".join(item.text.split(",")[0] for item in table.rows[-1][: min(2, table.labels)])


def html_report(view: View, tables: Sequence[Table], charts: Sequence[Chart], looks: Looks) -> str:
    """The whole page; tables and charts in reading order, utility tables at the top."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    script, style = _part("page.js"), _part("charts/chart.css") + _part("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "clean": lambda text: labels.clean(text, 2000),
        "lines": lambda text: str(text).split("\n"),
        "value": _cell_value,
        "example": _example,
    }
    drawn: list[dict[str, Any]] = [
        {"key": c.key, "title": c.title, "caption": c.caption, "body": Markup(chart_html(c, looks))} for c in charts
    ]
    return environment.from_string(_part("page.html.j2")).render(
        title=labels.clean(view.name, 100),
        description=labels.clean(view.suite.get("description") or "", 1000),
        winner=winner_sentence(view),
        warnings=[*seed_warnings(view), *(f"unreadable record: {p}" for p in view.problems)],
        main=[t for t in tables if t.key.startswith("utility")],
        charts=drawn,
        rest=[*(t for t in tables if not t.key.startswith("utility")), environment_table(view), records_table(view)],
        suite=suite_text(view),
        version=__version__,
        style=Markup(style),
        script=Markup(script),
        digest=digest,
        numbers={
            "cells": sum(len(g.endings) for g in view.groups.values()),
            "records": len(view.records),
            "columns": len(view.columns),
            "seeds": len(view.seeds),
        },
    )
