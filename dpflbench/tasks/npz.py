"""Any data as one .npz file with x_train, y_train, x_test, y_test: classification if labels are whole numbers, else
regression.
"""

import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpflbench.errors import DataError
from dpflbench.interfaces import Availability, Examples
from dpflbench.tasks import files
from dpflbench.tasks.cache import Tensors, cached

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
GROUPS = {"groups_train": "y_train", "groups_test": "y_test"}  # optional: who owns each example by nature
HOW = "numpy.savez('NAME.npz', x_train=..., y_train=..., x_test=..., y_test=...)"


@dataclass(frozen=True, slots=True)
class Npz:
    """Your own arrays: `path` is absolute or relative to the suite file, given by --set to the current folder; a file
    that is not there is looked for in the data folder.

    x are uint8 (images [n, channels, height, width], scaled to [0, 1]) or numbers; integer y are labels from 0, float y
    targets. Optional groups_train and groups_test name each example's natural owner.
    """

    path: str

    def beside(self, folder: Path, root: Path | None) -> "Npz":
        """The same data with its file beside the suite, or in the data folder if it is only there."""
        here, there = folder / Path(self.path).expanduser(), self._file(root)
        return Npz(str(there if root is not None and not here.is_file() and there.is_file() else here))

    def availability(self, root: Path | None) -> Availability:
        """Present if the file is."""
        found = os.path.isfile(self._file(root))
        return Availability(found, str(self._file(root)), "found" if found else "missing", "yours", HOW)

    def digest(self, root: Path | None) -> str:
        """SHA-256 of the file."""
        if not os.path.isfile(self._file(root)):  # Path.is_file raises for a name that is too long
            raise DataError(f"npz: looked for {str(self._file(root))[:300]}, not found; make it: {HOW}")
        return files.sha256(self._file(root), root)

    def load(self, root: Path | None) -> Examples:
        """Return the arrays as tensors."""
        return examples_of(cached("npz", {"digest": self.digest(root)}, lambda: _read(self._file(root))))

    def _file(self, root: Path | None) -> Path:
        return (root or Path()) / os.path.expanduser(self.path)


def examples_of(tensors: Tensors) -> Examples:
    """What `tensors_of` made, as examples."""
    return Examples(
        tensors["x_train"],
        tensors["y_train"],
        tensors["x_test"],
        tensors["y_test"],
        int(tensors["n_classes"]),
        groups=tensors.get("groups_train"),
        test_groups=tensors.get("groups_test"),
    )


def _read(path: Path) -> Tensors:
    """Tensors of a file, checked."""
    try:
        with np.load(path, allow_pickle=False) as opened:
            lacking = [name for name in ARRAYS if name not in opened]
            if lacking:
                raise DataError(f"{path}: no array {', '.join(lacking)}; expected {', '.join(ARRAYS)}")
            arrays = {name: opened[name] for name in (*ARRAYS, *GROUPS) if name in opened}
    except (ValueError, TypeError) as error:  # NumPy's own words advise to load it unsafely
        raise DataError(
            f"{path}: an array of Python objects, or no .npz file; expected plain arrays of numbers, made by {HOW}"
        ) from error
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: cannot be read ({error}); truncated or damaged: make it anew by {HOW}") from error
    return tensors_of(path, arrays)


def tensors_of(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Tensors:
    """Arrays by the names above as tensors, checked; a message names the path they came from."""
    for part in ("train", "test"):
        _check_examples(path, part, arrays[f"x_{part}"], arrays[f"y_{part}"])
    if (
        arrays["x_train"].shape[1:] != arrays["x_test"].shape[1:]
        or arrays["x_train"].dtype.kind != arrays["x_test"].dtype.kind
    ):
        raise DataError(
            f"{path}: x_train holds {arrays['x_train'].dtype} {list(arrays['x_train'].shape[1:])}, "
            f"x_test {arrays['x_test'].dtype} {list(arrays['x_test'].shape[1:])}; allowed: the same"
        )
    n_classes = _classes(path, arrays["y_train"], arrays["y_test"])
    tensors: Tensors = {"n_classes": torch.tensor(n_classes)}
    for part in ("train", "test"):
        x = arrays[f"x_{part}"]
        tensors[f"x_{part}"] = torch.from_numpy(
            np.ascontiguousarray(x if x.dtype == np.uint8 else x.astype(np.float32))
        )
        tensors[f"y_{part}"] = torch.from_numpy(arrays[f"y_{part}"].astype(np.int64 if n_classes else np.float32))
    for name, label in GROUPS.items():
        if name in arrays:
            if arrays[name].shape != arrays[label].shape or arrays[name].dtype.kind not in "iu":
                raise DataError(
                    f"{path}: {name} is {arrays[name].dtype} {list(arrays[name].shape)}; expected an integer a label"
                )
            tensors[name] = torch.from_numpy(arrays[name].astype(np.int64))
    return tensors


def _check_examples(path: Path, part: str, x: NDArray[Any], y: NDArray[Any]) -> None:
    """Refuse empty parts, other shapes, other types and values that are not finite."""
    if x.dtype.kind not in "iuf" or x.ndim < 2 or not x.size:
        raise DataError(f"{path}: x_{part} is {x.dtype} {list(x.shape)}; expected numbers [examples, values...]")
    if y.dtype.kind not in "iuf" or y.shape != x.shape[:1]:
        raise DataError(f"{path}: y_{part} is {y.dtype} {list(y.shape)}; expected {len(x)} numbers, one an example")
    for name, values in ((f"x_{part}", x), (f"y_{part}", y)):
        if not np.isfinite(values).all():
            raise DataError(f"{path}: {name} holds NaN or infinite values; allowed: finite numbers")


def _classes(path: Path, train: NDArray[Any], test: NDArray[Any]) -> int:
    """The number of classes of integer labels, 0 for float targets."""
    if train.dtype.kind == "f" or test.dtype.kind == "f":
        if train.dtype.kind != test.dtype.kind:
            raise DataError(
                f"{path}: y_train is {train.dtype}, y_test {test.dtype}; allowed: both labels or both targets"
            )
        return 0
    classes = int(train.max()) + 1
    low, high = min(int(train.min()), int(test.min())), int(test.max())
    if low < 0 or high >= classes or classes < 2:
        raise DataError(
            f"{path}: labels from {low} to {max(high, classes - 1)}; allowed: 0 to y_train's largest, at least two"
        )
    return classes
