"""Why a run would be reused or repeated: its own record first, then records that were made for the same configuration.

A record is stale when its configuration is asked for but something else its id covers has changed: the sources of
a part or of the harness, a plugin's version, or the data.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dpflbench.canonical import content_digest
from dpflbench.execution.checkpoint import round_of
from dpflbench.planning import Run
from dpflbench.provenance.runs import on_disk
from dpflbench.results.record import Record, RecordError
from dpflbench.results.store import REUSABLE, Store

Verdict = Literal["reused", "repeated", "stale", "new"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What would happen to a run, and why."""

    run: str
    verdict: Verdict
    reason: str


def explain(runs: Mapping[str, Run], store: Store) -> Iterator[Explanation]:
    """One explanation a run; nothing is changed."""
    others = _others(store, runs)
    for run in runs.values():
        verdict, reason = _own(store, run.id)
        if verdict == "new":
            verdict, reason = _stale(run, others) or (verdict, _nearest(run, others) or reason)
        checkpoint = store.checkpoint(run.id)
        if verdict != "reused" and checkpoint.is_file():
            done = round_of(checkpoint.read_bytes())
            reason += f"; goes on from round {done} of {run.config['federation']['rounds']}" if done is not None else ""
        yield Explanation(run.id, verdict, reason)


def stale(runs: Mapping[str, Run], store: Store) -> Iterator[Explanation]:
    """The runs without a record of their own for which there is one that a change has made stale."""
    others = _others(store, runs)
    for run in runs.values() if others else ():
        found = None if store.path(run.id).exists() else _stale(run, others)
        if found is not None:
            yield Explanation(run.id, *found)


def _own(store: Store, run: str) -> tuple[Verdict, str]:
    try:
        record = store.read(run)
    except RecordError as e:
        return "repeated", f"{e}"
    if record is None:
        return "new", "no record"
    if record.status in REUSABLE:
        return "reused", record.status + (f": {record.reason}" if record.reason else "")
    return "repeated", f"it failed: {record.reason}"


def _others(store: Store, runs: Mapping[str, Run]) -> dict[str, list[Record]]:
    """Records that the plan does not ask for, by their configuration's digest; damaged ones cannot say what they
    were.
    """
    found: dict[str, list[Record]] = {}
    for run in store.ids():
        if run in runs:
            continue
        try:
            record = store.read(run)
        except RecordError:
            continue
        if record is not None:
            found.setdefault(content_digest(record.config), []).append(record)
    return found


def _stale(run: Run, others: Mapping[str, list[Record]]) -> tuple[Verdict, str] | None:
    """What has changed since a record of the same configuration; of several the one with the fewest changes."""
    candidates = []
    for record in others.get(content_digest(run.config), ()):
        changes = _changed_sources(run, record)
        before = record.facts.get("data_digest")
        if before is not None and before != run.data_digest:
            changes.append(f"the data changed (digest was {str(before)[:12]}, is {run.data_digest[:12]})")
        candidates.append((len(changes), f"record {record.id}: {'; '.join(changes) or 'made under another id'}"))
    return ("stale", min(candidates)[1]) if candidates else None


def _changed_sources(run: Run, record: Record) -> list[str]:
    """Whose sources are not what they were, and in which modules if the record says what those were."""
    was, now = record.plugins, run.plugins
    parts = [name for name in sorted({*was, *now}) if was.get(name) != now.get(name)]
    modules = record.measured.get("modules")
    known = modules if isinstance(modules, Mapping) else {}
    edited = [name for name, digest in known.items() if on_disk().version(name) != digest]
    if parts and edited and all(name in was and name in now for name in parts):
        return [f"{', '.join(edited)} changed, and with it the sources of {', '.join(parts)}"]
    return [f"{name} was {was.get(name, 'not in use')}, is {now.get(name, 'not in use')}" for name in parts]


def _nearest(run: Run, others: Mapping[str, list[Record]], most: int = 2) -> str:
    """The record of the same algorithm and seed that differs in the fewest settings, if those are few."""
    wanted, best = flat(run.config), (most + 1, "")
    for records in others.values():
        for record in records:
            if record.config.get("seed") != run.config["seed"] or _algorithm(record.config) != _algorithm(run.config):
                continue
            have = flat(record.config)
            differ = [name for name in sorted({*have, *wanted}) if have.get(name) != wanted.get(name)]
            text = ", ".join(
                f"{name} was {have.get(name, 'not set')}, is {wanted.get(name, 'not set')}" for name in differ
            )
            best = min(best, (len(differ), f"like record {record.id} but {text}"))
    return best[1]


def _algorithm(config: Mapping[str, Any]) -> Any:
    given = config.get("algorithm")
    return given.get("name") if isinstance(given, Mapping) else given


def flat(config: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """A nested mapping as dotted paths."""
    out: dict[str, Any] = {}
    for key, value in config.items():
        where = f"{path}.{key}" if path else str(key)
        out.update(flat(value, where) if isinstance(value, Mapping) else {where: value})
    return out
