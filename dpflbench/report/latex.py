"""Tables for papers: one file a table, split by mechanism, to be put into a paper by \\input."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from dpflbench.report.latex_layout import parts
from dpflbench.report.latex_table import as_latex
from dpflbench.report.latex_text import proper, sentence
from dpflbench.report.tables.table import Table
from dpflbench.report.view import View, coordinate_key
from dpflbench.results.titles import axis_value

PREAMBLE = r"""% Needs \usepackage{array,booktabs}; at 10 points it fits a paper of two columns.
% Made by dpflbench from records; change the records, not this file.
"""
MECHANISM = "privacy.mechanism"
FLOATS = 6  # on a page or two of the overview, so that TeX need not keep more


def by_mechanism(view: View) -> list[tuple[str, View]]:
    """Each mechanism with what the view has of it, where that is an axis; else all under no name."""
    if MECHANISM not in view.axes:
        return [("", view)]
    found: dict[str, list[str]] = {}
    for column in view.columns:
        mechanism = column.coordinates.get(MECHANISM)
        found.setdefault(coordinate_key({"": mechanism}), [axis_value(mechanism)]).append(column.key)
    return [(name, _part(view, set(keys))) for name, *keys in found.values()]


def _part(view: View, keys: set[str]) -> View:
    """The view of some columns, their mechanism no longer said."""
    columns = {
        c.key: replace(c, coordinates={a: v for a, v in c.coordinates.items() if a != MECHANISM})
        for c in view.columns
        if c.key in keys
    }
    return replace(
        view,
        axes=tuple(a for a in view.axes if a != MECHANISM),
        columns=tuple(columns.values()),
        groups={k: replace(g, column=columns[k[0]]) for k, g in view.groups.items() if k[0] in columns},
    )


def latex_tables(tables: Sequence[Table], mechanism: str = "") -> dict[str, str]:
    """Name → text of every table that holds numbers, all under one mechanism."""
    out: dict[str, str] = {}
    for table in (t for t in tables if t.rows):
        found = parts(table)
        for number, (part, plan) in enumerate(found, 1):
            key = "-".join(filter(None, [table.key, mechanism, str(number) if len(found) > 1 else ""]))
            key = re.sub(r"[^a-zA-Z0-9-]+", "-", key)[:80]
            where = f", {mechanism} noise" if mechanism else ""
            of = f" (part {number} of {len(found)})" if len(found) > 1 else ""
            caption = f"{proper(table.title + where)}{of}. {sentence(table.caption)}".strip()
            out[key] = f"{PREAMBLE}{as_latex(part, plan, key, caption)}"
    return out


def latex_files(view: View, make: Callable[[View], Sequence[Table]], added: Sequence[Table]) -> dict[str, str]:
    """File name → text: the tables of each mechanism, what plugins add, and `all.tex`, which shows them all."""
    tables: dict[str, str] = {}
    for mechanism, part in by_mechanism(view):
        tables |= latex_tables(make(part), mechanism)
    tables |= latex_tables(added)
    inputs = [rf"\input{{{key}}}" for key in tables]
    pages = [r"\clearpage" if i % FLOATS == FLOATS - 1 else "" for i in range(len(inputs))]
    overview = [
        "% `pdflatex all.tex` shows every table as a paper of two columns would.",
        r"\documentclass[10pt,twocolumn]{article}",
        r"\usepackage{array,booktabs}",
        r"\begin{document}",
        *[f"{line}{page}" for line, page in zip(inputs, pages, strict=True)],
        r"\end{document}",
        "",
    ]
    return {f"{key}.tex": text for key, text in tables.items()} | {"all.tex": "\n".join(overview)}
