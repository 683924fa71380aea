"""Suites carried out by real processes that can be killed: a forked child needs no seconds of imports."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from places import place

from dpflbench import suite_reading as suites
from dpflbench.api.run_suite import carry_out as _carry_out
from dpflbench.api.showing import shown
from dpflbench.catalogue import Catalogue
from dpflbench.execution.executors import in_this_process
from dpflbench.execution.stopping import Stop
from dpflbench.planning import Planned, plan_suite
from dpflbench.results.record import loads
from dpflbench.results.store import Store


def planned_of(body: Mapping[str, Any], folder: Path, catalogue: Catalogue) -> Planned:
    """The runs of a suite mapping, by way of a file."""
    path = folder / "suite.yaml"
    path.write_text(yaml.safe_dump(dict(body)), encoding="utf-8")
    return plan_suite(suites.load(path), catalogue, None)


def carry_out(
    planned: Planned, store: Store, catalogue: Catalogue, stop: Stop | None = None, quiet: bool = True
) -> None:
    """What `dpflbench run` does between planning and reporting, one run at a time in this process."""
    store.check_room(len(planned.runs))
    _carry_out(planned, store, catalogue, in_this_process(catalogue, place()), stop or Stop(), shown(not quiet))


def fork(act: Callable[[], None]) -> int:
    """The id of a child process that does it and exits with 0, or with 1 and a traceback."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    try:
        act()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def ended(child: int, seconds: float) -> int | None:
    """How a child ended: its exit code, minus the number of the signal that killed it; None if it is still there after
    so long.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return None


def kill(child: int) -> None:
    """SIGKILL, and wait until it is gone."""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def digests(store: Store) -> dict[str, str]:
    """Record digests by run; every file that looks like a record must be a whole one."""
    return {
        path.stem: loads(path.read_text(encoding="utf-8"), str(path)).digest
        for path in (store.root / "records").glob("*.json")
    }
