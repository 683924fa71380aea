"""Checks of report sections: tables and charts, the same each time, also where nothing has run yet."""

from typing import Any

from dpflbench.interfaces import Section
from dpflbench.report.charts.chart import Chart
from dpflbench.report.tables.table import Table
from dpflbench.report.view import View, view
from dpflbench.results.cells import Cell, Manifest, Results
from dpflbench.testing.factories import named, obtain
from dpflbench.testing.rules import attempt, needs_methods, no_global_draws, pickled, refuse


def check_section(part: Any, who: str = "") -> None:
    """Raise ConformanceError at the first broken rule."""
    who = named(part, "section", who)
    section = obtain(part, who)
    needs_methods(who, section, Section, {"contents": 1})
    pickled(who, section)
    waiting = [Cell({"privacy.mechanism": "gaussian"}, name, 0, name * 20) for name in "ab"]
    for cells in ([], waiting):
        seen = view(Results(Manifest("check", {"name": "check"}, cells), {}))
        with no_global_draws(who, "contents"):
            first, second = (_contents(section, seen, who) for _ in range(2))
        if [c.key for c in first] != [c.key for c in second]:
            refuse(who, "contents differs from call to call", "the same for the same results", "keep no state")


def _contents(section: Section, seen: View, who: str) -> list[Table | Chart]:
    found = attempt(who, "contents(view) without any record", "tables and charts", lambda: list(section.contents(seen)))
    for each in found:
        if not isinstance(each, Table | Chart):
            refuse(who, f"contents holds a {type(each).__name__}", "Table and Chart only", "return dpflbench.report's")
    return found
