"""The calls of `import dpflbench as db`: plan a suite, run it. Each imports what it needs when it is made."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpflbench.api.drafts import SuiteDraft, suite
from dpflbench.api.options import computing, data_root
from dpflbench.errors import DpflbenchError
from dpflbench.execution.processes import warm_up
from dpflbench.keys import key_of

if TYPE_CHECKING:
    from dpflbench.api.folders import ResultsFolder
    from dpflbench.api.plan_table import SuitePlan
    from dpflbench.federation.gradients import Kernels
    from dpflbench.interfaces import Tracker

SuiteLike = str | Path | Mapping[str, Any] | SuiteDraft


def plan(
    given: SuiteLike,
    *,
    data: str | Path | None = None,
    without: Sequence[str] = (),
    results: str | Path | None = None,
    rows: int = 200,
    kernels: "Kernels" = "torch",
) -> "SuitePlan":
    """The runs of a suite, planned uses, noise scales, privacy cost, and how long it takes; nothing is trained but a
    few timed rounds.

    data     folder with data sets; $DPFLBENCH_DATA if not given
    without  plugins to go on without
    results  folder whose records say how long runs take; results/<suite name> if not given
    rows     how many cells of the first seed are forecast; 0: all
    kernels  torch or native, as for `run`
    """
    draft = suite(given)
    _check_kernels(kernels)
    warm_up()
    from dpflbench.api.plan_table import plan_table

    folder = Path(results) if results is not None else folder_of(draft)
    return plan_table(draft.checked, data_root(data), tuple(without), results=folder, rows=rows, kernels=kernels)


def run(
    given: SuiteLike,
    out: str | Path | None = None,
    *,
    jobs: int | str = 1,
    jobs_per_gpu: int = 1,
    threads: int = 1,
    kernels: "Kernels" = "torch",
    device: str = "auto",
    data: str | Path | None = None,
    without: Sequence[str] = (),
    ray: str | None = None,
    noise_key: str | None = None,
    isolated: bool = True,
    why: bool = False,
    track: "Sequence[str | Tracker]" = (),
    progress: bool = True,
    ready: Callable[[], None] = lambda: None,
) -> "ResultsFolder":
    """The results of a suite, with what was missing done; the same call again does nothing twice. Runs that fail are
    in the results with their reason; KeyboardInterrupt if somebody stops it, what is done is kept.

    out           results folder; results/<suite name> if not given
    jobs          runs at a time, each in a process of its own, or `auto`; jobs_per_gpu: on one GPU with `auto`
    threads       of one run: part of the result
    kernels       what computes convolutions on a CPU, torch or native: part of the result
    device        auto, cpu, cuda, cuda:N or mps
    data, without as for `plan`
    ray           address of a Ray cluster (`auto`: of this machine) instead of this machine alone
    noise_key     key of the noise in hexadecimal, to repeat somebody's runs to the bit
    isolated      selectors and aggregators in a process that holds no data and no noise key
    why           also run what explains the table
    track         where runs are shown as they end: `tensorboard:DIR`, `mlflow:URI`, `wandb:PROJECT`, or objects
    progress      shown in the notebook or on standard output
    ready         called when the runs are planned, before the first begins
    """
    draft = suite(given)
    key = None if noise_key is None else key_of(noise_key, "--noise-key")
    if threads < 1:
        raise DpflbenchError(f"--threads {threads}: allowed: 1 or more")
    _check_kernels(kernels)
    with computing(threads):
        if (str(jobs) != "1" or isolated) and ray is None:
            warm_up()
        from dpflbench.api.run_suite import run_suite
        from dpflbench.api.showing import shown
        from dpflbench.api.tracking import tracked, trackers
        from dpflbench.catalogue import load

        told = trackers(track, load(without)) if track else []

        return run_suite(
            draft.checked,
            out=Path(out) if out is not None else folder_of(draft),
            root=data_root(data),
            without=tuple(without),
            device=device,
            threads=threads,
            kernels=kernels,
            jobs=str(jobs),
            jobs_per_gpu=jobs_per_gpu,
            ray=ray,
            noise_key=key,
            isolated=isolated,
            why=why,
            shown=tracked(shown(progress), draft.name, told),
            ready=ready,
        )


def _check_kernels(kernels: str) -> None:
    if kernels not in ("torch", "native"):
        raise DpflbenchError(f"--kernels {kernels}: allowed: torch or native")


def folder_of(draft: SuiteDraft) -> Path:
    """Where the results of a suite go if nobody says."""
    return Path("results") / draft.name
