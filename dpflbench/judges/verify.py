"""`dpflbench verify`: is a results folder what it says? The table against its suite, each record by itself and in its
place, and runs against each other.

Works offline on anybody's folder: records, manifest and the installed dpflbench are all it needs. What it can never
find is listed by `dpflbench verify --help`.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dpflbench.catalogue import Catalogue
from dpflbench.errors import DpflbenchError
from dpflbench.judges.exposed import remark, spoilt
from dpflbench.judges.matched import unmatched
from dpflbench.judges.places import Replanned, check_empty, check_place, check_sources, key_of, planned_again
from dpflbench.judges.recount import Recount, recount
from dpflbench.judges.replay import Replayed
from dpflbench.results.record import Record
from dpflbench.results.rulings import Ruling, Verdict
from dpflbench.tuning import WAITING, column_of

if TYPE_CHECKING:
    from dpflbench.results.cells import Cell, Manifest, Results

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found about one run (or, with an empty id, about the table)."""

    run: str
    label: str  # title of its first cell
    status: str  # how the run ended; empty if it is not there
    summary: str = ""
    problems: tuple[str, ...] = ()  # what is wrong
    doubts: tuple[str, ...] = ()  # what could not be verified
    accountants: tuple[str, ...] = ()  # who agreed on its epsilons: two, or one only; nobody where none was promised
    replayed: Replayed | None = None  # None: it was not played again

    @property
    def missing(self) -> bool:
        """Whether there is no record (yet) and nothing to say of it."""
        return not self.status and not self.problems

    @property
    def ruling(self) -> Ruling:
        """The finding as others use it."""
        differs, doubts = (self.replayed.differs, self.replayed.doubts) if self.replayed else ((), ())
        doubts = (*self.doubts, *doubts)
        verdict: Verdict = (
            "irreproducible" if differs else "wrong" if self.problems else "unverified" if doubts else "ok"
        )
        return Ruling(verdict, (*differs, *self.problems, *doubts))


Again = Callable[[Record], Replayed]


def verify(
    results: "Results",
    catalogue: Catalogue,
    again: Again | None = None,
    which: Container[str] = (),
    patience: float = math.inf,
) -> Iterator[Finding]:
    """A finding for every run of the table and of its tuning, for every unreadable record, and for the table if it is
    not right.

    Runs named in `which` are played again by `again` (see judges.replay). Second accountants are asked until that took
    `patience` CPU seconds: about runs in the order of their ids, which is as good as drawn.
    """
    began = time.process_time()
    manifest, records = results.manifest, {**results.tuning, **results.records}
    every = [*manifest.tuning, *manifest.cells]
    cells: dict[str, list[Cell]] = defaultdict(list)
    for cell in every:
        if cell.run is not None:
            cells[cell.run].append(cell)
    table = _guarded(partial(planned_again, manifest, catalogue, results.tuning), lambda why: Replanned(problems=[why]))
    wrong = [*table.problems, *(p for cell in every for p in _cell_problems(cell, table))]
    if wrong:
        yield Finding(run="", label="the table", status="", problems=tuple(wrong))
    apart = unmatched(records, manifest.titles)
    for run, places in cells.items() if math.isinf(patience) else sorted(cells.items()):
        record = records.get(run)
        if record is not None:
            ask = time.process_time() - began < patience
            finding = _finding(record, places, table, apart.get(run, []), catalogue, ask)
            yield replace(finding, replayed=again(record)) if again is not None and run in which else finding
        elif not any(problem.run == run for problem in results.problems):
            yield Finding(run=run, label=places[0].title, status="", summary="not there (yet)")
    for cell in manifest.cells:
        if cell.run is None and cell.reason == WAITING:
            yield Finding(run="", label=cell.title, status="", summary=WAITING)
    for problem in results.problems:
        yield Finding(run=problem.run, label="unreadable record", status="", problems=(problem.text,))


def rulings(results: "Results", catalogue: Catalogue, patience: float = math.inf) -> dict[str, Ruling]:
    """What is ruled on every run that has a record, readable or not: what a table marks and a gate asks for.

    A table that is not its suite's spoils them all, a tuning run that is wrong all runs it had a part in.
    """
    findings = [f for f in verify(results, catalogue, patience=patience) if not f.missing]
    table = tuple(p for finding in findings if not finding.run for p in finding.problems)
    found = {f.run: Ruling("wrong", (*f.problems, *table, *f.doubts)) if table else f.ruling for f in findings if f.run}
    for run, reasons in _badly_tuned(results.manifest, found).items():
        if run in found and found[run].verdict in ("ok", "unverified"):
            found[run] = Ruling("wrong", (*reasons, *found[run].reasons))
    return found


def _badly_tuned(manifest: "Manifest", found: Mapping[str, Ruling]) -> dict[str, list[str]]:
    """Reported run → what is wrong with the runs it was tuned by."""
    paths = [path for path in manifest.suite.get("tune") or {} if path != "seeds"]
    spoilt: dict[tuple[str, str], list[str]] = {}
    for cell in manifest.tuning:
        ruling = found.get(cell.run or "")
        if ruling is not None and ruling.verdict in ("wrong", "irreproducible"):
            spoilt.setdefault(column_of(cell, paths), []).append(f"tuning {cell.title}: {ruling.reasons[0]}")
    return {
        cell.run: spoilt[column]
        for cell in manifest.cells
        if cell.run is not None and (column := column_of(cell, ())) in spoilt
    }


def _cell_problems(cell: "Cell", table: Replanned) -> list[str]:
    place = table.places.get(key_of(cell))
    return check_empty(cell, place) if place is not None else []


def _finding(
    record: Record, places: "Sequence[Cell]", table: Replanned, apart: Sequence[str], catalogue: Catalogue, ask: bool
) -> Finding:
    """All that is said of one run."""
    problems, doubts = list[str](), list[str]()
    found = _guarded(partial(recount, record, catalogue, ask), lambda why: Recount((why,)))
    for cell in places:
        place = table.places.get(key_of(cell))
        if place is None:
            continue
        problems += _guarded(partial(check_place, record, cell, place), _alone)
        wrong, odd = check_sources(record, place)
        problems, doubts = problems + wrong, doubts + odd + ([place.doubt] if place.doubt else [])
    problems, doubts = [*found.problems, *problems, *apart, *spoilt(record)], [*found.doubts, *doubts]
    if len(found.accountants) == 1:
        doubts.append(f"epsilon by {found.accountants[0]} alone: it has no second opinion")
    return Finding(
        run=record.id,
        label=places[0].title,
        status=record.status,
        summary="" if problems else "; ".join(filter(None, [_summary(record, found.accountants), remark(record)])),
        problems=tuple(dict.fromkeys(problems)),
        doubts=tuple(dict.fromkeys(doubts)),
        accountants=found.accountants,
    )


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
        return record.reason
    if not record.private:
        return "no privacy promised"
    if not accountants:
        return f"{len(record.events['client'])} releases that nobody here can price"
    share = np.max(record.clients["epsilon_spent"] / record.clients["epsilon"])
    who = f"{accountants[0]} alone" if len(accountants) == 1 else " and ".join(accountants)
    return f"{len(record.events['client'])} releases, at most {share:.4f} of an epsilon budget spent, by {who}"
