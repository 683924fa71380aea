"""The version of a suite, as a digest: what two tables must share so that their rows can stand in one.

It covers the settings of every column with all defaults, whatever the algorithm; the seeds; what is shown; and of the
first seed of every column the data, the split and the initial model as they came out. Name, description, algorithms
and the sources of the harness are not in it: a row may be another's, and a repaired comment makes no new table. What
the digest cannot see beforehand (another split at a later seed) `federations_apart` finds between two tables.
"""

from dpflbench.canonical import content_digest
from dpflbench.errors import DpflbenchError
from dpflbench.judges.matched import SHARED
from dpflbench.report.view import Column, View, view
from dpflbench.results.cells import Results
from dpflbench.results.record import SCHEMA

SETTINGS = ("task", "federation", "evaluate", "privacy")
START = ("data_digest", "split_digest", "initial_model")
DIGITS = 12  # of a version where people read it


def suite_version(results: Results, where: str) -> str:
    """The version of the suite that results are of; DpflbenchError where they are too few to tell."""
    seen = view(results)
    columns = sorted(_column(seen, column, where) for column in seen.columns)
    return content_digest([SCHEMA, columns, sorted(seen.seeds), seen.value])


def federations_apart(first: Results, other: Results) -> str:
    """What two tables of one version do not share although they should; empty if they share everything."""
    for thing, (among, value) in SHARED.items():
        known: dict[str, str] = {}
        for record in (*first.records.values(), *other.records.values()):
            try:
                key, own = among(record), value(record)
            except (KeyError, TypeError, ValueError, IndexError, AttributeError):
                continue
            if key is not None and own is not None:
                own = content_digest(own)
                if known.setdefault(content_digest(key), own) != own:
                    return thing
    return ""


def _column(seen: View, column: Column, where: str) -> str:
    """The digest of one column: its place, its settings, and where its first seed starts; of one that no algorithm
    here is defined for, its place alone.
    """
    endings = [e for group in seen.in_column(column) for e in group.endings]
    if all(e.status == "impossible" for e in endings):
        return content_digest([column.key])
    records = [e.record for e in endings if e.record is not None]
    settings = {k: v for r in sorted(records, key=lambda r: r.private) for k, v in r.config.items() if k in SETTINGS}
    if not any(r.private for r in records):
        settings.pop("privacy", None)  # what an algorithm without privacy clips by is its own affair
    begun = [r for r in records if r.config["seed"] == min(seen.seeds) and r.facts]
    if not begun:
        raise DpflbenchError(f"{where}: no run of {column.title}, seed {min(seen.seeds)} has begun: nothing to go by")
    return content_digest([column.key, settings, {name: begun[0].facts.get(name) for name in START}])
