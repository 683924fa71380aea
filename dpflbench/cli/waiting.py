"""A line that moves while nothing else can be shown: imports, planning, forecasts.

On a terminal alone, on stderr, and gone when it is over. It has a thread of its own, for what is waited for does not
look up.
"""

import os
import sys
import threading
import time
from types import TracebackType
from typing import Self

PERIOD = 0.2  # seconds between two pictures
AFTER = 0.3  # seconds that nobody needs to be told of
TURNS = "|/-\\"


class Waiting:
    """`planning heterogeneity / 3 s`, until it is over."""

    def __init__(self, what: str, shown: bool = True) -> None:
        self.what = what
        self._began, self._over, self._drawn = time.monotonic(), threading.Event(), False
        moves = shown and sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        self._thread = threading.Thread(target=self._draw, daemon=True) if moves else None

    def __enter__(self) -> Self:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over()

    def over(self) -> None:
        """Remove the line; before anything else is printed."""
        if self._thread is not None and not self._over.is_set():
            self._over.set()
            self._thread.join()
            if self._drawn:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()

    def _draw(self) -> None:
        turn, pause = 0, AFTER
        while not self._over.wait(pause):
            seconds = time.monotonic() - self._began
            sys.stderr.write(f"\r\x1b[K{self.what} {TURNS[turn % len(TURNS)]} {seconds:.0f} s")
            sys.stderr.flush()
            self._drawn, turn, pause = True, turn + 1, PERIOD
