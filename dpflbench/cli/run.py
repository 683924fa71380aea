"""`dpflbench run`: options, number of threads and suite, before anything heavy is imported (run_table.py)."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer

from dpflbench.api.options import Stopped, computing
from dpflbench.cli.options import DataRoot, Device, KernelsOf, Overrides, SuiteFile, Without, data_root
from dpflbench.cli.waiting import Waiting

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
NoiseKey = Annotated[
    str | None,
    typer.Option(
        "--noise-key",
        metavar="HEX",
        help="Key of the noise, to repeat somebody's runs to the bit: it stands in their records. Whoever knows it can "
        "subtract the noise; without this option a results folder draws a key of its own.",
        show_default=False,
    ),
]
Isolated = Annotated[
    bool,
    typer.Option(
        "--isolated/--no-isolated",
        help="Selectors and aggregators in a process that holds no data and no noise key; without, a debugger reaches "
        "them.",
    ),
]
Why = Annotated[bool, typer.Option("--why", help="Also run and print what explains the table.")]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="NAME[:WHERE]",
        help="Also show runs, as they end, in tensorboard:DIR, mlflow:URI or wandb:PROJECT. May be repeated.",
    ),
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
    kernels: KernelsOf = "torch",
    executor: Where = "local",
    address: Address = "auto",
    explain: Explain = False,
    noise_key: NoiseKey = None,
    isolated: Isolated = True,
    why: Why = False,
    track: Track = None,
    quiet: Quiet = False,
) -> None:
    """Run what a suite asks for and is not there yet, then print its table and write its report."""
    with computing(threads):  # read when torch and NumPy are loaded: first of all
        from dpflbench.api.calls import folder_of
        from dpflbench.api.calls import run as run_suite
        from dpflbench.api.drafts import SuiteDraft
        from dpflbench.suite_reading import overridden

        draft = SuiteDraft(*overridden(suite, overrides or ()))  # a typo answers at once
        target, plugins = out or folder_of(draft), tuple(without or ())
        with Waiting(f"{draft.name}: planning", not quiet) as waiting:
            if explain:
                from dpflbench.cli.run_table import show_explanations

                show_explanations(draft.checked, target, data_root(data), plugins, waiting)
                return
            try:
                folder = run_suite(
                    draft,
                    target,
                    jobs=jobs,
                    jobs_per_gpu=jobs_per_gpu,
                    threads=threads,
                    kernels=kernels,
                    device=device,
                    data=data,
                    without=plugins,
                    ray=address if executor == "ray" else None,
                    noise_key=noise_key,
                    isolated=isolated,
                    why=why,
                    track=tuple(track or ()),
                    progress=not quiet,
                    ready=waiting.over,
                )
            except Stopped as stopped:
                show_stopped(stopped)
        from dpflbench.cli.run_table import show_results

        show_results(folder, why or draft.checked.report.why)


def show_stopped(stopped: Stopped) -> NoReturn:
    """Say how to go on; exit 128 + n, as shells do."""
    if stopped.at_once:
        typer.echo("Stopped at once: runs under way go on from their last checkpoint, or start over.", err=True)
    typer.echo(f"Stopped; what is done is kept. Go on with:\n  {shlex.join(['dpflbench', *sys.argv[1:]])}", err=True)
    raise typer.Exit(128 + stopped.signal)
