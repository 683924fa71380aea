"""Who left a file behind, and whether that process is still there.

An owner is `<machine>-<pid>-<start>`: a process by its number may long be another one, by its start as well it is
itself. Machines are told apart by name and by their space of process numbers, of which every container has its own.
"""

import hashlib
import os
import platform
from functools import lru_cache
from pathlib import Path

OWNER = r"[0-9a-f]{8}-[0-9]+-[0-9a-f]{8}"
UNKNOWN = "0" * 8  # the start of a process, where the system does not tell


def owner() -> str:
    """This process."""
    return _owner(os.getpid())


def is_gone(who: str) -> bool | None:
    """Whether a process has ended; None: nobody can tell from this machine."""
    machine, pid, start = who.split("-")
    if machine != _machine() or os.name != "posix":  # elsewhere asking for a process may end it
        return None
    return not is_there(int(pid), start)


def is_there(pid: int, start: str = UNKNOWN) -> bool:
    """Whether a process of this machine is there, and the same one if its start is known."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's
        return True
    found = start_of(pid)
    return found is not None and (UNKNOWN in (found, start) or found == start)


def start_of(pid: int) -> str | None:
    """When a process began, as a digest; None for one that has ended and was not collected."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    except (OSError, ValueError):  # no such files here
        return UNKNOWN
    return None if state == "Z" else _digest(f"{boot} {fields[18]}")


@lru_cache(maxsize=1)
def _owner(pid: int) -> str:  # by number: a forked child is another process
    return f"{_machine()}-{pid}-{start_of(pid) or UNKNOWN}"


@lru_cache
def _machine() -> str:
    try:
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        space = 0
    return _digest(f"{platform.node()} {space}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]
