"""Data sets of Hugging Face `datasets`, saved to a folder by `save_to_disk`: nothing is fetched from anywhere.

The library is imported when such a data set is loaded (extra `huggingface`). A hub changes under one's feet; a folder
does not, and its digest is part of a run's id.
"""

import hashlib
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpflbench.errors import DataError
from dpflbench.interfaces import Availability, Examples
from dpflbench.tasks import files
from dpflbench.tasks.cache import Tensors, cached
from dpflbench.tasks.npz import examples_of, tensors_of

HOW = "datasets.load_dataset(...).save_to_disk('FOLDER')"
NEEDS = "huggingface: needs datasets; pip install 'dpflbench[huggingface]'"


@dataclass(frozen=True, slots=True)
class HuggingFace:
    """A folder that Hugging Face `datasets` saved; `path` is looked for as `npz` looks for a file.

    `inputs` are columns of numbers, lists of numbers or one of images (all but the others if not named), `label` is the
    class or target, `group` the natural owner of an example.
    """

    path: str
    inputs: tuple[str, ...] = ()
    label: str = "label"
    group: str | None = None
    train: str = "train"
    test: str = "test"

    def beside(self, folder: Path, root: Path | None) -> "HuggingFace":
        """The same data with its folder beside the suite, or in the data folder if it is only there."""
        from dataclasses import replace

        here, there = folder / Path(self.path).expanduser(), self._folder(root)
        return replace(self, path=str(there if root is not None and not here.is_dir() and there.is_dir() else here))

    def availability(self, root: Path | None) -> Availability:
        """Present if the folder is, and the library that reads it."""
        found = self._is_there(root)
        state = "missing" if not found else "found" if find_spec("datasets") else "found, but not the library datasets"
        return Availability(found, str(self._folder(root)), state, "see its card", HOW)

    def digest(self, root: Path | None) -> str:
        """SHA-256 over the names and digests of its files."""
        if not self._is_there(root):
            raise DataError(f"huggingface: looked for {str(self._folder(root))[:300]}, not found; make it: {HOW}")
        folder = self._folder(root)
        # what the library keeps there of its own work is named cache-…
        own = sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("cache-"))
        lines = [f"{path.relative_to(folder).as_posix()} {files.sha256(path, root)}" for path in own]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def load(self, root: Path | None) -> Examples:
        """Return its columns as tensors."""
        key = {
            "digest": self.digest(root),
            "columns": f"{self.inputs} {self.label} {self.group} {self.train} {self.test}",
        }
        return examples_of(cached("huggingface", key, lambda: self._read(self._folder(root))))

    def _folder(self, root: Path | None) -> Path:
        return (root or Path()) / os.path.expanduser(self.path)

    def _is_there(self, root: Path | None) -> bool:
        return os.path.isfile(self._folder(root) / "dataset_dict.json")

    def _read(self, folder: Path) -> Tensors:
        if find_spec("datasets") is None:
            raise DataError(NEEDS)
        from datasets import load_from_disk

        try:
            parts = load_from_disk(str(folder))
        except Exception as error:  # whatever reads its files may raise anything
            first = (str(error).splitlines() or [""])[0][:200]
            raise DataError(
                f"{folder}: cannot be read ({type(error).__name__}: {first}); make it anew by {HOW}"
            ) from error
        arrays: dict[str, NDArray[Any]] = {}
        for part, name in (("train", self.train), ("test", self.test)):
            if name not in parts:
                raise DataError(f"{folder}: no split '{name}'; found {', '.join(parts)}: name it by `{part}`")
            arrays[f"x_{part}"] = self._inputs(parts[name], folder)
            arrays[f"y_{part}"] = _column(parts[name], self.label, folder)
            if self.group is not None:
                arrays[f"groups_{part}"] = _column(parts[name], self.group, folder)
        return tensors_of(folder, arrays)

    def _inputs(self, part: Any, folder: Path) -> NDArray[Any]:
        """Columns side by side [n, d], or one of images [n, channels, height, width] or lists as it is."""
        taken = (self.label, self.group)
        names = self.inputs or tuple(name for name in part.column_names if name not in taken)
        if not names:
            raise DataError(f"{folder}: no columns besides {self.label}; name some by `inputs`")
        columns = [_column(part, name, folder) for name in names]
        if len(columns) == 1 and columns[0].ndim > 1:
            return columns[0]
        return np.concatenate([np.reshape(column, (len(column), -1)) for column in columns], axis=1).astype(np.float32)


def _column(part: Any, name: str, folder: Path) -> NDArray[Any]:
    """A column as numbers."""
    if name not in part.column_names:
        raise DataError(f"{folder}: no column '{name}'; found {', '.join(part.column_names)}")
    if type(part.features[name]).__name__ == "Image":
        return _images(part, name, folder)
    try:
        values = np.asarray(part.with_format("numpy")[:][name])
    except ValueError:  # lists of several lengths
        values = np.zeros(0, dtype=object)
    if values.dtype.kind not in "iufb":
        raise DataError(
            f"{folder}: column '{name}' holds {part.features[name]}; allowed: numbers, lists of one length, images"
        )
    return values.astype(np.int64) if values.dtype.kind == "b" else values


def _images(part: Any, name: str, folder: Path) -> NDArray[Any]:
    """Images of one size as bytes [n, channels, height, width]."""
    found = [np.asarray(image) for image in part[:][name]]
    shapes = {image.shape for image in found}
    if len(shapes) != 1 or found[0].dtype != np.uint8:
        raise DataError(
            f"{folder}: images in '{name}' of {len(shapes)} sizes or not of bytes; allowed: bytes of one size"
        )
    stacked = np.stack(found)
    return stacked[:, None] if stacked.ndim == 3 else np.moveaxis(stacked, 3, 1)
