"""`dpflbench run`: a suite to records and a report. Does what is missing; the same command again goes on where it
stopped.
"""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dpflbench.cli.options import DataRoot, Device, Overrides, SuiteFile, Without, data_root

if TYPE_CHECKING:
    from dpflbench.catalogue import Catalogue
    from dpflbench.execution.executors import Executor
    from dpflbench.execution.prepare import Place
    from dpflbench.execution.stopping import Stop
    from dpflbench.plan import Planned
    from dpflbench.results.store import Store

Out = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="DIR", help="Results folder.  [default: results/<suite name>]")
]
Jobs = Annotated[
    str, typer.Option("--jobs", "-j", metavar="N|auto", help="Runs at a time, each in a process of its own.")
]
JobsPerGpu = Annotated[int, typer.Option("--jobs-per-gpu", min=1, help="Runs at a time on one GPU with --jobs auto.")]
Threads = Annotated[
    int,
    typer.Option("--threads", min=1, help="Threads of one run. Part of the result: another number, other last bits."),
]
Where = Annotated[
    Literal["local", "ray"], typer.Option("--executor", help="This machine, or a Ray cluster (extra 'ray').")
]
Address = Annotated[
    str, typer.Option("--address", help="The Ray cluster: auto for the one of this machine, or host:port.")
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Say of each run whether it is there, and if not why; run nothing.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the table.")]


def run(
    suite: SuiteFile,
    out: Out = None,
    overrides: Overrides = None,
    data: DataRoot = None,
    device: Device = "auto",
    without: Without = None,
    jobs: Jobs = "1",
    jobs_per_gpu: JobsPerGpu = 1,
    threads: Threads = 1,
    executor: Where = "local",
    address: Address = "auto",
    explain: Explain = False,
    quiet: Quiet = False,
) -> None:
    """Run what a suite asks for and is not there yet, then print its table and write its report."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        os.environ[name] = str(threads)  # read when torch and NumPy are loaded, here and in workers: first of all
    from dpflbench import suite as suites

    checked = suites.load(suite, overrides or ())  # before anything heavy is imported: a typo answers at once
    if jobs != "1" and executor == "local" and not explain:
        from dpflbench.execution.processes import warm_up

        warm_up()
    from dpflbench.catalogue import load
    from dpflbench.execution.prepare import Place
    from dpflbench.execution.stopping import Stop
    from dpflbench.plan import device_of, plan_suite
    from dpflbench.results.store import Store

    catalogue, root = load(without or ()), data_root(data)
    planned = plan_suite(checked, catalogue, root)
    store = Store(out or Path("results") / checked.name)
    if explain:
        _explain(planned, store)
        return
    place, stop = Place(root, device_of(device), threads), Stop()
    if executor == "ray":
        from dpflbench.execution.ray_cluster import on_ray

        chosen = on_ray(address, planned.manifest.suite["resources"], place, catalogue, tuple(without or ()))
    else:
        chosen = _local(jobs, jobs_per_gpu, place, store, catalogue, tuple(without or ()))
    try:
        _carry_out(planned, store, catalogue, chosen, stop, quiet)
    except KeyboardInterrupt:
        stop.signal = stop.signal or 2
        typer.echo("Stopped at once: runs under way go on from their last checkpoint, or start over.", err=True)
    if stop.requested:
        typer.echo(
            f"Stopped; what is done is kept. Go on with:\n  {shlex.join(['dpflbench', *sys.argv[1:]])}", err=True
        )
        raise typer.Exit(128 + stop.signal)
    _report(store, catalogue)


def _local(
    jobs: str, per_gpu: int, place: "Place", store: "Store", catalogue: "Catalogue", without: tuple[str, ...]
) -> "Executor":
    """This process for one run at a time on one device, workers otherwise."""
    import platform
    from dataclasses import replace

    import torch

    from dpflbench.execution.executors import devices_of, in_this_process, jobs_of
    from dpflbench.execution.workers import Setting, in_workers

    gpus = torch.cuda.device_count()
    devices = devices_of(jobs_of(jobs, place.device, per_gpu, place.threads, gpus), place.device, gpus)
    if len(devices) == 1:
        return in_this_process(catalogue, replace(place, device=devices[0]))
    tasks = store.work("tasks") / f"{platform.node()}-{os.getpid()}"
    return in_workers(
        devices, Setting(replace(place, tasks=tasks.absolute()), store.root.absolute(), without), catalogue
    )


def _carry_out(
    planned: "Planned", store: "Store", catalogue: "Catalogue", executor: "Executor", stop: "Stop", quiet: bool
) -> None:
    """Do what is missing, showing how far it is."""
    from dpflbench.cli.output import printable
    from dpflbench.execution.display import display
    from dpflbench.execution.executors import carry_out
    from dpflbench.execution.progress import Progress, bury
    from dpflbench.execution.worklist import Worklist, by_task

    store.check_room(len(planned.runs))
    store.write_manifest(planned.manifest)
    bury(store)
    rounds = {run.id: int(run.config["federation"]["rounds"]) for run in planned.runs.values()}
    with display(typer.echo, printable, sys.stdout.isatty(), quiet) as shown:
        progress = Progress(planned.manifest, rounds, shown, store)
        try:
            work = Worklist(
                by_task(planned.runs, catalogue),
                store,
                progress.say,
                lambda record: progress.finished(record, reused=True),
            )
            carry_out(work, executor, progress, stop)
        finally:
            progress.close()
            bury(store)


def _explain(planned: "Planned", store: "Store") -> None:
    """One line a run, and how many of each kind."""
    from collections import Counter

    from dpflbench.cli.output import printable
    from dpflbench.execution.explain import explain
    from dpflbench.execution.progress import labels

    named, counts = labels(planned.manifest), Counter[str]()
    for each in explain(planned.runs, store):
        counts[each.verdict] += 1
        typer.echo(printable(f"{each.verdict:8}  {each.run}  {named.get(each.run, '')}: {each.reason}"))
    typer.echo(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


def _report(store: "Store", catalogue: "Catalogue") -> None:
    """The table here, the report on disk; exit 1 if a run of it failed."""
    from dpflbench.cli.output import printable
    from dpflbench.report.write import summary_table, write_report

    results = store.results()
    typer.echo(summary_table(results))
    write_report(results, store.root / "report", catalogue=catalogue)
    typer.echo(f"\nReport: {printable(store.root / 'report')}")
    if any(record.status == "failed" for record in results.records.values()):
        raise typer.Exit(1)
