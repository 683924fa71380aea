"""`dpflbench verify`: is a results folder what it says? Records one by one, then each in its place, then column by
column.

Works offline on anybody's folder: records, manifest and the installed dpflbench are all it needs.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dpflbench.canonical import content_digest
from dpflbench.catalogue import Catalogue
from dpflbench.errors import DpflbenchError
from dpflbench.judges.recount import Recount, recount
from dpflbench.results.record import Record
from dpflbench.results.titles import coordinates

if TYPE_CHECKING:
    from dpflbench.results.cells import Cell, Results

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about one run (or, with an empty id, about a column of the table)."""

    run: str
    label: str  # title of its first cell
    summary: str
    problems: tuple[str, ...] = ()
    missing: bool = False
    accountants: tuple[str, ...] = ()  # who agreed on its epsilons: two, or one only; nobody where none was promised


def verify(results: "Results", catalogue: Catalogue) -> Iterator[Finding]:
    """A finding for every run of the table, for every unreadable record and for every column that is not matched."""
    cells: dict[str, list[Cell]] = defaultdict(list)
    columns: dict[str, list[Cell]] = defaultdict(list)
    for cell in results.manifest.cells:
        columns[content_digest([cell.coordinates, cell.seed])].append(cell)
        if cell.run is not None:
            cells[cell.run].append(cell)
    for run, places in cells.items():
        record = results.records.get(run)
        if record is None:
            if not any(problem.run == run for problem in results.problems):
                yield Finding(run, places[0].title, "not there (yet)", missing=True)
            continue
        found = _guarded(partial(recount, record, catalogue), lambda why: Recount((why,)))
        place = partial(check_place, record, places, results.manifest.suite)
        problems = (*found.problems, *_guarded(place, _alone))
        summary = "" if problems else _summary(record, found.accountants)
        yield Finding(run, places[0].title, summary, problems, accountants=found.accountants)
    yield from (Finding(p.run, "unreadable record", "", (p.text,)) for p in results.problems)
    for column in columns.values():
        records = {
            c.algorithm: results.records[c.run] for c in column if c.run is not None and c.run in results.records
        }
        unmatched = _guarded(partial(check_column, records), _alone)
        if unmatched:
            where = coordinates(column[0].coordinates) or "all"
            yield Finding("", f"column {where}, seed {column[0].seed}", "", tuple(unmatched))


def check_place(record: Record, places: "Sequence[Cell]", suite: Mapping[str, Any]) -> list[str]:
    """The record must have the seed, algorithm, coordinates and all other settings of every cell it fills."""
    from dpflbench.suite import normalise, set_path

    config = record.config
    entries = {e["label"]: e for e in suite.get("algorithms", ())}
    problems: list[str] = []
    for cell in places:
        here = f"cell {cell.title}"
        if int(config["seed"]) != cell.seed:
            problems.append(f"{here}: filled by a run of seed {config['seed']}")
        entry = entries.get(cell.algorithm)
        if entry is None or not _agrees({"name": entry["use"], **entry["with"]}, config["algorithm"]):
            problems.append(
                f"{here}: filled by a run of {config['algorithm'].get('name')} with other parameters than the suite's"
            )
        point = normalise({k: suite[k] for k in ("task", "federation", "privacy") if k in suite})
        for path, value in cell.coordinates.items():
            set_path(point, path, value, path, problems)
        for section, asked in normalise(point).items():
            if section == "privacy":
                if not record.private:
                    continue  # a run without privacy stands in every privacy column
                asked = _privacy(asked, config["privacy"])
            if not _agrees(asked, config.get(section)):
                problems.append(f"{here}: filled by a run with other {section} settings")
    return problems


def _privacy(asked: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The privacy section as it applies to one mechanism: its own clip bound, and no delta where noise is pure."""
    clip = asked.get("clip")
    own = {"clip": clip.get(found["mechanism"]["name"]) if isinstance(clip, Mapping) else clip}
    return {k: v for k, v in asked.items() if k != "delta" or "delta" in found} | own


def check_column(records: Mapping[str, Record]) -> list[str]:
    """All runs of one column and seed must share data, split, initial model and configuration; the private ones also
    budgets.
    """
    problems: list[str] = []
    known = {name: r for name, r in records.items() if r.facts}
    private = {name: r for name, r in known.items() if r.private}
    everybody = ("data_digest", "split_digest", "initial_model", "task", "federation", "n_examples")
    for group, things in ((known, everybody), (private, ("privacy", "epsilon", "delta"))):
        for thing in things:
            seen: dict[str, str] = {}
            for name, record in group.items():
                seen.setdefault(content_digest(_thing(record, thing)), name)
            if len(seen) > 1:
                problems.append(f"{thing} differs between {' and '.join(list(seen.values())[:3])}")
    return problems


def _thing(record: Record, name: str) -> Any:
    return next((part[name] for part in (record.config, record.clients, record.facts) if name in part), None)


def _agrees(asked: Any, found: Any) -> bool:
    """Whether a resolved value is what a suite asked for: defaults may be left out, and YAML may have kept a number as
    text.
    """
    if isinstance(asked, Mapping):
        return isinstance(found, Mapping) and all(_agrees(v, found.get(k)) for k, v in asked.items())
    if isinstance(asked, list | tuple):
        return isinstance(found, list | tuple) and len(asked) == len(found) and all(map(_agrees, asked, found))
    if isinstance(found, Mapping):
        return asked in (found.get("name"), found.get("kind"))
    if isinstance(asked, str) and isinstance(found, float):
        return float(asked) == found
    return bool(asked == found)


def _guarded(check: Callable[[], T], odd: Callable[[str], T]) -> T:
    """What a check finds; a record too odd to be checked is a finding as well."""
    try:
        return check()
    except DpflbenchError as e:
        return odd(str(e))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as e:
        return odd(f"cannot be checked ({type(e).__name__}: {e})")


def _alone(problem: str) -> list[str]:
    return [problem]


def _summary(record: Record, accountants: Sequence[str]) -> str:
    if record.status != "done":
        return f"{record.status}: {record.reason}"
    if not record.private:
        return "no privacy promised"
    share = np.max(record.clients["epsilon_spent"] / record.clients["epsilon"])
    who = f"{accountants[0]} alone" if len(accountants) == 1 else " and ".join(accountants)
    return f"{len(record.events['client'])} releases, at most {share:.4f} of an epsilon budget spent, by {who}"
