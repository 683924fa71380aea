"""What a page links to: the other files of its report, and the records and manifest it was made from, by relative
addresses.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

KINDS = {"csv": "CSV", "parquet": "Parquet", "tex": "TeX", "md": "Markdown", "yaml": "suite", "json": "suite"}


@dataclass(frozen=True, slots=True)
class Downloads:
    """Name → address, by what they are for."""

    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # CSV → {summary.csv: summary.csv}
    figures: Mapping[str, str] = field(default_factory=dict)  # figures/rounds.png → its address
    records: Mapping[str, str] = field(default_factory=dict)  # run → address


def address(path: Path, out: Path) -> str | None:
    """The address of a file seen from a folder; None where there is no way between them (another drive)."""
    try:
        way = os.path.relpath(path, out)
    except ValueError:
        return None
    return quote(os.fsencode(way.replace(os.sep, "/")))


def downloads(paths: Sequence[Path], out: Path, folders: Sequence[Path], runs: Sequence[str]) -> Downloads:
    """Everything beside a page in `out`: files written with it, and what the results folders hold of these runs."""
    files: dict[str, dict[str, str]] = {}
    figures: dict[str, str] = {}
    for path in [*paths, *(folder / "suite.json" for folder in folders)]:
        kind, where = KINDS.get(path.suffix[1:]), address(path, out)
        if where is not None and path.parent.name == "figures":
            figures[f"figures/{path.name}"] = where
        elif where is not None and kind is not None:
            files.setdefault(kind, {})[path.name if path.parent == out else where] = where
    records: dict[str, str] = {}
    for folder in folders:
        there = [(run, folder / "records" / f"{run}.json") for run in runs if run not in records]
        found = {run: address(path, out) for run, path in there if path.is_file()}
        records |= {run: where for run, where in found.items() if where is not None}
    if records:
        files["records"] = {f"{len(records)} files, linked from their table": "#records"}
    if figures:
        files["figures"] = {Path(name).stem: where for name, where in figures.items()}
    return Downloads(files, figures, records)
