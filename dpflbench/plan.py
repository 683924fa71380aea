"""Suite to runs: each point of the axes resolved and checked, paired seeds, content-addressed ids, impossible cells
with a reason.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpflbench.assembly import Assembly, assemble
from dpflbench.canonical import content_digest
from dpflbench.catalogue import Catalogue
from dpflbench.errors import SuiteError
from dpflbench.provenance.runs import sources_of
from dpflbench.report.sections import build_section
from dpflbench.results.cells import Cell, Manifest
from dpflbench.schema import plain
from dpflbench.suite import at
from dpflbench.suite_schema import AlgorithmEntry, Canonical, Normalised, Raw, Suite


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
    """The cells of a suite's table and the runs that fill them, each once."""

    manifest: Manifest
    runs: Mapping[str, Run]


def plan_suite(suite: Suite, catalogue: Catalogue, root: Path | None) -> Planned:
    """Every cell of the suite's table and every run it needs; SuiteError lists all problems, DataError says what data
    is missing.
    """
    problems: list[str] = []
    for i, asked in enumerate(suite.report.sections):
        build_section(asked, catalogue, f"report.sections[{i}]", problems)
    columns: list[tuple[dict[str, Any], AlgorithmEntry, Assembly | None, str]] = []
    for values in itertools.product(*suite.axes.values()):
        coordinates = dict(zip(suite.axes, values, strict=True))
        point = at(suite.base, coordinates, problems)
        for entry in suite.entries:
            given = {"algorithm": {"name": entry.use, **entry.given}, "evaluate": plain(suite.evaluate), "seed": 0}
            config = Normalised(Raw({**point, **given}))
            assembly = assemble(config, catalogue, problems, f"algorithms[{entry.index}].with")
            reason = _impossible(assembly, suite, entry, problems) if assembly else ""
            columns.append((coordinates, entry, assembly, reason))
    if problems:
        raise SuiteError([f"{suite.where}: {p}" for p in dict.fromkeys(problems)])
    runs: dict[str, Run] = {}
    table: list[Cell] = []
    digests: dict[str, str] = {}
    for coordinates, entry, assembly, reason in columns:
        if assembly is None or reason:
            table += [Cell(coordinates, entry.label, seed, None, reason) for seed in suite.seeds]
            continue
        key = content_digest(assembly.config["task"]["dataset"])
        if key not in digests:
            digests[key] = assembly.task.dataset.digest(root)
        for seed in suite.seeds:
            seeded = assembly.with_seed(seed)
            run = replace(make_run(seeded.config, seeded, digests[key]), assembly=seeded)
            runs[run.id] = run
            table.append(Cell(coordinates, entry.label, seed, run.id))
    return Planned(Manifest(suite.name, _describe(suite), table), runs)


def _impossible(assembly: Assembly, suite: Suite, entry: AlgorithmEntry, problems: list[str]) -> str:
    """Why a cell stays empty; an error instead when no axis could have helped."""
    allowed, privacy = assembly.algorithm.mechanisms, assembly.privacy
    if not assembly.algorithm.private or privacy is None or allowed is None or privacy.mechanism.name in allowed:
        return ""
    mechanism = privacy.mechanism
    reason = f"{entry.use} is defined for {' and '.join(sorted(allowed))} noise only, not for {mechanism.name}"
    if any(path.startswith("privacy.mechanism") or path == "privacy" for path in suite.axes):
        return reason
    problems.append(f"algorithms[{entry.index}]: {reason}")
    return ""


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
        "axes": plain(suite.axes),
        "seeds": list(suite.seeds),
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
