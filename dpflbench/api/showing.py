"""Where progress is shown: a terminal, a log, or the output of a notebook's cell."""

import contextlib
import html
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from dpflbench.execution.display import REFRESH, STOPPING, Quiet, display, finished_line, running_row, summary
from dpflbench.execution.progress import Display, Snapshot
from dpflbench.execution.stopping import Stop
from dpflbench.results.record import Record
from dpflbench.results.titles import printable

HEADS = ("running", "round", "utility", "rounds/s")


def shown(progress: bool = True) -> Callable[[Stop], AbstractContextManager[Display]]:
    """Progress in the notebook this is called from, or on standard output; without progress only what went wrong."""
    kernel = _kernel()
    if progress and kernel is not None:
        return partial(_in_cell, kernel)
    return lambda stop: display(_echo, printable, sys.stdout.isatty(), not progress, stop)


def _kernel() -> Any:
    """IPython's display functions, if a notebook's kernel runs this; it is loaded then already."""
    loaded = sys.modules.get("IPython")
    shell = loaded.get_ipython() if loaded is not None else None
    return sys.modules.get("IPython.display") if hasattr(shell, "kernel") else None


def _echo(line: str) -> None:
    """Print a line, if somebody takes it: a pipe or a terminal that is gone costs no run."""
    with contextlib.suppress(OSError):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


@contextmanager
def _in_cell(kernel: Any, stop: Stop) -> Iterator[Display]:
    cell = Notebook(kernel, stop)
    try:
        yield cell
    finally:
        cell.draw(None)


class Notebook(Quiet):
    """A bar and the running runs below a cell, drawn over themselves; what went wrong stays, line by line."""

    def __init__(self, kernel: Any, stop: Stop) -> None:
        super().__init__(lambda line: _echo(printable(line)))
        self.kernel, self.stop, self.last = kernel, stop, time.monotonic()
        self.handle = kernel.display(kernel.HTML("planned"), display_id=True)
        self.now: Snapshot | None = None

    def finished(self, now: Snapshot, record: Record, label: str, reused: bool) -> None:
        """A line for what did not go well; the rest is in the counts."""
        self.now = now
        if record.status != "done" and not reused:
            self.say(finished_line(now, record, label, reused))

    def poll(self, snapshot: Callable[[], Snapshot]) -> None:
        """Draw again."""
        if time.monotonic() - self.last >= REFRESH:
            self.last, self.now = time.monotonic(), snapshot()
            self.draw(self.now)

    def draw(self, now: Snapshot | None) -> None:
        """How far it is; None: it is over."""
        if now is None and self.now is not None:
            self.now.running = []
        if self.now is not None:
            self.handle.update(self.kernel.HTML(picture_html(self.now, STOPPING if self.stop.requested else "")))


def picture_html(now: Snapshot, note: str = "") -> str:
    """A snapshot as HTML; names in it come from strangers."""
    rows = "".join(
        f"<tr>{''.join(f'<td>{html.escape(printable(text))}</td>' for text in running_row(row)[: len(HEADS)])}</tr>"
        for row in now.running
    )
    heads = "".join(f"<th>{head}</th>" for head in HEADS)
    table = f"<table><tr>{heads}</tr>{rows}</table>" if rows else ""
    words = " ".join(filter(None, (summary(now), note)))
    bar = f'<progress max="{max(now.total, 1)}" value="{now.finished}"></progress>'
    return f"{table}<div>{bar} {html.escape(printable(words))}</div>"
