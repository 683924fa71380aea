"""Files in the user's data folder: found, read and checked, never written.

A `SHA256SUMS` file at the top of the folder is believed: a file that it lists with another digest is refused.
"""

import gzip
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from dpflbench.errors import DataError

SUMS = "SHA256SUMS"
BLOCK = 1 << 20


def missing(name: str, root: Path | None, wanted: str, get: str) -> DataError:
    """The one line about data that is not there: what was looked for, where, and how to get it."""
    if root is None:
        return DataError(f"{name}: no data folder given; set $DPFLBENCH_DATA or --data, then: {get}")
    return DataError(f"{name}: looked for {wanted} in {root}, not found; get it: {get}")


def first(root: Path | None, candidates: Sequence[str]) -> Path | None:
    """The first of the relative paths that is a file below root."""
    if root is None:
        return None
    return next((root / candidate for candidate in candidates if (root / candidate).is_file()), None)


def read(path: Path) -> bytes:
    """The whole content, unpacked if the name ends in .gz."""
    return b"".join(blocks(path))


def blocks(path: Path) -> Iterator[bytes]:
    """The content piece by piece, unpacked if the name ends in .gz; DataError if it cannot be read to its end."""
    try:
        with _open(path) as file:
            while block := file.read(BLOCK):
                yield block
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read to its end ({error}); truncated or damaged, fetch it again") from error


def sha256(path: Path, root: Path | None = None) -> str:
    """SHA-256 of the unpacked content; refused if root's SHA256SUMS lists the file as it lies there with another
    digest.

    Computed once a process and state of the file (size and time of change).
    """
    status = path.stat()
    packed, unpacked = _digests(path, status.st_size, status.st_mtime_ns)
    expected = _listed(root).get(path.relative_to(root).as_posix()) if root and path.is_relative_to(root) else None
    if expected is not None and expected != packed:
        raise DataError(f"{path}: SHA-256 {packed}, but {SUMS} beside it says {expected}; fetch it again")
    return unpacked


def _open(path: Path) -> BinaryIO:
    """The unpacked content as a stream."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]  # GzipFile reads bytes


@lru_cache(maxsize=256)
def _digests(path: Path, size: int, changed: int) -> tuple[str, str]:
    """SHA-256 of the file as it is and of its unpacked content."""
    plain = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                plain.update(block)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    if path.suffix != ".gz":
        return plain.hexdigest(), plain.hexdigest()
    unpacked = hashlib.sha256()
    for block in blocks(path):
        unpacked.update(block)
    return plain.hexdigest(), unpacked.hexdigest()


def _listed(root: Path) -> dict[str, str]:
    """Relative path → digest, from root's SHA256SUMS if there is one."""
    sums = root / SUMS
    if not sums.is_file():
        return {}
    pairs = (line.split(maxsplit=1) for line in sums.read_text(encoding="utf-8").splitlines() if line.strip())
    return {pair[1].lstrip("*").removeprefix("./").strip(): pair[0] for pair in pairs if len(pair) == 2}
