"""Sections: what plugins add to a report (hook `dpflbench_sections`) where a suite asks for it (`report.sections`).

A section that is not there, or that fails, is a line in the report and not the end of it: the records are worth more.
"""

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from dpflbench.catalogue import GROUP, Catalogue, load
from dpflbench.errors import DpflbenchError
from dpflbench.report.charts.chart import Chart
from dpflbench.report.tables.table import Table
from dpflbench.report.view import View
from dpflbench.schema import INVALID, build

if TYPE_CHECKING:
    from dpflbench.interfaces import Section


def build_section(
    asked: str | Mapping[str, Any], catalogue: Catalogue, path: str, problems: list[str]
) -> "Section | None":
    """The section a suite asks for by its name or by {name, parameters}; None if there are problems."""
    given = {"name": asked} if isinstance(asked, str) else dict(asked)
    try:
        part = catalogue.get("sections", str(given.pop("name", "")))
    except DpflbenchError as e:
        problems.append(f"{path}: {e}")
        return None
    section: Section = build(part.factory, given, path, problems)
    return None if section is INVALID else section


def section_contents(view: View, catalogue: Catalogue | None = None) -> list[Table | Chart]:
    """Everything the asked-for sections have to say, keys led by the section's name; a note where one says nothing."""
    out: list[Table | Chart] = []
    for i, asked in enumerate(view.report.sections):
        name = asked if isinstance(asked, str) else str(asked.get("name", ""))
        problems: list[str] = []
        try:
            section = build_section(asked, catalogue or _holding(name), f"report.sections[{i}]", problems)
            found = list(section.contents(view)) if section else []
            odd = [type(c).__name__ for c in found if not isinstance(c, Table | Chart)]
            problems += [f"it holds a {odd[0]}; allowed: Table and Chart"] if odd else []
            out += [] if odd else [replace(c, key=f"{name}-{c.key}") for c in found]
        except Exception as e:  # whatever a stranger's section raises is its problem, not the end of a report
            problems = [str(e) if isinstance(e, DpflbenchError) else f"{type(e).__name__}: {e}"]
        if problems:
            note = f"not shown: {problems[0]}"
            out.append(Table(key=f"section-{i}", title=f"Section {name}", header=(), rows=(), notes=(note,)))
    return out


def _holding(name: str) -> Catalogue:
    """The plugin of the section's name if that has it, else all, which takes seconds: they bring torch along."""
    found = load(points=[p for p in entry_points(group=GROUP) if p.name == name])
    return found if name in found.parts["sections"] else load()
