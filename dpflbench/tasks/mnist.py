"""MNIST, embedded in the package: any machine can run the main job and the MNIST paper suite offline.

`data/mnist.idx.xz` holds the four original IDX files one after the other; `data/mnist.md` says where they come from.
"""

import hashlib
import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from dpflbench.errors import DataError
from dpflbench.interfaces import Availability, Examples
from dpflbench.tasks.cache import Tensors, cached

EMBEDDED = Path(__file__).parent / "data" / "mnist.idx.xz"
LICENCE = "CC BY-SA 3.0 (LeCun, Cortes, Burges)"


@dataclass(frozen=True, slots=True)
class IdxFile:
    """One original file: its dimensions and the SHA-256 of its unpacked content."""

    shape: tuple[int, ...]
    sha256: str

    @property
    def header(self) -> bytes:
        """Two zeros, type 8 (unsigned byte), number of dimensions, then each dimension as a big-endian 32-bit
        number.
        """
        return bytes([0, 0, 8, len(self.shape)]) + b"".join(size.to_bytes(4, "big") for size in self.shape)


CONTENT = {
    "train-images-idx3-ubyte": IdxFile(
        (60_000, 28, 28), "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
    ),
    "train-labels-idx1-ubyte": IdxFile((60_000,), "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    "t10k-images-idx3-ubyte": IdxFile(
        (10_000, 28, 28), "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
    ),
    "t10k-labels-idx1-ubyte": IdxFile((10_000,), "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
}
TENSORS = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True, slots=True)
class Mnist:
    """70,000 handwritten digits, 28 × 28 grey, 10 classes; in the package, so the data folder is not looked at."""

    def availability(self, root: Path | None) -> Availability:
        """Present unless the installation is broken."""
        found = EMBEDDED.exists()
        detail = "complete, embedded in the package" if found else f"{EMBEDDED.name} is missing from the installation"
        return Availability(found, str(EMBEDDED), detail, LICENCE, "pip install --force-reinstall dpflbench")

    def digest(self, root: Path | None) -> str:
        """SHA-256 over the digests of the four unpacked files; `load` checks that the content has them."""
        return content_digest([file.sha256 for file in CONTENT.values()])

    def load(self, root: Path | None) -> Examples:
        """Return the official 60,000 training and 10,000 test images [1, 28, 28] as uint8."""
        tensors = cached("mnist", {"digest": self.digest(root)}, _decode)
        return Examples(tensors["x_train"], tensors["y_train"], tensors["x_test"], tensors["y_test"], n_classes=10)


def content_digest(digests: list[str]) -> str:
    """One SHA-256 for a data set of several files, from the digests of their content in a fixed order."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _decode() -> Tensors:
    """The embedded file as tensors, every part checked against its digest."""
    try:
        content = lzma.decompress(EMBEDDED.read_bytes())
    except (OSError, lzma.LZMAError) as error:
        raise DataError(f"{EMBEDDED}: unreadable ({error}); reinstall dpflbench") from error
    tensors: Tensors = {}
    start = 0
    for (name, file), tensor in zip(CONTENT.items(), TENSORS, strict=True):
        stop = start + len(file.header) + int(np.prod(file.shape))
        part = content[start:stop]
        if hashlib.sha256(part).hexdigest() != file.sha256:
            raise DataError(f"{EMBEDDED}: {name} does not have SHA-256 {file.sha256}; reinstall dpflbench")
        values = torch.frombuffer(bytearray(part[len(file.header) :]), dtype=torch.uint8).reshape(file.shape)
        tensors[tensor] = values.unsqueeze(1) if tensor.startswith("x") else values.long()
        start = stop
    return tensors
