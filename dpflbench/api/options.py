"""What calls and commands have in common: the folder with data sets, how many threads compute, how one is stopped."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from dpflbench.errors import DataError

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def data_root(given: str | Path | None) -> Path | None:
    """The folder with data sets: the one given, else the environment's, else none."""
    named = given or os.environ.get("DPFLBENCH_DATA")
    if named and not Path(named).is_dir():
        raise DataError(f"{'--data' if given else '$DPFLBENCH_DATA'}: {named} is not a folder")
    return Path(named) if named else None


@contextlib.contextmanager
def computing(threads: int) -> Iterator[None]:
    """Inside, libraries that are loaded, here and in workers, make that many threads and no more."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class Stopped(KeyboardInterrupt):
    """Somebody asked to stop, by a signal of that number; what is done is kept."""

    def __init__(self, signal: int, at_once: bool) -> None:
        super().__init__("stopped; what is done is kept, the same call goes on from there")
        self.signal, self.at_once = signal, at_once
