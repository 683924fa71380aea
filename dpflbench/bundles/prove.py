"""What of a bundle is true, seen from here: every record verified, and a sample of its runs played again.

The sample is drawn when the bundle is there, so nobody could prepare for it; failed runs whose reason lost its folders
on the way are not in it, for they cannot end at the same text.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from pathlib import Path

from dpflbench.bundles.bundle import Bundle
from dpflbench.bundles.machine import LEFT_OUT
from dpflbench.catalogue import Catalogue
from dpflbench.judges.replay import replay, sample
from dpflbench.judges.verify import Finding, verify
from dpflbench.results.proofs import Proof, proof_of
from dpflbench.results.rulings import Ruling, worst


@dataclass(frozen=True, slots=True)
class Proved:
    """Everything that was found about a bundle."""

    findings: tuple[Finding, ...]
    asked: int  # runs that were to be played again

    @property
    def played(self) -> frozenset[str]:
        """Runs that were played again and ended at the same bits."""
        return frozenset(f.run for f in self.findings if f.replayed is not None and f.replayed.same)

    @property
    def level(self) -> Proof:
        """The level of the whole bundle: that of its weakest run."""
        return self.level_of({f.run for f in self.findings})

    def level_of(self, runs: Container[str]) -> Proof:
        """The level of some of its runs; a table that is not its suite's spoils them all."""
        found = [f for f in self.findings if not f.run or f.run in runs]
        return proof_of(worst(_without_replay(f) for f in found), sum(run in runs for run in self.played))


def _without_replay(finding: Finding) -> Ruling:
    """What is ruled on a run; a replay that could not be judged here takes nothing away from its recount."""
    differs = finding.replayed is not None and finding.replayed.differs
    return finding.ruling if differs else replace(finding, replayed=None).ruling


def prove(
    bundle: Bundle,
    catalogue: Catalogue,
    count: int | None,
    seed: int,
    root: Path | None = None,
    isolated: bool = True,
    told: Callable[[Finding], None] = lambda finding: None,
) -> Proved:
    """What verification and so many replays (None: of all runs) find; `told` hears of each finding as it is made.

    Server code, perhaps the submitter's, is played apart from data, noise key and the record it should come to.
    """
    results = bundle.results
    fit = [run for run, record in results.records.items() if LEFT_OUT not in record.reason]
    chosen, findings = sample(fit, count, seed), list[Finding]()
    for finding in verify(results, catalogue, lambda record: replay(record, catalogue, root, isolated), chosen):
        told(finding)
        findings.append(finding)
    return Proved(tuple(findings), len(chosen))
