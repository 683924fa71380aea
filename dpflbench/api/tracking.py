"""What trackers are told: runs as they end, what a report prints of each and nothing else.

A record also holds the key of its noise, what each client released, and facts about its machine: none of that passes
here. A tracker that fails costs no run; it is said once a run and the suite goes on.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import PurePath, PureWindowsPath
from typing import Any

from dpflbench.catalogue import Catalogue
from dpflbench.errors import DpflbenchError
from dpflbench.execution.progress import Display, Snapshot
from dpflbench.execution.stopping import Stop
from dpflbench.interfaces import TrackedRun, Tracker
from dpflbench.results.record import Record
from dpflbench.schema import build, show, suggest

Shown = Callable[[Stop], AbstractContextManager[Display]]
SECRET = ("privacy.noise_key",)
CURVES = ("round", "utility_global", "loss")
FINAL = ("utility_global", "utility_mean_phi", "utility_personal", "loss")


def trackers(asked: Sequence[str | Tracker], catalogue: Catalogue) -> list[Tracker]:
    """The trackers that are asked for, as `NAME`, `NAME:WHERE` or objects; DpflbenchError if one cannot be used."""
    found: list[Tracker] = []
    for each in asked:
        tracker = _named(each, catalogue) if isinstance(each, str) else each
        if not isinstance(tracker, Tracker):
            raise DpflbenchError(f"--track {show(each)}: expected NAME, NAME:WHERE or a tracker with ready and track")
        tracker.ready()
        found.append(tracker)
    return found


def _named(asked: str, catalogue: Catalogue) -> Any:
    name, sign, where = asked.partition(":")
    known = catalogue.parts["trackers"]
    if name not in known:
        raise DpflbenchError(f"--track {name[:60]}: unknown; {suggest(name, known)}")
    problems: list[str] = []
    made = build(known[name].factory, {"to": where} if sign else {}, f"--track {name}", problems)
    if problems:
        raise DpflbenchError("\n".join(problems))
    return made


def tracked(shown: Shown, suite: str, told: Sequence[Tracker]) -> Shown:
    """Where progress is shown, with trackers told of every run that ends or was there already."""

    @contextmanager
    def opened(stop: Stop) -> Iterator[Display]:
        with shown(stop) as display:
            yield Telling(display, suite, told)

    return opened if told else shown


class Telling:
    """A display that tells trackers as well."""

    def __init__(self, display: Display, suite: str, told: Sequence[Tracker]) -> None:
        self.display, self.suite, self.told = display, suite, told

    def say(self, line: str) -> None:
        """Something to know."""
        self.display.say(line)

    def poll(self, snapshot: Callable[[], Snapshot]) -> None:
        """Time passes."""
        self.display.poll(snapshot)

    def finished(self, now: Snapshot, record: Record, label: str, reused: bool) -> None:
        """A run has its record."""
        self.display.finished(now, record, label, reused)
        if "counterfactual" in record.config:  # it explains another, and is in no table
            return
        run = tracked_run(record, self.suite, label)
        for tracker in self.told:
            try:
                tracker.track(run)
            except Exception as e:  # a service that is down costs no run
                reason = (str(e).splitlines() or [""])[0][:200]
                self.say(f"tracker {type(tracker).__name__}: {label} is not sent ({type(e).__name__}: {reason})")


def tracked_run(record: Record, suite: str, title: str) -> TrackedRun:
    """What trackers may know of a record."""
    final = {name: float(record.final[name]) for name in FINAL if name in record.final}
    final |= {n: float(record.facts[n]) for n in ("noise_efficiency", "data_coverage") if _number(record.facts.get(n))}
    if record.private:
        for name in ("epsilon", "epsilon_spent"):
            if name in record.clients and len(record.clients[name]):
                final[f"{name}_max"] = float(record.clients[name].max())
    if _number(record.measured.get("seconds")):
        final["seconds"] = float(record.measured["seconds"])
    rounds = {name: [float(v) for v in record.rounds[name]] for name in CURVES if name in record.rounds}
    return TrackedRun(
        suite=suite,
        key=record.digest[:16],
        title=title,
        algorithm=record.algorithm,
        seed=int(record.config.get("seed", 0)),
        status=record.status,
        config={path: _placeless(v) for path, v in _flat(record.config) if path not in SECRET},
        curve=rounds,
        final={name: value for name, value in final.items() if math.isfinite(value)},
    )


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path → every plain value; a list is its text."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}" if path else str(key))
    elif value is not None:
        yield path, value if isinstance(value, str | int | float | bool) else str(value)


def _placeless(value: Any) -> Any:
    """An absolute path without its folders: they are a machine's own."""
    if not isinstance(value, str) or not (PurePath(value).is_absolute() or PureWindowsPath(value).is_absolute()):
        return value
    return PureWindowsPath(value).name
