"""The cache: what is expensive and the same for every seed (decoding, projecting) is kept as one tensor file each.

It lies in the user's cache folder or in $DPFLBENCH_CACHE. Files are written whole or not at all, read with
`weights_only` and checked against their own digest; a damaged one is rebuilt, and where nothing can be written loading
is merely slower.
"""

import contextlib
import hashlib
import inspect
import json
import logging
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

VARIABLE = "DPFLBENCH_CACHE"
log = logging.getLogger(__name__)
Tensors = dict[str, Tensor]


def cache_folder() -> Path:
    """The folder for everything that can be made again."""
    if given := os.environ.get(VARIABLE):
        return Path(given).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("dpflbench"))


def cached(name: str, key: Mapping[str, str], build: Callable[[], Tensors]) -> Tensors:
    """What `build()` returns, from the file for `name` and `key` if there is a sound one; otherwise built and kept.

    The source of the module that defines `build` is part of the key: a loader that was changed does not find what it
    made before.
    """
    digest = hashlib.sha256(json.dumps({**key, "code": source(build)}, sort_keys=True).encode()).hexdigest()
    path = cache_folder() / f"{name}-{digest[:24]}.pt"
    found = _read(path)
    if found is None:
        found = build()
        _write(path, found)
    return found


def source(thing: object) -> str:
    """SHA-256 of the source file that defines a function or the class of an object; its module's name where there is no
    file.
    """
    try:
        file = inspect.getfile(thing if inspect.isroutine(thing) else type(thing))
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except (TypeError, OSError):
        return str(getattr(thing, "__module__", ""))


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder that vanishes afterwards, for readers that insist on files: in the cache folder, else where temporary
    files go.
    """
    folder: Path | None = cache_folder()
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        probe = tempfile.TemporaryDirectory(dir=folder)
    except OSError as error:
        log.warning("%s: cannot be written (%s); using the system's temporary folder", folder, error)
        probe = tempfile.TemporaryDirectory()
    with probe as made:
        yield Path(made)


def _read(path: Path) -> Tensors | None:
    """The tensors of a sound cache file; None if it is not there or damaged."""
    if not path.exists():
        return None
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        tensors: Tensors = stored["tensors"]
        if stored["sha256"] == _checksum(tensors):
            return tensors
        reason = "its content does not match its digest"
    except (
        RuntimeError,
        OSError,
        EOFError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        pickle.UnpicklingError,
    ) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
    log.warning("%s: damaged (%s); made again", path, reason)
    return None


def _write(path: Path, tensors: Tensors) -> None:
    """Put a cache file in place in one step; where that is impossible, say so and go on without."""
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".tmp")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            torch.save({"sha256": _checksum(tensors), "tensors": tensors}, file)
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        # torch reports a full disk as RuntimeError.
        log.warning("%s: not kept (%s); the next load is as slow as this one", path, error)
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _checksum(tensors: Tensors) -> str:
    """SHA-256 over names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        content: Any = tensor.reshape(-1).view(torch.uint8).numpy()  # a buffer, which NumPy's types do not say
        digest.update(content)
    return digest.hexdigest()
