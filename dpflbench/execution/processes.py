"""How worker processes are started. Imports nothing heavy, so that the first one can warm up while a suite is being
planned.
"""

import multiprocessing as mp
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import forkserver, resource_tracker
from typing import Any

from dpflbench.errors import DpflbenchError

WORKER = "dpflbench.execution.workers"


@lru_cache
def context() -> Any:
    """Processes are started afresh, on Linux from one process that has imported everything once and done nothing
    since.
    """
    if not sys.platform.startswith("linux"):
        return mp.get_context("spawn")
    chosen = mp.get_context("forkserver")
    chosen.set_forkserver_preload([WORKER, "scipy.optimize"])
    return chosen


def warm_up() -> None:
    """Let imports begin, on another core."""
    if context().get_start_method() == "forkserver":
        try:
            with signals_held():
                forkserver.ensure_running()
        except OSError as e:
            raise DpflbenchError(
                f"--jobs: no socket for workers in {tempfile.gettempdir()} ({e}); "
                "set TMPDIR to a short path that can be written, or run with --jobs 1"
            ) from None


@contextmanager
def signals_held() -> Iterator[None]:
    """A process started inside never gets Ctrl-C or TERM, not even while it imports; ours wait until the end of the
    block.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # started by the first process otherwise, and it would lift the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
