"""What a page links to: the other files of its report and, where it lies in their results folder, the records and
manifest it was made from, by relative addresses.
"""

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


def downloads(paths: Sequence[Path], out: Path, folders: Mapping[Path, Sequence[str]]) -> Downloads:
    """Everything beside a page in `out`: files written with it, and the records (runs, by folder) and manifest of the
    results folder it lies in. Others move without it, and are not linked.
    """
    names = [path.relative_to(out).as_posix() for path in paths]
    records: dict[str, str] = {}
    for folder, runs in folders.items():
        if out.resolve().is_relative_to(folder.resolve()):
            up = "../" * len(out.resolve().relative_to(folder.resolve()).parts)
            names.append(f"{up}suite.json")
            records |= {run: f"{up}records/{quote(run)}.json" for run in runs}
    figures = {name: quote(name) for name in names if name.startswith("figures/")}
    files: dict[str, dict[str, str]] = {}
    for name in names:
        kind = KINDS.get(name.rpartition(".")[2])
        if name not in figures and kind is not None:
            files.setdefault(kind, {})[name] = quote(name)
    if records:
        files["records"] = {f"{len(records)} files, linked from their table": "#records"}
    if figures:
        files["figures"] = {Path(name).stem: where for name, where in figures.items()}
    return Downloads(files, figures, records)
