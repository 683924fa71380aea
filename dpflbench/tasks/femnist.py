"""FEMNIST: handwritten digits and letters with their writers, prepared by LEAF.

From LEAF's JSON folders (train/*.json and test/*.json) or from npz files that hold the same pictures as bytes. Values
are LEAF's: 1 is paper, 0 is ink. Each example knows its writer, so a client can be a writer.
"""

import json
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from dpflbench.errors import DataError
from dpflbench.interfaces import Availability, Examples
from dpflbench.tasks import files
from dpflbench.tasks.cache import Tensors, cached
from dpflbench.tasks.mnist import content_digest

N_CLASSES = 62
COMPLETE, PARTIAL = "femnist/femnist_writers.npz", "femnist/femnist_partial_writers.npz"
LEAF_FOLDERS = ("femnist/data", "femnist", "leaf/data/femnist/data")
TRAIN_SHARE = 0.9  # of each writer, where the files do not say themselves
PAGE = (
    "https://github.com/TalwalkarLab/leaf "
    "(data/femnist/preprocess.sh; put its data/train and data/test into femnist/data/)"
)


@dataclass(frozen=True, slots=True)
class Femnist:
    """Digits and letters, 28 × 28 grey, 62 classes, grouped by writer; femnist/ in the data folder: LEAF's JSON or npz
    files.

    `writers: complete` uses writers with all their examples, `all` also those of femnist_partial_writers.npz (npz files
    only). The official split is LEAF's own, or the first 90 % of each writer of an npz file.
    """

    writers: Literal["complete", "all"] = "complete"
    test_share: ClassVar[float] = 0.1  # the paper's 90/10

    def availability(self, root: Path | None) -> Availability:
        """Present if the npz files are, or a JSON folder with both parts."""
        where = "no data folder given" if root is None else str(root / "femnist")
        found = self._found(root)
        detail = (
            f"complete: {len(found)} file{'s' if len(found) > 1 else ''}" if found else f"missing: {self._wanted()}"
        )
        return Availability(bool(found), where, detail, "public domain (NIST), BSD-2-Clause (LEAF)", PAGE)

    def digest(self, root: Path | None) -> str:
        """SHA-256 over the digests of the files in use."""
        return content_digest([files.sha256(path, root) for path in self._files(root)])

    def load(self, root: Path | None) -> Examples:
        """Return images [1, 28, 28] as uint8 (value / 255 is LEAF's) with writers as groups."""

        def build() -> Tensors:
            paths = self._files(root)
            return _from_npz(paths) if paths[0].suffix == ".npz" else _from_json(paths)

        tensors = cached("femnist", {"digest": self.digest(root)}, build)
        return Examples(
            tensors["x_train"],
            tensors["y_train"],
            tensors["x_test"],
            tensors["y_test"],
            N_CLASSES,
            groups=tensors["groups"],
            test_groups=tensors["test_groups"],
        )

    def _wanted(self) -> str:
        npz = f"{COMPLETE} and {PARTIAL}" if self.writers == "all" else COMPLETE
        return f"{npz}, or femnist/data/train/*.json and test/*.json"

    def _found(self, root: Path | None) -> list[Path]:
        """The files in use, npz before JSON; empty if neither is complete."""
        if root is None:
            return []
        npz = [root / name for name in ((COMPLETE, PARTIAL) if self.writers == "all" else (COMPLETE,))]
        if all(path.is_file() for path in npz):
            return npz
        for folder in LEAF_FOLDERS:
            train, test = (sorted((root / folder / part).glob("*.json")) for part in ("train", "test"))
            if train and test:
                return [*train, *test]
        return []

    def _files(self, root: Path | None) -> list[Path]:
        """The same, or the one line about what is missing."""
        if found := self._found(root):
            return found
        raise files.missing("femnist", root, self._wanted(), PAGE)


def _from_npz(paths: Sequence[Path]) -> Tensors:
    """Bytes and writers of npz files; the first 90 % of each writer train."""
    images, labels, writers, names = [], [], [], list[str]()
    for path in paths:
        part = _arrays(path)
        images.append(part["images"])
        labels.append(part["labels"])
        writers.append(part["writer"].astype(np.int64) + len(names))
        names += [str(name) for name in part["writer_ids"]]
    if len(set(names)) < len(names):
        raise DataError(f"{paths[-1]}: holds a writer that {paths[0].name} holds too; allowed: each writer once")
    x, y, owner = np.concatenate(images), np.concatenate(labels).astype(np.int64), np.concatenate(writers)
    order = np.argsort(owner, kind="stable")
    sizes = np.bincount(owner, minlength=len(names))
    rank = np.empty(len(owner), dtype=np.int64)
    rank[order] = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    train = rank < TRAIN_SHARE * sizes[owner]
    return _tensors((x[train], y[train], owner[train]), (x[~train], y[~train], owner[~train]))


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of one npz file, checked."""
    try:
        with np.load(path, allow_pickle=False) as opened:
            part = {name: opened[name] for name in ("images", "labels", "writer", "writer_ids")}
    except KeyError as error:
        raise DataError(f"{path}: {error.args[0]}; expected images, labels, writer and writer_ids") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error}); truncated or damaged, fetch it again") from error
    images, labels, writer = part["images"], part["labels"], part["writer"]
    if images.dtype != np.uint8 or images.ndim != 3 or images.shape[1:] != (28, 28):
        raise DataError(f"{path}: images are {images.dtype} {list(images.shape)}; expected uint8 [n, 28, 28]")
    if not labels.shape == writer.shape == images.shape[:1]:
        raise DataError(
            f"{path}: {len(images)} images, {labels.shape} labels, {writer.shape} writers; expected one an image"
        )
    _check(path, labels)
    if len(writer) and int(writer.max()) >= len(part["writer_ids"]):
        raise DataError(
            f"{path}: writer {int(writer.max())}; allowed: 0 to {len(part['writer_ids']) - 1}, the writer_ids"
        )
    return part


def _from_json(paths: Sequence[Path]) -> Tensors:
    """LEAF's shards: users, user_data[user] = {x: rows of 784 numbers in [0, 1], y: labels}."""
    names: dict[str, int] = {}
    parts: dict[str, list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]] = {"train": [], "test": []}
    for path in paths:
        try:
            users = json.loads(path.read_text(encoding="utf-8"))["user_data"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}: no shard of LEAF ({type(error).__name__}: {error}); truncated or damaged"
            ) from error
        for user, data in users.items():
            x, y = _user(path, user, data)
            owner = names.setdefault(user, len(names))
            parts[path.parent.name].append((x, y, np.full(len(y), owner, dtype=np.int64)))
    joined = {name: tuple(np.concatenate(column) for column in zip(*part, strict=True)) for name, part in parts.items()}
    return _tensors(joined["train"], joined["test"])


def _user(path: Path, user: str, data: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """One writer of a shard as bytes and labels, checked."""
    try:
        x, y = np.asarray(data["x"], dtype=np.float64), np.asarray(data["y"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: writer {user}: {type(error).__name__}: {error}; expected x and y") from error
    if not len(y):
        return np.zeros((0, 28, 28), dtype=np.uint8), np.zeros(0, dtype=np.int64)
    if x.shape != (len(y), 784):
        raise DataError(f"{path}: writer {user}: x is {list(x.shape)} for {len(y)} labels; expected [{len(y)}, 784]")
    grey = np.rint(x * 255.0)
    if not np.isfinite(x).all() or np.abs(grey - x * 255.0).max() > 0.01 or grey.min() < 0 or grey.max() > 255:
        raise DataError(f"{path}: writer {user}: x holds values other than 0/255 to 255/255")
    _check(path, y)
    return grey.astype(np.uint8).reshape(-1, 28, 28), y.astype(np.int64)


def _check(path: Path, labels: NDArray[Any]) -> None:
    """Refuse labels that are not 0 … 61."""
    if labels.dtype.kind not in "iu" or (len(labels) and not (labels.min() >= 0 and labels.max() < N_CLASSES)):
        raise DataError(
            f"{path}: labels from {labels.min()} to {labels.max()} ({labels.dtype}); allowed: 0 to {N_CLASSES - 1}"
        )


def _tensors(train: tuple[NDArray[Any], ...], test: tuple[NDArray[Any], ...]) -> Tensors:
    """Both parts as tensors: images, labels, writers."""
    named: Tensors = {}
    for suffix, group, part in (("train", "groups", train), ("test", "test_groups", test)):
        x, y, owner = (torch.from_numpy(np.ascontiguousarray(array)) for array in part)
        named |= {f"x_{suffix}": x.unsqueeze(1), f"y_{suffix}": y, group: owner}
    return named
