"""Locks: held by one process at a time, and free again when it ends, however it ends.

They are the system's (`flock`), which frees them itself, wherever a file system has such locks. Where it has none, and
says so by one of NO_LOCKS, a lock is a lease: a file beside it that names its holder (machine, process, start) and is
touched every third of LEASE. It is free as soon as a process of the same machine finds its holder gone, and for other
machines once it was not touched for LEASE seconds of their own clock, whatever the clocks say of each other. A process
that was stopped for longer may find its run taken over when it goes on; both then write the same record.
"""

import contextlib
import errno
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLease, Timeout

NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP}
LEASE = 60.0  # seconds
FOREVER = -1.0


class Lock:
    """The lock of a file name. One that waits shall ask the same object again: it remembers what it has seen."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: BaseFileLock = FileLock(path, thread_local=False, fallback_to_soft=False)

    def acquire(self, patience: float = 0.0) -> bool:
        """Whether it is ours now, after at most so many seconds; OSError if there can be no lock."""
        try:
            self._acquire(patience)
        except Timeout:
            return False
        return True

    def release(self) -> None:
        """Let go of it."""
        self._lock.release()

    def remove(self) -> None:
        """Let go of it, and its file is not needed any more; whoever waits for it finds out by itself."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        self._lock.release()

    def _acquire(self, patience: float) -> None:
        if not isinstance(self._lock, SoftFileLease):
            try:
                self._lock.acquire(timeout=patience)
            except OSError as e:
                if e.errno not in NO_LOCKS:
                    raise
                lease = self.path.with_suffix(".lease")
                self._lock = SoftFileLease(lease, thread_local=False, lease_duration=LEASE)
            else:
                return
        self._lock.acquire(timeout=patience)
