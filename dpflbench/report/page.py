"""The report as one HTML page: no network, works from disk. Everything from suites, plugins and records is escaped.

A content policy in the page itself forbids requests of any kind and any script but the page's own, so that a name that
got past the escaping would still be inert.
"""

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from dpflbench import __version__
from dpflbench.canonical import encode
from dpflbench.report import labels
from dpflbench.report.charts.chart import Chart
from dpflbench.report.charts.draw import draw, legend
from dpflbench.report.charts.files import KINDS, figure_path
from dpflbench.report.charts.frame import Looks
from dpflbench.report.charts.svg import e, n
from dpflbench.report.comparison import seed_warnings
from dpflbench.report.downloads import Downloads
from dpflbench.report.headline import headline
from dpflbench.report.tables.origin import environment_table, made, records_table
from dpflbench.report.tables.table import Table
from dpflbench.report.view import View

PANEL = 320.0  # units a panel is wide; the style sheet makes it fit


def _part(name: str) -> str:
    return (files("dpflbench.report") / name).read_text(encoding="utf-8")


def suite_text(view: View) -> str:
    """The resolved suite as YAML that can be run; of merged folders, the first one's with all axes."""
    import yaml

    suite = {k: v for k, v in view.suite.items() if k != "merged"}
    if isinstance(suite.get("axes"), Mapping):
        suite["axes"] = {axis: suite["axes"][axis] for axis in view.axes if axis in suite["axes"]}
    if isinstance(suite.get("algorithms"), list | tuple):
        suite["algorithms"] = [
            {"as" if k == "label" else k: v for k, v in entry.items()} if isinstance(entry, Mapping) else entry
            for entry in suite["algorithms"]
        ]
    return str(yaml.safe_dump(encode(suite), sort_keys=False, allow_unicode=True, width=120))


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
    """Words to filter by, from the table itself: a column and an algorithm if it names them."""
    names = [i for i, head in enumerate(table.header) if head in ("column", "algorithm")]
    chosen = names or range(min(2, table.labels))
    return " ".join(table.rows[-1][i].text.split(",")[0] for i in chosen)


def _first_order(table: Table, head: str) -> str:
    """How a column is sorted first: the best at the top, as its arrow says, else the table's; small p values too."""
    if table.header.index(head) < table.labels or head in ("p", "p (Holm)"):
        return "ascending"
    arrows = [c for c in head if c in "↑↓"] or [c for c in table.title if c in "↑↓"]
    return "descending" if arrows == ["↑"] else "ascending"


def render(template: str, **contents: Any) -> str:
    """A page of this package from a template, with style and script inside and everything else escaped."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    script, style = _part("page.js"), _part("charts/chart.css") + _part("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=FunctionLoader(_part)
    )
    environment.filters |= {
        "clean": lambda text: labels.clean(text, 2000),
        "lines": lambda text: str(text).split("\n"),
        "value": _cell_value,
        "example": _example,
        "first_order": _first_order,
    }
    return environment.get_template(template).render(
        style=Markup(style), script=Markup(script), digest=digest, version=__version__, **contents
    )


def html_report(
    view: View, tables: Sequence[Table], charts: Sequence[Chart], looks: Looks, beside: Downloads | None = None
) -> str:
    """The whole page; tables and charts in reading order, utility tables at the top; links to what lies beside it."""
    from markupsafe import Markup

    beside = beside or Downloads()
    drawn: list[dict[str, Any]] = [
        {
            "key": c.key,
            "title": c.title,
            "caption": c.caption,
            "body": Markup(chart_html(c, looks)),
            "files": {
                kind.upper(): beside.figures[path]
                for kind in KINDS
                if (path := figure_path(c, Path("figures"), kind).as_posix()) in beside.figures
            },
        }
        for c in charts
    ]
    return render(
        "page.html.j2",
        title=labels.clean(view.name, 100),
        description=labels.clean(view.suite.get("description") or "", 1000),
        headline=headline(view),
        warnings=[*seed_warnings(view), *view.problems],
        main=[t for t in tables if t.key.startswith("utility")],
        charts=drawn,
        rest=[*(t for t in tables if not t.key.startswith("utility")), environment_table(view), records_table(view)],
        made=made(view),
        files=beside.files,
        records=beside.records,
        suite=suite_text(view),
        numbers={
            "cells": sum(len(g.endings) for g in view.groups.values()),
            "records": len(view.records),
            "columns": len(view.columns),
            "seeds": len(view.seeds),
        },
    )
