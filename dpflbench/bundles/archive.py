"""Named bytes as one .tar.xz and back: the same bytes each time, and nothing a stranger packs can harm a reader.

Nothing is extracted to disk. A member is a plain file under a name this format has, once; counts and sizes have limits
that are kept while unpacking, not after.
"""

import io
import lzma
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from dpflbench.errors import DpflbenchError

NAME = re.compile(r"(?:bundle\.json|suite\.json|suite\.yaml|records/[A-Za-z0-9_-]{1,100}\.json)")
MAX_MEMBERS = 20_000
MAX_MEMBER_BYTES, MAX_BYTES = 1 << 26, 1 << 29  # unpacked
MAX_DICTIONARY = 1 << 27  # bytes a decompressor may ask for
BLOCK = 1 << 16


def pack(files: Mapping[str, bytes]) -> bytes:
    """One archive of all files, by name; no times, owners or modes of this machine."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            tar.addfile(member, io.BytesIO(files[name]))
    return lzma.compress(out.getvalue(), preset=6)


def unpack(path: Path) -> dict[str, bytes]:
    """Every file of an archive by its name; DpflbenchError in one line for whatever is not one of ours."""
    try:
        with path.open("rb") as file:
            return _members(_Unpacked(file, str(path)), str(path))
    except FileNotFoundError:
        raise DpflbenchError(f"{path}: no such file; expected a bundle, made by `dpflbench bundle RESULTS`") from None
    except OSError as e:
        raise DpflbenchError(f"{path}: cannot be read ({e.strerror or e})") from None
    except (tarfile.TarError, lzma.LZMAError, EOFError, ValueError, OverflowError, KeyError, IndexError) as e:
        raise DpflbenchError(f"{path}: not a bundle, or damaged ({type(e).__name__}: {str(e)[:100]})") from None


def _members(stream: "_Unpacked", where: str) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=stream, mode="r|", format=tarfile.USTAR_FORMAT) as tar:  # type: ignore[call-overload]
        while (member := tar.next()) is not None:
            tar.members = []  # it remembers every member it has seen
            name = member.name
            if not member.isreg() or member.issparse():
                raise DpflbenchError(f"{where}: {name[:60]!r} is no plain file; allowed: plain files only")
            if not NAME.fullmatch(name):
                raise DpflbenchError(f"{where}: a file {name[:60]!r}; allowed: {NAME.pattern[3:-1]}")
            if name in files:
                raise DpflbenchError(f"{where}: {name} is in it twice")
            if len(files) >= MAX_MEMBERS:
                raise DpflbenchError(f"{where}: more than {MAX_MEMBERS:,} files; allowed: up to that many")
            if member.size > MAX_MEMBER_BYTES:
                raise DpflbenchError(
                    f"{where}: {name} has {member.size:,} bytes; allowed: {MAX_MEMBER_BYTES:,} unpacked"
                )
            content = tar.extractfile(member)
            files[name] = content.read() if content is not None else b""
            if len(files[name]) != member.size:
                raise EOFError(f"{name} breaks off")
    return files


class _Unpacked:
    """What is in a compressed file, read forward only and no further than MAX_BYTES."""

    def __init__(self, file: IO[bytes], where: str) -> None:
        self.file, self.where, self.total = file, where, 0
        self.xz = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_DICTIONARY)

    def read(self, size: int) -> bytes:
        """At most so many bytes; fewer at the end only."""
        out = b""
        while len(out) < size and not self.xz.eof:
            fed = self.file.read(BLOCK) if self.xz.needs_input else b""
            if self.xz.needs_input and not fed:
                raise EOFError("it breaks off")
            out += self.xz.decompress(fed, size - len(out))
        self.total += len(out)
        if self.total > MAX_BYTES:
            raise DpflbenchError(f"{self.where}: more than {MAX_BYTES:,} bytes unpacked; allowed: up to that many")
        return out
