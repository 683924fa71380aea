"""Ctrl-C once: finish the round, keep a checkpoint, say how to go on. Twice: stop at once; files are whole all the
same.
"""

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Stop:
    """Whether somebody asked to stop; inside `with` it listens to Ctrl-C and to the TERM signal of batch systems."""

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        """True once somebody asked."""
        return self.signal != 0

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # only there may handlers be set
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._asked)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number
        with contextlib.suppress(OSError):
            os.write(2, b"\nStopping after this round; once more stops at once.\n")  # print is not for signal handlers
