"""Where this process runs: the commit of its source tree, if that is a checkout, and the processor by name.

Both are for people who read a report; no id and no digest of a result covers them.
"""

import functools
import platform
import subprocess
from pathlib import Path

PATIENCE = 10.0  # seconds for git, which may sit on a slow disk


@functools.cache
def commit() -> str | None:
    """The commit this package runs from, with -dirty if tracked files differ from it; None if it is installed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):  # no git here, or not our repository: then it is not known
        return None
    return found.stdout.strip() or None


@functools.cache
def processor() -> str:
    """The name of the processor, as the system has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, names), "") or platform.processor() or platform.machine()
