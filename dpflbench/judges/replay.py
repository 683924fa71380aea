"""`verify --replay`: a run played again from its record, with the noise key in it, must end at the same bits.

What is compared is the record's digest: everything but what was measured. Along the way the noise is examined
(`privacy.residuals`) on a sample of rounds, and held against the scales in the ledger. A machine that computes other
last bits, or another device, leaves a run that ends elsewhere unverified and not irreproducible.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dpflbench.assembly import Assembly
from dpflbench.canonical import content_digest
from dpflbench.catalogue import Catalogue
from dpflbench.errors import DataError, DpflbenchError
from dpflbench.execution.attempt import Place, assembly_of, execute
from dpflbench.execution.prepare import threads
from dpflbench.execution.yardstick import numerics
from dpflbench.federation.gradients import Kernels, chosen, kernels, library
from dpflbench.judges.coherence import EXACT
from dpflbench.planning import Run
from dpflbench.privacy.residuals import LIMIT, Tape, examine, shadowed
from dpflbench.results.record import Record
from dpflbench.suite_schema import Canonical, Normalised, Raw

PARTS = ("status", "reason", "final", "rounds", "clients", "events", "notes", "facts", "private", "algorithm")


@dataclass(frozen=True, slots=True)
class Replayed:
    """What playing a run again showed; all empty: it ends at the same bits."""

    differs: tuple[str, ...] = ()  # it ends elsewhere, or its noise is none of its law
    doubts: tuple[str, ...] = ()  # why that proves nothing, or why it could not be played
    residuals: int = 0  # draws of noise that were examined

    @property
    def same(self) -> bool:
        """Whether it was played and ended at the same bits, with noise of its law."""
        return not self.differs and not self.doubts


def sample(runs: Sequence[str], count: int | None, seed: int) -> list[str]:
    """Some of the runs, drawn by a seed; all of them for None."""
    if count is None or count >= len(runs):
        return list(runs)
    chosen = np.random.default_rng(seed).choice(len(runs), count, replace=False)
    return [runs[i] for i in sorted(chosen)]


def replay(record: Record, catalogue: Catalogue, root: Path | None = None, isolated: bool = False) -> Replayed:
    """The run of a record played again on this machine's CPU; `isolated`: server code in a process of its own, which
    does not know what it should come to.
    """
    config = Canonical(Normalised(Raw(dict(record.config))))
    run = Run(record.id, config, record.plugins, str(record.facts.get("data_digest", "")))
    try:
        assembly = assembly_of(run, catalogue)
        here = assembly.task.dataset.digest(root)
    except DataError as e:
        return Replayed(doubts=(f"not played again: {e}",))
    except DpflbenchError as e:
        return Replayed(doubts=(f"not played again: {str(e).splitlines()[0]}",))
    if record.facts and here != run.data_digest:
        return Replayed(doubts=("not played again: the data here is not the data it had",))
    noise, cores = record.facts.get("noise") or {}, int(record.measured.get("threads", 1))
    place = Place(root=root, threads=cores, kernels=_kernels(record), save_every=float("inf"), isolated=isolated)
    if noise:
        place = replace(place, noise_key=bytes.fromhex(noise["key"]), noise_origin=noise["origin"])
    tape = _tape(record)
    again = execute(replace(run, data_digest=here, assembly=_shadowed(assembly, tape)), catalogue, place)
    odd = _noise(again, assembly, tape)
    if again.digest == record.digest or odd:
        return Replayed(tuple(odd), (), tape.size)
    other = [name for name in PARTS if content_digest(getattr(again, name)) != content_digest(getattr(record, name))]
    where = f"played again it ends elsewhere: {', '.join(other)} differ"
    if again.status != record.status:
        where += f"; {again.status} ({again.reason}) and not {record.status}" if again.reason else f"; {again.status}"
    unlike = _unlike(record, cores)
    return Replayed((), (f"{where}; {unlike}",), tape.size) if unlike else Replayed((where,), (), tape.size)


def _kernels(record: Record) -> Kernels:
    """Those it ran with, if this machine can make them."""
    if not str(record.measured.get("kernels", "torch")).startswith("native"):
        return "torch"
    try:
        library()
    except DpflbenchError:
        return "torch"
    return "native"


def _unlike(record: Record, cores: int) -> str:
    """Why this machine need not compute the same bits; empty if it must."""
    if record.measured.get("device") != "cpu":
        return f"it ran on {record.measured.get('device')}, here on a CPU"
    with threads(cores), kernels(_kernels(record)):
        same = record.measured.get("numerics") == numerics(cores)
        if same and record.measured.get("kernels", "torch") != chosen():
            made = (
                "another compiler or processor made them" if chosen() != "torch" else "native ones cannot be made here"
            )
            return f"kernels differ: {made}"
    versions = record.measured.get("versions", {})
    return "" if same else f"numerics differ: it ran on another processor or version (torch {versions.get('torch')})"


def _tape(record: Record) -> Tape:
    """A tape that keeps a sample of rounds, spread evenly, if all would be too much."""
    federation, facts = record.config["federation"], record.facts
    width = int(facts.get("dim", 1)) + int(facts.get("phi_dim", 0))
    total = int(federation["rounds"]) * int(federation["cohort"]) * max(1, width)
    every = max(1, -(-total // LIMIT))
    return Tape(lambda call: call % every == 0)


def _shadowed(assembly: Assembly, tape: Tape) -> Assembly:
    if assembly.privacy is None or not assembly.algorithm.private:
        return assembly
    return replace(assembly, privacy=replace(assembly.privacy, mechanism=shadowed(assembly.privacy.mechanism, tape)))


def _noise(again: Record, assembly: Assembly, tape: Tape) -> list[str]:
    """What is wrong with the noise of a run that was played again."""
    if assembly.privacy is None or not again.events:
        return []
    charged = len(np.unique(again.events["round"])) - (again.status != "done")  # the last may have broken off
    if tape.calls < charged:
        return [f"{charged} rounds were charged, and only {tape.calls} releases passed the mechanism"]
    if not tape.kept:
        return []
    found = examine(tape, assembly.privacy.mechanism.law)
    odd = [f"its noise is not what its ledger says ({test.name}): {test.about}" for test in found.alarms]
    drawn = np.concatenate([scale for *_, scale in tape.kept])
    trust, federation = assembly.frame.trust, assembly.federation
    among = federation.cohort if federation.cohorts == "exact" else federation.clients
    counted = drawn if trust.rows else drawn * math.sqrt(trust.counted(among))  # the ledger has what is counted on
    charged_for = np.sort(again.events["scale"])
    near = charged_for[np.clip(np.searchsorted(charged_for, counted * (1 - EXACT)), 0, len(charged_for) - 1)]
    if not (np.isin(drawn, charged_for).all() if trust.rows else np.isclose(counted, near, rtol=2 * EXACT).all()):
        odd.append("its noise was drawn at scales that are not in its ledger")
    return odd
