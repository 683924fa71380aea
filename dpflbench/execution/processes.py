"""How worker processes are started. Imports nothing heavy, so that the first one can warm up while a suite is being
planned.
"""

import contextlib
import multiprocessing as mp
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from multiprocessing import forkserver, resource_tracker, util
from pathlib import Path
from typing import Any

from dpflbench.errors import DpflbenchError
from dpflbench.execution.stopping import SIGNALS
from dpflbench.results.owners import is_gone, owner

WORKER = "dpflbench.execution.workers"
MARK = "dpflbench"  # a file in a folder of ours that says whose it is


@lru_cache
def context() -> Any:
    """Processes are started afresh, on Linux from one process that has imported everything once and done nothing
    since.
    """
    if not sys.platform.startswith("linux"):
        return mp.get_context("spawn")
    chosen = mp.get_context("forkserver")
    chosen.set_forkserver_preload([WORKER, "scipy.optimize"])
    (Path(util.get_temp_dir()) / MARK).write_text(owner(), encoding="ascii")
    return chosen


def warm_up() -> None:
    """Let imports begin, on another core."""
    try:
        if context().get_start_method() == "forkserver":
            with signals_held(), unaddressed():
                forkserver.ensure_running()
    except OSError as e:
        raise DpflbenchError(
            f"--jobs: no socket for workers in {tempfile.gettempdir()} ({e}); "
            "set TMPDIR to a short path that can be written, or run with --jobs 1 --no-isolated"
        ) from None


def bury_sockets() -> None:
    """Remove the folders in which processes that were killed had the socket of their workers; Python names them
    pymp-*, and those of dpflbench are MARKed.
    """
    for mark in Path(tempfile.gettempdir()).glob(f"pymp-*/{MARK}"):
        with contextlib.suppress(OSError, ValueError):
            ours = mark.parent.stat().st_uid == os.getuid()
            if ours and is_gone(mark.read_text(encoding="ascii")):
                shutil.rmtree(mark.parent)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """A process started inside never gets Ctrl-C, TERM or HUP, not even while it imports; ours wait until the end of
    the block.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        resource_tracker.ensure_running()  # started by the first process otherwise; it lifts a part of the mask
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start(process: Any) -> None:
    """Start a process that gets no signals and does not run the user's script again: workers need nothing of it, and
    without `if __name__ == "__main__"` it would start them anew.
    """
    import __main__ as main

    kept = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    try:
        main.__spec__ = None
        main.__dict__.pop("__file__", None)
        with signals_held(), unaddressed():
            process.start()
    finally:
        main.__dict__.update(kept)


@contextlib.contextmanager
def unaddressed() -> Iterator[None]:
    """A process started inside is not told this one's command line: it may name a noise key."""
    before, sys.argv = sys.argv, sys.argv[:1]
    try:
        yield
    finally:
        sys.argv = before
