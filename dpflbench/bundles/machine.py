"""What of a machine must not travel: its name, its user, its folders.

Times, versions, processor and the commit stay: a reader needs them. A traceback goes, and a failure's reason loses its
folders. Where a path is part of what a run's id covers (a data set by an absolute path) nothing can be left out, and
the bundle is refused.
"""

import getpass
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpflbench.errors import DpflbenchError
from dpflbench.results.record import Record

# what of `measured` a reader needs
KEPT = (
    "seconds",
    "cpu_seconds",
    "gradient_seconds",
    "round_seconds",
    "round_gradient_seconds",
    "samples_per_second",
    "started",
    "device",
    "threads",
    "kernels",
    "versions",
    "machine",
    "platform",
    "processor",
    "commit",
    "reference_seconds",
    "numerics",
    "cpu",
    "modules",
    "isolation",
    "leftovers",
    "odd_noise",
    "resumed_at",
)
# a path from the top: of this system, of Windows, of a home folder, of a share; up to the last folder in it
ABSOLUTE = re.compile(
    r"(?<![\w.…/\\])(?<!https:)(?<!http:)(?:~?[/\\]|[A-Za-z]:[/\\]|file://)(?:[^\s'\"<>:;,]*[/\\])?(?=[\w.])"
)
LEFT_OUT = "…/"  # stands for the folders of a path


def without_machine(record: Record) -> Record:
    """The record as it may travel."""
    measured = {name: record.measured[name] for name in KEPT if name in record.measured}
    return replace(record, measured=measured, reason=ABSOLUTE.sub(LEFT_OUT, record.reason))


def check_places(value: Any, where: str, named: Mapping[str, str] | None = None) -> None:
    """DpflbenchError where a value holds an absolute path, or one of the `named` texts of a machine."""
    for path, text in _texts(value):
        if path != "suite.description" and (found := ABSOLUTE.search(text)):
            raise DpflbenchError(
                f"{where}: {path}: an absolute path, {text[found.start() :][:100]!r}; allowed: paths relative to the "
                "suite, for ids cover them: run the suite again with one"
            )
        for what, private in (named or {}).items():
            if private in text:
                raise DpflbenchError(
                    f"{where}: {path}: holds {what}, {private!r}; allowed: nothing private of a machine"
                )


def this_machine(results: Path) -> dict[str, str]:
    """What this machine, its user and the folder of the results are called, as far as that tells anything."""
    found = {
        "the name of this machine": platform.node(),
        "the user of this machine": f"{getpass.getuser()}@",
        "the home folder": str(Path.home()),
        "the results folder": str(results.resolve()),
        "the working folder": str(Path.cwd()),
    }
    return {what: text for what, text in found.items() if len(text) > 4 and text not in ("localhost", "@")}


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every text in plain data with its place, keys too."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield path, str(key)
            yield from _texts(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _texts(item, f"{path}[{i}]")
