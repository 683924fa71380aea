"""A bundle: the records of a results folder, its manifest and suite, who it is from, and a digest of everything, in one
archive without anything private of the machine.

bundle.json          what it is: format, source, version of its suite, date, versions, and the digest of every file
suite.json           the manifest: resolved suite and every cell of its table
suite.yaml           the same suite as a file that can be run
records/<id>.json    one record a run

What explains a table (`run --why`) is left out. The noise key is in the records: see NOISE_KEY.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpflbench.bundles.archive import pack, unpack
from dpflbench.bundles.machine import check_places, this_machine, without_machine
from dpflbench.bundles.version import DIGITS, suite_version
from dpflbench.canonical import MAX_RECORD_BYTES
from dpflbench.errors import DpflbenchError
from dpflbench.report.page import suite_text
from dpflbench.report.view import view
from dpflbench.results.cells import Manifest, Problem, Results
from dpflbench.results.record import Record, RecordError, dumps, loads
from dpflbench.results.store import Store, manifest_of, manifest_text

FORMAT = 1
SUFFIX = ".dpflbench.tar.xz"
MAX_SOURCE = 200
NOISE_KEY = (
    "It holds the key of its noise, without which no run can be played again: whoever has the bundle and messages of "
    "these runs can subtract the noise. No message is in it; for data that is not public, publish neither."
)
LIBRARIES = ("dpflbench", "python", "torch", "numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Somebody's results, as they arrived."""

    path: Path
    digest: str  # of bundle.json, which has those of everything else
    source: str  # who it is from, in their words
    version: str  # of its suite
    date: str  # of its last run
    commits: tuple[str, ...]  # of dpflbench, where it ran from a checkout
    versions: Mapping[str, str]
    results: Results

    @property
    def name(self) -> str:
        """What its suite is called, with the version."""
        return f"{self.results.manifest.name} {self.version[:DIGITS]}"


def make(folder: Path, source: str) -> bytes:
    """The bundle of a results folder; DpflbenchError if runs are missing or something private could not be left out."""
    results = Store(folder).results()
    if results.problems:
        raise DpflbenchError(f"{results.problems[0].text}; `dpflbench run` does that run again")
    _check_untuned(results.manifest, str(folder))
    missing = [run for run in results.manifest.runs if run not in results.records]
    if missing:
        raise DpflbenchError(
            f"{folder}: {len(missing)} runs are not there (yet); `dpflbench run` of its suite does them"
        )
    if not source.isprintable() or len(source) > MAX_SOURCE:
        raise DpflbenchError(f"--source {source[:60]!r}: allowed: up to {MAX_SOURCE} printable signs")
    records = {run: without_machine(results.records[run]) for run in results.manifest.runs}
    results = replace(results, records=records, counterfactuals={})
    named = this_machine(folder)
    check_places({"suite": results.manifest.suite, "source": source}, str(folder), named)
    for run, record in records.items():
        check_places(_spoken(record), f"{folder}: run {run}", named)
    files = {
        "suite.json": manifest_text(results.manifest).encode(),
        "suite.yaml": suite_text(view(results)).encode(),
        **{f"records/{run}.json": dumps(record).encode() for run, record in records.items()},
    }
    about = {"format": FORMAT, "source": source, **_summary(results, str(folder)), "files": _digests(files)}
    files["bundle.json"] = (json.dumps(about, indent=1, sort_keys=True) + "\n").encode()
    return pack(files)


def read(path: Path) -> Bundle:
    """The bundle in a file; DpflbenchError in one line if it is none, is damaged, or says of itself what is not so."""
    files = unpack(path)
    try:
        about = json.loads(files["bundle.json"])
        source, listed = about["source"], dict(about["files"])
        if about["format"] != FORMAT:
            raise DpflbenchError(f"{path}: format {about['format']!r:.20} of bundles; this version reads {FORMAT}")
        if not isinstance(source, str) or not source.isprintable() or len(source) > MAX_SOURCE:
            raise ValueError("its source is no short text")
        manifest = manifest_of(files["suite.json"].decode(), f"{path}: suite.json")
        _check_untuned(manifest, str(path))
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise DpflbenchError(f"{path}: not a bundle ({type(e).__name__}: {str(e)[:100]})") from None
    found = _digests({name: content for name, content in files.items() if name != "bundle.json"})
    if found != listed:
        odd = sorted(n for n in {*found, *listed} if found.get(n) != listed.get(n))
        raise DpflbenchError(f"{path}: {odd[0]:.60} is not the file that bundle.json lists: it was changed or damaged")
    strange = {f"records/{run}.json" for run in manifest.runs} ^ {name for name in found if name.startswith("records/")}
    if strange:
        raise DpflbenchError(f"{path}: {min(strange):.60}: the records are not those of the runs in suite.json")
    results = _results(path, files, manifest)
    check_places({"suite": manifest.suite, "source": source}, str(path))
    summary = _summary(results, str(path))
    wrong = sorted(name for name, value in summary.items() if about.get(name) != value)
    if wrong:
        raise DpflbenchError(
            f"{path}: bundle.json: {wrong[0]} is {about.get(wrong[0])!r:.60}, its records say otherwise"
        )
    return Bundle(
        path=path,
        digest=hashlib.sha256(files["bundle.json"]).hexdigest(),
        source=source,
        version=summary["suite_version"],
        date=summary["date"],
        commits=tuple(summary["commits"]),
        versions={name: ", ".join(values) for name, values in summary["versions"].items()},
        results=results,
    )


def _results(path: Path, files: Mapping[str, bytes], manifest: Manifest) -> Results:
    """The records of a bundle, all arrays together no larger than one record may be."""
    records, problems, room = dict[str, Record](), list[Problem](), [MAX_RECORD_BYTES]
    for run in manifest.runs:
        where = f"{path}: records/{run}.json"
        try:
            record = loads(files[f"records/{run}.json"].decode(errors="replace"), where, room)
            if record.id != run:
                raise RecordError(f"{where}: holds the record of {record.id[:60]}")
            check_places(_spoken(record), where)
            records[run] = record
        except RecordError as e:
            problems.append(Problem(run, str(e)))
    return Results(manifest, records, tuple(problems))


def _check_untuned(manifest: Manifest, where: str) -> None:
    """DpflbenchError for a tuned table: settings differ from row to row there, so its suite has no one version."""
    if manifest.tuning:
        raise DpflbenchError(
            f"{where}: a tuned table; allowed in a bundle: suites whose settings are the same in every row"
        )


def _spoken(record: Record) -> dict[str, Any]:
    """All of a record that can hold a text."""
    names = ("reason", "config", "algorithm", "facts", "notes", "plugins", "measured")
    return {name: getattr(record, name) for name in names}


def _digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}


def _summary(results: Results, where: str) -> dict[str, Any]:
    """What bundle.json says of records, from the records."""
    measured = [record.measured for record in results.records.values()]
    ends = [float(m["started"]) + float(m.get("seconds", 0)) for m in measured if _is_number(m.get("started"))]
    versions = [m.get("versions") for m in measured]
    return {
        "name": results.manifest.name,
        "suite_version": suite_version(results, where),
        "runs": len(results.records),
        "date": datetime.fromtimestamp(max(ends), UTC).strftime("%Y-%m-%d") if ends else "",
        "commits": sorted({str(m["commit"]) for m in measured if m.get("commit")}),
        "versions": {
            name: sorted({str(v[name]) for v in versions if isinstance(v, dict) and name in v}) for name in LIBRARIES
        },
    }


def _is_number(value: object) -> bool:
    """Whether it is a moment that a calendar has."""
    return isinstance(value, int | float) and 0 <= value < 1e11
