"""Ctrl-C once: finish the round, keep a checkpoint, say how to go on. Twice: stop at once; files are whole all the
same. A batch system's TERM and the HUP of a closed terminal count like Ctrl-C.
"""

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

HANG_UP = getattr(signal, "SIGHUP", None)  # which Windows has not
SIGNALS = (signal.SIGINT, signal.SIGTERM, *([HANG_UP] if HANG_UP else []))


class Stop:
    """Whether somebody asked to stop; inside `with` it listens to SIGNALS."""

    def __init__(self) -> None:
        self.signal = 0
        self.aloud = True  # whether it says what it was asked; a live view has a place of its own for that
        self._before: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        """True once somebody asked."""
        return self.signal != 0

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # only there may handlers be set
            for number in SIGNALS:
                if number != HANG_UP or signal.getsignal(number) != signal.SIG_IGN:  # nohup: the terminal may go
                    self._before[number] = signal.signal(number, self._asked)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if number == HANG_UP:
            _leave_lost_terminals()
        elif self.signal:
            raise KeyboardInterrupt
        self.signal = self.signal or number  # a closing terminal may say so twice, by itself and through its shell
        if not self.aloud:
            return
        with contextlib.suppress(OSError):
            os.write(2, b"\nStopping after this round; once more stops at once.\n")  # print is not for signal handlers


def _leave_lost_terminals() -> None:
    """From now on what is said to a terminal that is gone goes nowhere, instead of ending the process by an error."""
    for stream in (1, 2):
        try:
            os.write(stream, b"")
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream)
            os.close(nowhere)
