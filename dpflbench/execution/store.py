"""Records on disk: one results folder, one file a run under its content id, written atomically.

    RESULTS/suite.json          the manifest: resolved suite and every cell of its table
    RESULTS/records/<id>.json   one record a run
    RESULTS/report/             what `dpflbench report` writes
"""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dpflbench.errors import DpflbenchError
from dpflbench.records import Record, RecordError, decode, dumps, encode, loads

MANIFEST_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of a suite's table: coordinates, algorithm and seed, and the run that fills it."""

    coordinates: Mapping[str, Any]  # axis path → value, e.g. {"privacy.mechanism": "gaussian"}
    algorithm: str  # label in the table
    seed: int
    run: str | None  # id of its record; None: impossible, see reason
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a results folder was made for: enough to draw the table without the suite file."""

    name: str
    suite: Mapping[str, Any]  # the resolved suite, as a plain mapping
    cells: Sequence[Cell]


@dataclass(frozen=True, slots=True)
class Results:
    """A results folder in memory."""

    manifest: Manifest
    records: Mapping[str, Record]
    problems: Sequence[str] = field(default_factory=tuple)  # records that could not be read, one line each


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that at any moment there is the old one or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@dataclass(frozen=True, slots=True)
class Store:
    """A results folder."""

    root: Path

    def path(self, run: str) -> Path:
        """Where the record of a run lies."""
        return self.root / "records" / f"{run}.json"

    def write(self, record: Record) -> None:
        """Keep a record."""
        write_atomically(self.path(record.id), dumps(record))

    def read(self, run: str) -> Record | None:
        """The record of a run, None if there is none; RecordError if it is damaged."""
        path = self.path(run)
        if not path.exists():
            return None
        record = loads(path.read_text(encoding="utf-8", errors="replace"), str(path))
        if record.id != run:
            raise RecordError(f"{path}: holds the record of {record.id}")
        return record

    def write_manifest(self, manifest: Manifest) -> None:
        """Keep what the folder is for."""
        body = {"schema": MANIFEST_SCHEMA, "name": manifest.name, "suite": manifest.suite,
                "cells": [asdict(cell) for cell in manifest.cells]}
        write_atomically(self.root / "suite.json", json.dumps(encode(body), indent=1, sort_keys=True))

    def manifest(self) -> Manifest:
        """What the folder is for; DpflbenchError if it is not a results folder."""
        path = self.root / "suite.json"
        try:
            body = decode(json.loads(path.read_text(encoding="utf-8")))
            if body["schema"] != MANIFEST_SCHEMA:
                raise ValueError(f"schema {body['schema']!r}, this version reads {MANIFEST_SCHEMA}")
            return Manifest(body["name"], body["suite"], tuple(Cell(**cell) for cell in body["cells"]))
        except FileNotFoundError:
            raise DpflbenchError(f"{self.root}: not a results folder (no suite.json)") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise DpflbenchError(f"{path}: damaged ({type(e).__name__}: {e})") from None

    def results(self) -> Results:
        """Manifest and all readable records of its cells, with a line for each that is not."""
        manifest = self.manifest()
        records, problems = {}, []
        for run in dict.fromkeys(cell.run for cell in manifest.cells if cell.run):
            try:
                record = self.read(run)
            except RecordError as e:
                problems.append(str(e))
                continue
            if record is not None:
                records[run] = record
        return Results(manifest, records, tuple(problems))
