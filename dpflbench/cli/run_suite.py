"""A suite to records and a report: what is missing is done, the same command again goes on where it stopped."""

import os
import platform
import shlex
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch
import typer

from dpflbench.catalogue import Catalogue, load
from dpflbench.cli.output import printable, say
from dpflbench.cli.report import write
from dpflbench.execution import executors
from dpflbench.execution.display import display
from dpflbench.execution.executors import Executor, devices_of, in_this_process, jobs_of
from dpflbench.execution.explain import explain as explanations
from dpflbench.execution.prepare import Place
from dpflbench.execution.progress import Progress, bury
from dpflbench.execution.ray_cluster import on_ray
from dpflbench.execution.stopping import Stop
from dpflbench.execution.workers import Briefing, in_workers
from dpflbench.execution.worklist import Worklist, by_task
from dpflbench.plan import Planned, device_of, plan_suite
from dpflbench.report.write import summary_table
from dpflbench.results.store import Store
from dpflbench.suite_schema import Suite

OUTDATED = "{}: holds records of another version of dpflbench, which stay there; every run is repeated"


def run_suite(
    suite: Suite,
    *,
    out: Path,
    root: Path | None,  # of data sets
    without: tuple[str, ...],
    device: str,
    threads: int,
    jobs: str,
    jobs_per_gpu: int,
    ray: str | None,  # address of a cluster; None: this machine
    explain: bool,
    quiet: bool,
) -> None:
    """Do what is missing, then print the table and write the report; exit 1 if a run failed, 128 + n if stopped."""
    catalogue, store = load(without), Store(out)
    planned = plan_suite(suite, catalogue, root)
    if explain:
        _explain(planned, store)
        return
    place, stop = Place(root, device_of(device), threads), Stop()
    if ray is None:
        executor = _local(jobs, jobs_per_gpu, place, store, catalogue, without)
    else:
        executor = on_ray(ray, planned.manifest.suite["resources"], place, catalogue, without)
    try:
        carry_out(planned, store, catalogue, executor, stop, quiet)
    except KeyboardInterrupt:
        stop.signal = stop.signal or 2
        typer.echo("Stopped at once: runs under way go on from their last checkpoint, or start over.", err=True)
    if stop.requested:
        typer.echo(
            f"Stopped; what is done is kept. Go on with:\n  {shlex.join(['dpflbench', *sys.argv[1:]])}", err=True
        )
        raise typer.Exit(128 + stop.signal)
    results = store.results()
    typer.echo(summary_table(results))
    write(results, store.root / "report", catalogue=catalogue)
    say()
    say(f"Report: {store.root / 'report'}")
    if any(record.status == "failed" for record in results.records.values()):
        raise typer.Exit(1)


def _local(
    jobs: str, per_gpu: int, place: Place, store: Store, catalogue: Catalogue, without: tuple[str, ...]
) -> Executor:
    """This process for one run at a time on one device, workers otherwise."""
    gpus = torch.cuda.device_count()
    devices = devices_of(jobs_of(jobs, place.device, per_gpu, place.threads, gpus), place.device, gpus)
    if len(devices) == 1:
        return in_this_process(catalogue, replace(place, device=devices[0]))
    tasks = store.work("tasks") / f"{platform.node()}-{os.getpid()}"
    return in_workers(
        devices, Briefing(replace(place, tasks=tasks.absolute()), store.root.absolute(), without), catalogue
    )


def carry_out(
    planned: Planned, store: Store, catalogue: Catalogue, executor: Executor, stop: Stop, quiet: bool
) -> None:
    """Do what is missing, showing how far it is."""
    store.check_room(len(planned.runs))
    outdated = store.outdated()
    store.write_manifest(planned.manifest)
    bury(store)
    rounds = {run.id: int(run.config["federation"]["rounds"]) for run in planned.runs.values()}
    with display(typer.echo, printable, sys.stdout.isatty(), quiet) as shown:
        progress = Progress(planned.manifest, rounds, shown, store)
        try:
            if outdated:
                progress.say(OUTDATED.format(store.root))
            work = Worklist(
                by_task(planned.runs, catalogue),
                store,
                progress.say,
                lambda record: progress.finished(record, reused=True),
            )
            executors.carry_out(work, executor, progress, stop)
        finally:
            progress.close()
            bury(store)


def _explain(planned: Planned, store: Store) -> None:
    """One line a run, and how many of each kind."""
    if store.outdated():
        say(OUTDATED.format(store.root))
    named, counts = planned.manifest.titles, Counter[str]()
    for each in explanations(planned.runs, store):
        counts[each.verdict] += 1
        say(f"{each.verdict:8}  {each.run}  {named[each.run]}: {each.reason}")
    say(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
