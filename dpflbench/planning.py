"""Suite to runs: each point of the axes resolved and checked, paired seeds, content-addressed ids, impossible cells
with a reason.

Where a suite is tuned, what its reported runs are follows from the records of its tuning runs: as long as those are not
all there, a plan has the tuning runs and cells that wait.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpflbench.assembly import Assembly, Known, assemble
from dpflbench.canonical import content_digest
from dpflbench.catalogue import Catalogue
from dpflbench.errors import SuiteError
from dpflbench.interfaces import PLAIN
from dpflbench.provenance.runs import sources_of
from dpflbench.report.sections import build_section
from dpflbench.report.view import shown_value
from dpflbench.results.cells import Cell, Manifest
from dpflbench.schema import plain
from dpflbench.suite_reading import at
from dpflbench.suite_schema import CASE, AlgorithmEntry, Canonical, Normalised, Raw, Suite
from dpflbench.tasks.datasets import located
from dpflbench.tuning import WAITING, Choices, Read, refusal, trial_suite, tuned


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its id and all that determines its outcome."""

    id: str
    config: Canonical
    plugins: Mapping[str, str]  # digests of the sources of the harness and of each part
    data_digest: str
    assembly: Assembly | None = field(default=None, compare=False, repr=False)  # where it was planned

    def __reduce__(self) -> tuple[Any, ...]:
        """What another process gets: no parts, for it has plugins of its own."""
        return Run, (self.id, self.config, self.plugins, self.data_digest)


@dataclass(frozen=True, slots=True)
class Planned:
    """The cells of a suite's table and the runs that fill them, each once; with the runs it is tuned by."""

    manifest: Manifest
    runs: Mapping[str, Run]

    @property
    def waits(self) -> bool:
        """Whether more will be planned once the runs there are have ended."""
        return any(cell.reason == WAITING for cell in self.manifest.cells)


@dataclass(frozen=True, slots=True)
class Resolved:
    """One point of the axes under one algorithm, for all seeds."""

    coordinates: Mapping[str, Any]
    entry: AlgorithmEntry
    assembly: Assembly | None  # None: there are problems
    reason: str  # why its cells stay empty
    problems: tuple[str, ...]
    tuned: Mapping[str, Any] = field(default_factory=dict)  # path → value that was chosen for it


def columns_of(suite: Suite, catalogue: Catalogue, choices: Choices | None = None) -> Iterator[Resolved]:
    """Every point of the axes under every algorithm, resolved and checked; needs no data. With choices each algorithm
    has what it was tuned to, or a reason why not.
    """
    known: Known = {}
    for values in itertools.product(*suite.axes.values()):
        coordinates, problems = dict(zip(suite.axes, values, strict=True)), list[str]()
        untuned, key = at(suite.base, suite.settings(coordinates), problems), content_digest(coordinates)
        for entry in suite.entries:
            found, here = list(problems), choices.get((key, entry.label)) if choices is not None else None
            chosen = here.chosen.values if here is not None and here.chosen is not None else {}
            point = at(untuned, chosen, found) if chosen else untuned
            given = {"algorithm": {"name": entry.use, **entry.given}, "evaluate": plain(suite.evaluate), "seed": 0}
            config = Normalised(Raw({**point, **given}))
            assembly = assemble(config, catalogue, found, f"algorithms[{entry.index}].with", known)
            reason = _impossible(assembly, suite, entry, found) if assembly else ""
            reason = reason or (here.reason if here is not None else "")
            yield Resolved(coordinates, entry, assembly, reason, tuple(found), chosen)


def nothing(run: str) -> None:
    """No record is known."""


def plan_suite(suite: Suite, catalogue: Catalogue, root: Path | None, read: Read = nothing) -> Planned:
    """Every cell of the suite's table and every run it needs; SuiteError lists all problems, DataError says what data
    is missing. What was tuned is taken from records that `read` knows.
    """
    problems: list[str] = []
    for i, asked in enumerate(suite.report.sections):
        build_section(asked, catalogue, f"report.sections[{i}]", problems)
    columns = list(columns_of(suite, catalogue))
    problems += [problem for column in columns for problem in column.problems]
    suite = _named_as_in_its_frame(suite, columns)
    relations = {a.neighbours for a in (c.assembly for c in columns) if a is not None and a.algorithm.private}
    if len(relations) > 1:
        problems.append(
            f"privacy.neighbours: {' and '.join(sorted(relations))} in one table, whose epsilons are not comparable; "
            "allowed: one of them, the same in every column"
        )
    if suite.tune is not None:
        problems += [why for c in columns if c.assembly is not None and (why := refusal(c.assembly.task))]
    if problems:
        raise SuiteError([f"{suite.where}: {p}" for p in dict.fromkeys(problems)])
    runs: dict[str, Run] = {}
    trials: list[Cell] = []
    if suite.tune is not None:
        first = plan_suite(trial_suite(suite, suite.tune), catalogue, root)
        runs, trials = dict(first.runs), list(first.manifest.cells)
        choices = tuned(trials, list(suite.tune.grid), read, shown_value(suite.report))
        columns = list(columns_of(suite, catalogue, choices))
    table: list[Cell] = []
    digests: dict[str, str] = {}
    for column in columns:
        coordinates, assembly = column.coordinates, column.assembly
        entry = next(e for e in suite.entries if e.index == column.entry.index)
        if assembly is None or column.reason:
            table += [Cell(coordinates, entry.label, seed, None, column.reason) for seed in suite.seeds]
            continue
        key = content_digest(assembly.config["task"]["dataset"])
        if key not in digests:
            digests[key] = located(assembly.task.dataset, suite.folder, root).digest(root)
        for seed in suite.seeds:
            seeded = assembly.with_seed(seed)
            run = replace(make_run(seeded.config, seeded, digests[key]), assembly=seeded)
            runs[run.id] = run
            table.append(Cell(coordinates, entry.label, seed, run.id))
    return Planned(Manifest(suite.name, _describe(suite), table, trials), runs)


def count_runs(suite: Suite, catalogue: Catalogue) -> int:
    """How many runs a suite needs, without a look at its data."""
    possible = (c.assembly for c in columns_of(suite, catalogue) if c.assembly is not None and not c.reason)
    return len({content_digest(assembly.config) for assembly in possible}) * len(suite.seeds)


def _named_as_in_its_frame(suite: Suite, columns: Sequence[Resolved]) -> Suite:
    """The suite with labels of local training (DP-FedAvg for DPSGD) where no column is without it."""
    known = {entry.label: entry.label for entry in suite.entries}
    for entry in suite.entries:
        made = [c.assembly for c in columns if c.entry is entry and c.assembly is not None]
        given = entry.label.removeprefix(entry.use)  # nothing, or its parameters; a label of the suite's own stays
        if not made or entry.label == given or not all(a.federation.local.ruled for a in made):
            continue
        label = made[0].algorithm.local_name + given
        if made[0].algorithm.local_name and label not in known:
            known[entry.label] = label
    baseline = suite.report.baseline
    if isinstance(baseline, str):
        baseline = known.get(baseline, baseline)
    elif baseline is not None:
        baseline = [known.get(name, name) for name in baseline]
    entries = [replace(entry, label=known[entry.label]) for entry in suite.entries]
    return replace(suite, entries=entries, report=replace(suite.report, baseline=baseline))


def _impossible(assembly: Assembly, suite: Suite, entry: AlgorithmEntry, problems: list[str]) -> str:
    """Why a cell stays empty; an error instead when no axis could have helped."""
    why, about = _gap(assembly)
    if not why:
        return ""
    sections = {path.partition(".")[0] for path in about}
    if any(path.startswith(about) or path in sections for path in suite.varied):
        return f"{entry.use} {why}"
    problems.append(f"algorithms[{entry.index}]: {entry.use} {why}")
    return ""


def _gap(assembly: Assembly) -> tuple[str, tuple[str, ...]]:
    """Why an algorithm has no place here, and the keys that could give it one."""
    algorithm, privacy = assembly.algorithm, assembly.privacy
    if (algorithm.trains or algorithm.rule != PLAIN) and not assembly.federation.local.ruled:
        why = "trains at clients, and here they take one full step; needs federation.local: minibatch"
        return why, ("federation.local",)
    if why := assembly.frame.gap(algorithm):
        return why, ("privacy.trust", "privacy.unit", "federation.cohorts")
    allowed = algorithm.mechanisms
    if not algorithm.private or privacy is None or allowed is None or privacy.mechanism.name in allowed:
        return "", ()
    why = f"is defined for {' and '.join(sorted(allowed))} noise only, not for {privacy.mechanism.name}"
    return why, ("privacy.mechanism",)


def make_run(config: Canonical, assembly: Assembly, data_digest: str) -> Run:
    """The run of a canonical configuration; its id covers configuration, sources and data."""
    sources = sources_of(assembly)
    return Run(content_digest([config, sources, data_digest])[:20], config, sources, data_digest)


def _describe(suite: Suite) -> dict[str, Any]:
    """The suite as recorded beside its results."""
    return {
        "name": suite.name,
        "description": suite.description,
        **plain(suite.base),
        "axes": plain({path: values for path, values in suite.axes.items() if path != CASE}),
        **({"cases": plain(suite.cases)} if suite.cases else {}),
        "seeds": list(suite.seeds),
        **({"tune": {"seeds": suite.tune.seeds, **plain(suite.tune.grid)}} if suite.tune else {}),
        "algorithms": [{"label": e.label, "use": e.use, "with": plain(e.given)} for e in suite.entries],
        "report": plain(suite.report),
        "evaluate": plain(suite.evaluate),
        "resources": plain(suite.resources),
    }


@lru_cache
def device_of(name: str) -> str:
    """`auto` resolved to the best device there is; a device that is not there is refused."""
    import torch

    from dpflbench.errors import DpflbenchError

    here = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return "cuda" if here["cuda"] else "mps" if here["mps"] else "cpu"
    if not here.get(name.partition(":")[0], False):
        raise DpflbenchError(
            f"--device {name}: not available here; available: {', '.join(k for k, ok in here.items() if ok)}"
        )
    return name
