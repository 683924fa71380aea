"""The table against the suite it describes: the suite is planned again, and every record is held against its cell.

Needs the installed plugins, no data. What cannot be planned here (a part that is not installed) is a doubt, not a
problem; so are sources that are not this installation's.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpflbench.assembly import Assembly
from dpflbench.canonical import content_digest
from dpflbench.catalogue import Catalogue
from dpflbench.planning import columns_of
from dpflbench.provenance.places import HARNESS
from dpflbench.provenance.runs import sources_of
from dpflbench.report.view import shown_value
from dpflbench.results.cells import Cell, Manifest
from dpflbench.results.record import Record
from dpflbench.results.titles import title
from dpflbench.suite_reading import check
from dpflbench.suite_schema import Normalised, Raw, Suite
from dpflbench.tuning import WAITING, Choices, trial_suite, tuned

Key = tuple[str, str, int]  # coordinates as a digest, label, seed


@dataclass(frozen=True, slots=True)
class Spot:
    """What the suite asks for at one point of its axes under one algorithm."""

    assembly: Assembly | None  # None: it cannot be made here
    sections: Mapping[str, str]  # digest of each section of the configuration
    reason: str = ""  # why its cells stay empty
    doubt: str = ""  # why it cannot be made here
    tuned: Mapping[str, Any] = field(default_factory=dict)  # path → value that its tuning runs give


@dataclass(slots=True)
class Replanned:
    """A suite planned again."""

    places: dict[Key, Spot] = field(default_factory=dict)
    titles: dict[Key, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)  # with the suite, or with the list of cells


def planned_again(manifest: Manifest, catalogue: Catalogue, tuning: Mapping[str, Record]) -> Replanned:
    """The cells that the suite in a manifest has, with what its tuning runs give, and what is wrong with the list of
    cells it comes with.
    """
    table, asked = Replanned(), dict(manifest.suite)
    asked["algorithms"] = [{"use": e["use"], "as": e["label"], "with": e["with"]} for e in asked["algorithms"]]
    for says_nothing_about_results in ("description", "resources"):
        asked.pop(says_nothing_about_results, None)
    asked["report"] = {"value": (asked.get("report") or {}).get("value", "utility")}  # what tuning goes by
    problems: list[str] = []
    suite = check(Normalised(Raw({**asked, "name": "suite"})), "suite", problems)
    if suite is None:
        table.problems = [f"the suite in the manifest: {p}" for p in problems]
        return table
    choices: Choices = {}
    if suite.tune is not None:
        _place(table, trial_suite(suite, suite.tune), catalogue, {})
        choices = tuned(manifest.tuning, list(suite.tune.grid), tuning.get, shown_value(suite.report))
    _place(table, suite, catalogue, choices)
    listed = [*manifest.cells, *manifest.tuning]
    cells = Counter(map(key_of, listed))
    dropped = [table.titles[key] for key in table.places if key not in cells]
    strange = [cell.title for cell in listed if key_of(cell) not in table.places]
    twice = [table.titles.get(key, "?") for key, count in cells.items() if count > 1]
    for what, found in (("not listed", dropped), ("listed and not in the suite", strange), ("listed twice", twice)):
        if found:
            table.problems.append(f"{len(found)} cells are {what}: {'; '.join(found[:3])}")
    return table


def _place(table: Replanned, suite: Suite, catalogue: Catalogue, choices: Choices) -> None:
    """Put what a suite asks for at each point of its axes into the table."""
    for column in columns_of(suite, catalogue, choices):
        made, at = column.assembly, content_digest(column.coordinates)
        sound = made is not None and not column.problems
        doubt = "" if sound else f"it cannot be planned here: {'; '.join(column.problems[:1])}"
        sections = {k: content_digest(v) for k, v in made.config.items() if k != "seed"} if made else {}
        place = Spot(made if sound else None, sections, column.reason, doubt, column.tuned)
        for seed in suite.seeds:
            key = at, column.entry.label, seed
            table.places[key] = place
            table.titles[key] = title(column.entry.label, column.coordinates, seed)


def key_of(cell: Cell) -> Key:
    """Where a cell stands."""
    return content_digest(cell.coordinates), cell.algorithm, cell.seed


def check_empty(cell: Cell, place: Spot) -> list[str]:
    """A cell is called impossible where it is, and for the reason there is."""
    if place.doubt or (cell.run is None and cell.reason == WAITING and not place.reason):
        return []  # nobody knows, or its tuning runs have come since
    if cell.run is None and not place.reason:
        return [f"cell {cell.title}: called impossible ({cell.reason or 'no reason'}), and it is not"]
    if cell.run is not None and place.reason:
        return [f"cell {cell.title}: filled, and yet {place.reason}"]
    return (
        [f"cell {cell.title}: '{cell.reason}'; it is empty because {place.reason}"]
        if cell.reason != place.reason
        else []
    )


def check_place(record: Record, cell: Cell, place: Spot) -> list[str]:
    """The record has the seed, the algorithm and all other settings of the cell it fills, and calls itself that."""
    made, here = place.assembly, f"cell {cell.title}"
    if made is None:
        return []
    problems: list[str] = []
    config = record.config
    if int(config["seed"]) != cell.seed:
        problems.append(f"{here}: filled by a run of seed {config['seed']}")
    for section in sorted({*place.sections, *config} - {"seed"}):
        if section in config and content_digest(config[section]) == place.sections.get(section):
            continue
        if section == "algorithm":
            name = config["algorithm"].get("name")
            problems.append(f"{here}: filled by a run of {name} with other parameters than the suite's")
        else:
            given = ", ".join(f"{path} {value}" for path, value in place.tuned.items())
            tuned_to = f"; its tuning runs give {given}" if given else ""
            problems.append(f"{here}: filled by a run with other {section} settings{tuned_to}")
    named = {"private": (record.private, made.algorithm.private), "algorithm": (record.algorithm, made.algorithm.name)}
    problems += [f"{here}: {k} is {found}, its plugin says {own}" for k, (found, own) in named.items() if found != own]
    return problems


def check_sources(record: Record, place: Spot) -> tuple[list[str], list[str]]:
    """Problems and doubts about the sources a record names: those of its parts, and of this installation?"""
    if place.assembly is None:
        return [], []
    ours, theirs = sources_of(place.assembly), record.plugins
    if ours == theirs:
        return [], []
    if ours[HARNESS] == theirs.get(HARNESS) and set(ours) != set(theirs):
        return [f"sources of {', '.join(sorted(set(ours) ^ set(theirs)))}: named or missing against its parts"], []
    other = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    return [], [f"made with other sources than this installation's: {', '.join(other)}"]
