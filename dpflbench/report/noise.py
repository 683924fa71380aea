"""What a report says of the noise its runs were drawn with: what is shared, what could have been known beforehand."""

from collections.abc import Iterable

from dpflbench.report.view import View
from dpflbench.results.record import Record

SERVER = ("algorithm ", "selector ", "aggregator ")  # parts that see messages
ORIGINS = {"pinned": "stands in the suite", "given": "was given on the command line"}


def predictable(record: Record) -> bool:
    """Whether the key of a run's noise was known before the run."""
    return record.facts.get("noise", {}).get("origin") in ORIGINS


def strangers(record: Record) -> list[str]:
    """Server code of a run that is not built in, by distribution and version."""
    found = {source.rpartition(" ")[0] for part, source in record.plugins.items() if part.startswith(SERVER)}
    return sorted(found - {"dpflbench"})


def noise_notes(view: View) -> list[str]:
    """One line on what pairing is left, and one on each reason to be careful."""
    facts = [noise for record in _private(view) if (noise := record.facts.get("noise"))]
    lines = []
    if facts and all(noise["run"] for noise in facts):
        lines.append(
            "Paired by seed: data, budgets, initial model and schedule draws. Noise is independent in every run."
        )
    if any(not noise["run"] for noise in facts):
        lines.append(
            "Paired noise: runs of a seed share it, so that differences vary less. Epsilon holds for one run of this "
            "table alone; two of them show what noise hides."
        )
    for origin in sorted({noise["origin"] for noise in facts} & ORIGINS.keys()):
        lines.append(
            f"Predictable noise: its key {ORIGINS[origin]}, so it was known before the run and whoever knew it can "
            "subtract the noise. Such runs serve to repeat numbers, not to protect anybody."
        )
    return lines


def _private(view: View) -> Iterable[Record]:
    return (record for group in view.groups.values() for record in group.records if record.private)
