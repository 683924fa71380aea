"""Fashion-MNIST and EMNIST: IDX files in torchvision's folders, packed or not."""

import gzip
import hashlib
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np

from dpflbench.errors import DataError
from dpflbench.interfaces import Availability, Examples
from dpflbench.tasks import files
from dpflbench.tasks.cache import Tensors, cached, scratch
from dpflbench.tasks.mnist import content_digest
from dpflbench.tasks.torchvision_data import (
    available,
    check_labels,
    download,
    examples_of,
    expect,
    how,
    torchvision_datasets,
)

FASHION = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
EMNIST_ZIP = "EMNIST/raw/gzip.zip"
EMNIST_CLASSES = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10}


@dataclass(frozen=True, slots=True)
class FashionMnist:
    """70,000 pictures of clothes, 28 × 28 grey, 10 classes; FashionMNIST/raw in the data folder, packed or not."""

    def availability(self, root: Path | None) -> Availability:
        """Present if all four files are."""
        lacking = [name for name in FASHION if _file(root, "FashionMNIST", name) is None]
        return available("fashion_mnist", root, "FashionMNIST/raw", lacking, "MIT (Zalando SE)")

    def digest(self, root: Path | None) -> str:
        """SHA-256 over the digests of the four unpacked files, each checked."""
        for name, expected in FASHION.items():
            path = _required("fashion_mnist", root, "FashionMNIST", name)
            expect(path, files.sha256(path, root), expected)
        return content_digest(list(FASHION.values()))

    def load(self, root: Path | None) -> Examples:
        """Return the official 60,000 training and 10,000 test images [1, 28, 28] as uint8."""

        def build() -> Tensors:
            content = {}
            for name, expected in FASHION.items():
                path = _required("fashion_mnist", root, "FashionMNIST", name)
                content[name] = files.read(path)
                expect(path, hashlib.sha256(content[name]).hexdigest(), expected)
            return _read(
                "FashionMNIST", content, 10, lambda module, folder, train: module.FashionMNIST(folder, train=train)
            )

        return examples_of(cached("fashion_mnist", {"digest": self.digest(root)}, build), 10)

    def download(self, root: Path) -> None:
        """Fetch it into root through torchvision."""
        download("fashion_mnist", lambda module: module.FashionMNIST(root, download=True))


@dataclass(frozen=True, slots=True)
class Emnist:
    """EMNIST, 28 × 28 grey, 10 to 62 classes by `variant`; EMNIST/raw in the data folder: files, packed or not, or
    gzip.zip.
    """

    variant: Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"] = "byclass"

    def availability(self, root: Path | None) -> Availability:
        """Present if the variant's four files are, or the archive of all variants."""
        zipped = files.first(root, [EMNIST_ZIP]) is not None
        lacking = [name for name in self.names() if not zipped and _file(root, "EMNIST", name) is None]
        return available("emnist", root, "EMNIST/raw", lacking, "public domain (NIST; Cohen et al. 2017)")

    def digest(self, root: Path | None) -> str:
        """SHA-256 over the digests of the variant's four unpacked files."""
        archive = self._archive(root)
        if archive is not None:
            status = archive.stat()
            return _zip_digest(archive, tuple(self.names()), status.st_size, status.st_mtime_ns)
        return content_digest([files.sha256(_required("emnist", root, "EMNIST", name), root) for name in self.names()])

    def load(self, root: Path | None) -> Examples:
        """Return the variant's own split as uint8 [1, 28, 28], turned upright, labels from 0."""
        n_classes, first_label = EMNIST_CLASSES[self.variant], 1 if self.variant == "letters" else 0

        def make(module: ModuleType, folder: Path, train: bool) -> Any:
            return module.EMNIST(folder, split=self.variant, train=train)

        def build() -> Tensors:
            archive = self._archive(root)
            if archive is None:
                content = {name: files.read(_required("emnist", root, "EMNIST", name)) for name in self.names()}
            else:
                content = {name: _zipped(archive, name) for name in self.names()}
            tensors = _read("EMNIST", content, n_classes, make, first_label)
            # The published files are column-major: pictures lie on their side until they are transposed.
            return {k: v.transpose(2, 3).contiguous() if k.startswith("x") else v for k, v in tensors.items()}

        return examples_of(cached("emnist", {"digest": self.digest(root), "variant": self.variant}, build), n_classes)

    def download(self, root: Path) -> None:
        """Fetch it into root through torchvision."""
        download("emnist", lambda module: module.EMNIST(root, split=self.variant, download=True))

    def names(self) -> list[str]:
        """The variant's four files: training images and labels, test images and labels."""
        parts = ("train-images-idx3", "train-labels-idx1", "test-images-idx3", "test-labels-idx1")
        return [f"emnist-{self.variant}-{part}-ubyte" for part in parts]

    def _archive(self, root: Path | None) -> Path | None:
        """torchvision's archive, if the files do not lie beside it singly."""
        return None if all(_file(root, "EMNIST", name) for name in self.names()) else files.first(root, [EMNIST_ZIP])


def check_idx(name: str, raw: bytes) -> None:
    """Refuse an IDX file whose header and length disagree, and pictures that are not 28 × 28."""
    dims = 3 if "idx3" in name else 1
    if len(raw) < 4 + 4 * dims or raw[:4] != bytes([0, 0, 8, dims]):
        raise DataError(f"{name}: no IDX file of unsigned bytes with {dims} dimension(s)")
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(dims)]
    expected = 4 + 4 * dims + int(np.prod(shape))
    if len(raw) != expected:
        raise DataError(
            f"{name}: {len(raw)} bytes, its header announces {expected}; truncated or damaged, fetch it again"
        )
    if dims == 3 and shape[1:] != [28, 28]:
        raise DataError(f"{name}: pictures of {shape[1]} × {shape[2]}; allowed: 28 × 28")


def _read(
    folder_name: str,
    content: Mapping[str, bytes],
    n_classes: int,
    make: Callable[[ModuleType, Path, bool], Any],
    first_label: int = 0,
) -> Tensors:
    """Four IDX files through torchvision's class, which gets a folder with nothing but them."""
    for name, raw in content.items():
        check_idx(name, raw)
    tensors: Tensors = {}
    with scratch() as folder:
        raw_folder = folder / folder_name / "raw"
        raw_folder.mkdir(parents=True)
        for name, raw in content.items():
            (raw_folder / name).write_bytes(raw)
        for part, train in (("train", True), ("test", False)):
            read = make(torchvision_datasets(), folder, train)
            x, y = read.data.unsqueeze(1), read.targets.long() - first_label
            check_labels(f"{folder_name} {part}", x, y, n_classes)
            tensors |= {f"x_{part}": x, f"y_{part}": y}
    return tensors


def _file(root: Path | None, folder: str, name: str) -> Path | None:
    """Where an IDX file lies, unpacked or packed."""
    return files.first(root, [f"{folder}/raw/{name}", f"{folder}/raw/{name}.gz"])


def _required(dataset: str, root: Path | None, folder: str, name: str) -> Path:
    """The same, or the one line about what is missing."""
    path = _file(root, folder, name)
    if path is None:
        raise files.missing(dataset, root, f"{folder}/raw/{name} or {name}.gz", how(dataset))
    return path


def _zipped(archive: Path, name: str) -> bytes:
    """One unpacked file of torchvision's EMNIST archive."""
    try:
        with zipfile.ZipFile(archive) as opened:
            return gzip.decompress(opened.read(f"gzip/{name}.gz"))
    except (zipfile.BadZipFile, KeyError, OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{archive}: {name} cannot be unpacked ({error}); truncated or damaged, fetch it again"
        ) from error


@lru_cache(maxsize=8)
def _zip_digest(archive: Path, names: tuple[str, ...], size: int, changed: int) -> str:
    """The content digest of four files inside the archive, once a process and state of the archive."""
    return content_digest([hashlib.sha256(_zipped(archive, name)).hexdigest() for name in names])
