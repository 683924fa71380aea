"""What `dpflbench run` prints when its runs are done, and the exit code that follows; and `run --explain`."""

from collections import Counter
from pathlib import Path

import typer

from dpflbench.api.folders import ResultsFolder
from dpflbench.api.run_suite import OUTDATED
from dpflbench.catalogue import load
from dpflbench.cli.output import printable, say
from dpflbench.cli.waiting import Waiting
from dpflbench.execution.display import ENDED
from dpflbench.execution.explain import explain
from dpflbench.planning import plan_suite
from dpflbench.results.store import Store
from dpflbench.suite_schema import Suite


def show_results(folder: ResultsFolder, why: bool) -> None:
    """Print the table and write the report; exit 1 unless all runs ended well and stand a recount."""
    typer.echo(folder.summary(why))
    folder.report()
    say()
    say(f"Report: {folder.path / 'report'}")
    results = folder.marked
    if results.marks:
        found = Counter(results.marks.values())
        line = ", ".join(f"{count} {mark}" for mark, count in found.items())
        typer.echo(printable(f"Marked: {line}; `dpflbench verify {folder.path}` says why."), err=True)
    counts = Counter(str(record.status) for record in results.records.values())
    counts["failed"] += sum(record.status == "failed" for record in results.tuning.values())
    unwell = ", ".join(f"{counts[kind]} {kind}" for kind in ENDED if kind != "done" and counts[kind])
    spoilt = {"wrong", "irreproducible", "odd noise", "keeps data"} & set(results.marks.values())
    if unwell:
        line = f"Of {counts.total()} runs {unwell}; `dpflbench status {folder.path}` says why."
        typer.echo(printable(line), err=True)
    if unwell or spoilt:
        raise typer.Exit(1)


def show_explanations(suite: Suite, out: Path, root: Path | None, without: tuple[str, ...], waiting: Waiting) -> None:
    """One line a run, and how many of each kind."""
    store = Store(out)
    planned = plan_suite(suite, load(without), root, store.known)
    waiting.over()
    if store.outdated():
        say(OUTDATED.format(store.root))
    named, counts = planned.manifest.titles, Counter[str]()
    for each in explain(planned.runs, store):
        counts[each.verdict] += 1
        say(f"{each.verdict:8}  {each.run}  {named[each.run]}: {each.reason}")
    say(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
