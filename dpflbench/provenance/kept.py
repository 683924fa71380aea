"""Modules once read are kept in the cache folder, by content: planning a suite must not parse eighty files every time.

Without a sound file, or where none can be written, everything is read again.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpflbench.provenance import reading
from dpflbench.provenance.reading import Module, Statement

FILE = "sources.json"


class Shelf:
    """What is kept: for each file the name it was read under, the digest of its content, and the module."""

    def __init__(self, path: Path) -> None:
        self.path, self.new = path, False
        reader = Path(reading.__file__).read_bytes() + Path(__file__).read_bytes()  # another reader sees other things
        self.reader = hashlib.sha256(reader).hexdigest()
        self.files: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):  # not there, or no JSON
            digest, _, text = path.read_text(encoding="utf-8").partition("\n")
            if digest == hashlib.sha256((self.reader + text).encode()).hexdigest():
                self.files = json.loads(text)

    def module(self, name: str, file: Path, content: bytes, make: Callable[[], Module]) -> Module:
        """The module as it was read before, or else as `make` reads it now."""
        digest = hashlib.sha256(content).hexdigest()
        known = self.files.get(str(file))
        if known is not None and known[:2] == [name, digest]:
            return _unpacked(known[2])
        made, self.new = make(), True
        self.files[str(file)] = [name, digest, _packed(made)]
        return made

    def keep(self) -> None:
        """Write what is new; files that are gone are forgotten."""
        if not self.new:
            return
        self.new = False
        text = json.dumps({file: known for file, known in self.files.items() if Path(file).is_file()})
        temporary: str | None = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=f".{FILE}-", suffix=".tmp")
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                out.write(hashlib.sha256((self.reader + text).encode()).hexdigest() + "\n" + text)
            Path(temporary).replace(self.path)
        except OSError:
            if temporary is not None:
                Path(temporary).unlink(missing_ok=True)


def _packed(module: Module) -> str:
    """A module as one text: a shelf holds a thousand statements, of which a plan needs some."""
    statements = [
        [" ".join(s.binds), s.digest, " ".join(s.mentions), s.imports, s.acts, s.opaque] for s in module.statements
    ]
    return json.dumps([statements, *module[1:]])


def _unpacked(text: str) -> Module:
    statements, *rest = json.loads(text)
    return Module([Statement(b.split(), d, m.split(), *more) for b, d, m, *more in statements], *rest)


@lru_cache(maxsize=1)
def shelf() -> Shelf:
    """The shelf of this user."""
    from dpflbench.tasks.cache import cache_folder

    return Shelf(cache_folder() / FILE)
