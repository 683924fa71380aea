"""Records on disk: one results folder, one file a run under its content id, written atomically.

RESULTS/suite.json               the manifest: resolved suite, every cell of its table and of its tuning
RESULTS/noise-key.json           the key of its noise: whoever has it can draw the noise of every run again
RESULTS/counterfactuals.json     which runs explain which: the same without noise, or without clip as well
RESULTS/records/<id>.json        one record a run
RESULTS/records/set-aside/       records that were found damaged; their runs are repeated
RESULTS/work/                    locks, checkpoints, who is running: needed only while runs are under way
RESULTS/report/                  what `dpflbench report` writes
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from dpflbench.canonical import content_digest, decode, encode
from dpflbench.errors import DpflbenchError
from dpflbench.keys import Origin, fresh_key, key_of
from dpflbench.results.cells import Cell, Manifest, Problem, Results
from dpflbench.results.locks import Lock
from dpflbench.results.owners import OWNER, is_gone, owner
from dpflbench.results.record import SCHEMA, OtherVersion, Record, RecordError, check_schema, dumps, loads

RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")  # names a file: nothing that leads out of the folder
REUSABLE = ("done", "diverged", "disqualified")  # how a run ends by its own doing: the same again tomorrow
RECORD_BYTES = 100_000  # what one record may take; most take a third of it
SPARE_BYTES = 20_000_000  # for a checkpoint or two and the report
UNFINISHED = re.compile(rf"\.({OWNER})-[0-9a-f]{{12}}\.tmp$")
ABANDONED = 3600.0  # seconds after which a file that another machine began to write counts as given up


def write_atomically(path: Path, content: str | bytes, durable: bool = True) -> None:
    """Write a file so that at any moment, whatever is killed, there is the old one or the new one, whole.

    Not `durable`: it need not outlive a power cut, so the disk is not waited for.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{owner()}-{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("xb") as f:
            f.write(content.encode() if isinstance(content, str) else content)
            if durable:
                f.flush()
                os.fsync(f.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable and os.name == "posix":  # the rename itself survives a power cut only once its folder is written
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def is_abandoned(path: Path) -> bool:
    """Whether nobody writes that temporary file of `write_atomically` any more."""
    named = UNFINISHED.search(path.name)
    gone = is_gone(named[1]) if named else None
    return path.stat().st_mtime < time.time() - ABANDONED if gone is None else gone


@contextlib.contextmanager
def writing(path: Path, hint: str = "") -> Iterator[Path]:
    """DpflbenchError in one line, with a hint, where the system refuses what is written inside."""
    try:
        yield path
    except OSError as e:
        raise DpflbenchError(f"{path}: cannot be written ({why(e)}){hint}") from None


def _cell(given: Any) -> Cell:
    """The cell a manifest describes; ValueError if it is none."""
    cell = Cell(**given)
    texts = isinstance(cell.algorithm, str) and isinstance(cell.reason, str) and isinstance(cell.run, str | None)
    if not texts or not isinstance(cell.coordinates, dict) or type(cell.seed) is not int:
        raise ValueError(f"not a cell: {given!r:.80}")
    if cell.run is not None and not RUN_ID.fullmatch(cell.run):
        raise ValueError(f"{cell.run[:60]!r} is no id of a run")
    return cell


def manifest_text(manifest: Manifest) -> str:
    """The JSON text of a manifest."""
    content = {"name": manifest.name, "suite": manifest.suite, "cells": [asdict(cell) for cell in manifest.cells]}
    if manifest.tuning:
        content["tuning"] = [asdict(cell) for cell in manifest.tuning]
    content = encode(content)
    return json.dumps({"schema": SCHEMA, "digest": content_digest(content), **content}, indent=1, sort_keys=True)


def manifest_of(text: str, where: str) -> Manifest:
    """The manifest in a JSON text; DpflbenchError says what is wrong with it."""
    try:
        body = json.loads(text)
        check_schema(body["schema"], where)
        content = {name: body[name] for name in ("name", "suite", "cells")}
        content |= {"tuning": body["tuning"]} if "tuning" in body else {}
        if content_digest(content) != body.get("digest"):
            raise DpflbenchError(
                f"{where}: content does not match its digest; it was edited or damaged: "
                "`dpflbench run` of its suite writes it anew"
            )
        body = decode(content)
        if not isinstance(body["name"], str) or not isinstance(body["suite"], dict):
            raise ValueError("name must be a text and suite a mapping")
        cells, tuning = (tuple(map(_cell, body.get(kind, ()))) for kind in ("cells", "tuning"))
        return Manifest(body["name"], body["suite"], cells, tuning)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise DpflbenchError(f"{where}: damaged ({_line(e)})") from None


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


@dataclass(frozen=True, slots=True)
class Store:
    """A results folder."""

    root: Path

    def path(self, run: str) -> Path:
        """Where the record of a run lies; RecordError for an id that would lead elsewhere."""
        if not RUN_ID.fullmatch(run):
            raise RecordError(f"{self.root}: {run[:60]!r} is no id of a run")
        return self.root / "records" / f"{run}.json"

    def work(self, kind: str) -> Path:
        """A folder for what is needed only while runs are under way: locks, checkpoints, running, tasks."""
        return self.root / "work" / kind

    def checkpoint(self, run: str) -> Path:
        """Where a run that is not finished leaves its state."""
        return self.work("checkpoints") / f"{run}.pt"

    def write(self, record: Record) -> None:
        """Keep a record; DpflbenchError if the disk does not take it."""
        with writing(self.path(record.id), "; all earlier records are whole") as path:
            write_atomically(path, dumps(record))

    def read(self, run: str) -> Record | None:
        """The record of a run, None if there is none; RecordError if it is damaged."""
        path = self.path(run)
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as e:
            raise RecordError(f"{path}: cannot be read ({why(e)})") from None
        record = loads(text, str(path))
        if record.id != run:
            raise RecordError(f"{path}: holds the record of {record.id}")
        return record

    def set_aside(self, run: str) -> Path:
        """Move a damaged record out of the way, for a look at it; the place it went to."""
        folder = self.root / "records" / "set-aside"
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{run}.{secrets.token_hex(3)}.json"
        self.path(run).replace(target)
        return target

    def lock(self, run: str) -> Lock:
        """The lock of a run: whoever holds it is doing that run."""
        self.work("locks").mkdir(parents=True, exist_ok=True)
        return Lock(self.work("locks") / f"{run}.lock")

    def unfinished(self) -> list[Path]:
        """Files that were never finished, or are not yet."""
        folders = [self.root, self.path("x").parent, *self.root.glob("work/*/"), self.root / "report"]
        return sorted(path for folder in folders for path in folder.glob(".*.tmp"))

    def check_room(self, runs: int) -> None:
        """DpflbenchError unless the folder can be written and has room for that many records."""
        hint = "choose another folder by --out"
        with writing(self.root, f"; {hint}"):
            for folder in (self.path("x").parent, self.work("running")):
                folder.mkdir(parents=True, exist_ok=True)
                probe = folder / f".probe.{secrets.token_hex(6)}.tmp"
                write_atomically(probe, b"\0" * 4096)
                probe.unlink()
            free = shutil.disk_usage(self.root).free
        need = runs * RECORD_BYTES + SPARE_BYTES
        if free < need:
            raise DpflbenchError(
                f"{self.root}: {free / 1e6:.0f} MB free, {runs} runs need up to {need / 1e6:.0f} MB; "
                f"free some or {hint}"
            )

    def noise_key(self, given: bytes | None = None) -> tuple[bytes, Origin]:
        """The key of the folder's noise: given, or drawn here once; refused if the folder has another already."""
        path = self.root / "noise-key.json"
        if not path.exists():
            kept = {"key": (given or fresh_key()).hex(), "origin": "given" if given else "drawn"}
            with writing(path):
                new = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
                write_atomically(new, json.dumps(kept) + "\n")
                new.chmod(0o600)
                try:
                    os.link(new, path)  # the first of several processes wins, and all read what it drew
                except OSError:
                    if not path.exists():
                        new.replace(path)
                finally:
                    new.unlink(missing_ok=True)
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            key, origin = key_of(kept["key"], str(path)), kept["origin"]
            if origin not in get_args(Origin):
                raise ValueError(f"origin {origin!r}")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
            raise DpflbenchError(
                f"{path}: damaged ({type(e).__name__}: {e}); without it new runs get a new key: remove it"
            ) from None
        if given is not None and given != key:
            raise DpflbenchError(f"--noise-key: {self.root} has another key already; choose another folder by --out")
        return key, origin

    def write_manifest(self, manifest: Manifest) -> None:
        """Keep what the folder is for."""
        with writing(self.root / "suite.json") as path:
            write_atomically(path, manifest_text(manifest))

    def manifest(self) -> Manifest:
        """What the folder is for; DpflbenchError if it is not a results folder."""
        path = self.root / "suite.json"
        try:
            text = path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            raise DpflbenchError(f"{self.root}: not a results folder (no suite.json)") from None
        except (OSError, ValueError) as e:
            raise DpflbenchError(f"{path}: damaged ({_line(e)})") from None
        return manifest_of(text, str(path))

    def outdated(self) -> bool:
        """Whether another version made the folder, whose records are of no use here."""
        try:
            self.manifest()
        except OtherVersion:
            return True
        except DpflbenchError:  # there is none yet, or it is damaged: either way it is written anew
            return False
        return False

    def results(self) -> Results:
        """Manifest and all readable records of its cells, with a line for each that is not."""
        manifest, problems = self.manifest(), list[Problem]()
        records, tuning = (self._readable(runs, problems) for runs in (manifest.runs, manifest.tuning_runs))
        return Results(manifest, records, tuple(problems), counterfactuals=self._explained(records), tuning=tuning)

    def _readable(self, runs: Iterable[str], problems: list[Problem]) -> dict[str, Record]:
        """The records of those runs that have one, with a problem for each that cannot be read."""
        found = {}
        for run in runs:
            try:
                record = self.read(run)
            except RecordError as e:
                problems.append(Problem(run, str(e)))
                continue
            if record is not None:
                found[run] = record
        return found

    def known(self, run: str) -> Record | None:
        """The record of a run; None if there is none that can be read."""
        with contextlib.suppress(RecordError):
            return self.read(run)
        return None

    def write_counterfactuals(self, links: Mapping[str, Mapping[str, str]]) -> None:
        """Keep which run explains which: private run → what is left out → run."""
        with writing(self.root / "counterfactuals.json") as path:
            write_atomically(path, json.dumps(links, indent=1, sort_keys=True))

    def counterfactuals(self) -> dict[str, dict[str, str]]:
        """What `write_counterfactuals` kept; nothing if there is none or nobody can read it."""
        try:
            links = json.loads((self.root / "counterfactuals.json").read_text(encoding="utf-8"))
            return {str(of): {str(k): str(run) for k, run in runs.items()} for of, runs in links.items()}
        except (OSError, ValueError, AttributeError):
            return {}

    def _explained(self, records: Mapping[str, Record]) -> dict[str, dict[str, Record]]:
        """The counterfactual records of runs, each only if it says itself whose it is; one that is damaged is none."""
        found: dict[str, dict[str, Record]] = {}
        for of, runs in self.counterfactuals().items():
            for without, run in runs.items() if of in records else ():
                with contextlib.suppress(RecordError):
                    record = self.read(run)
                    said = record.config.get("counterfactual") if record is not None else None
                    if (
                        record is not None
                        and isinstance(said, dict)
                        and (said.get("of"), said.get("without")) == (of, without)
                    ):
                        found.setdefault(of, {})[without] = record
        return found

    def ids(self) -> list[str]:
        """The runs that have a record here, whatever the manifest says."""
        with contextlib.suppress(OSError):
            return sorted(p.stem for p in self.path("x").parent.glob("*.json") if not p.name.startswith("."))
        return []


def why(error: OSError) -> str:
    """What the system says of an error, without the path that is in the line already."""
    return error.strerror or str(error) or type(error).__name__
