"""`dpflbench run`: options, number of threads and suite, before anything heavy is imported (run_suite.py)."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from dpflbench.cli.options import DataRoot, Device, Overrides, SuiteFile, Without, data_root
from dpflbench.execution.processes import warm_up

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
    from dpflbench.suite import load

    checked = load(suite, overrides or ())  # a typo answers at once
    if jobs != "1" and executor == "local" and not explain:
        warm_up()
    from dpflbench.cli.run_suite import run_suite

    run_suite(
        checked,
        out=out or Path("results") / checked.name,
        root=data_root(data),
        without=tuple(without or ()),
        device=device,
        threads=threads,
        jobs=jobs,
        jobs_per_gpu=jobs_per_gpu,
        ray=address if executor == "ray" else None,
        explain=explain,
        quiet=quiet,
    )
