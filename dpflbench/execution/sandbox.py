"""What a process of server code may touch: its own memory, the pipe it talks through, installed Python code to read.

Linux keeps that promise by Landlock (5.13 and later), without any rights: no file can be written or executed, none read
outside Python's own folders (so neither data folders nor results folders with their noise key), no other process can be
looked into, from Linux 6.12 on none be signalled, and no TCP connection be made. Elsewhere a process of its own is all
there is. What no sandbox can keep: a plugin may carry data of its own, a public data set among it.
"""

import ctypes
import os
import struct
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

READ_FILE, READ_DIR = 1 << 2, 1 << 3
FILES_BY_ABI = (13, 14, 15, 15, 16)  # bits of file access that versions 1, 2, … of Landlock know
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, the same on every processor
NO_NEW_PRIVILEGES = 38
SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/proc/self",
    "/proc/cpuinfo",
    "/sys/devices/system/cpu",
    "/dev/null",
    "/dev/urandom",
)


def abi() -> int:
    """The version of Landlock this kernel has; 0: none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(_libc().syscall(CREATE_RULESET, None, 0, 1)))


def enter() -> str:
    """Shut this process in for good; what keeps it there."""
    version = abi()
    if not version:
        return "process"
    files = (1 << FILES_BY_ABI[min(version, len(FILES_BY_ABI)) - 1]) - 1
    wanted = [files, 3 if version >= 4 else 0, 3 if version >= 6 else 0]  # files, TCP, sockets and signals
    attributes = struct.pack("<3Q", *wanted)[: 8 if version < 4 else 16 if version < 6 else 24]
    libc = _libc()
    rules = libc.syscall(CREATE_RULESET, attributes, len(attributes), 0)
    if rules < 0:
        return "process"
    try:
        for path, access in _readable():
            _allow(libc, rules, path, access)
        shut = not libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) and not libc.syscall(RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)
    return f"process, Landlock {version}" if shut else "process"


def _readable() -> Iterator[tuple[str, int]]:
    """Installed code; of a source tree on the path the packages and modules alone, for results may lie beside them."""
    installed = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()}
    for folder in sorted({*SYSTEM, *installed}):
        yield folder, READ_FILE | READ_DIR
    for folder in {str(Path(entry or ".").resolve()) for entry in sys.path} - installed:
        if any(Path(folder).is_relative_to(known) for known in installed):
            continue
        yield folder, READ_DIR
        for inside in sorted(Path(folder).iterdir()) if os.path.isdir(folder) else ():
            if inside.suffix in (".py", ".so") or (inside / "__init__.py").exists():
                yield str(inside), READ_FILE | READ_DIR
        if folder.endswith(".zip"):
            yield folder, READ_FILE


def _allow(libc: ctypes.CDLL, rules: int, path: str, access: int) -> None:
    """Reading below a path; one that is not there needs no rule."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        allowed = access if os.path.isdir(path) else access & READ_FILE
        libc.syscall(ADD_RULE, rules, 1, struct.pack("<Qi", allowed, handle), 0)
    finally:
        os.close(handle)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
