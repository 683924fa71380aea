"""CIFAR-10 from the folder or the archive that torchvision downloads."""

import hashlib
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

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

FOLDER, ARCHIVE = "cifar-10-batches-py", "cifar-10-python.tar.gz"
CONTENT = {
    "data_batch_1": "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
    "data_batch_2": "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
    "data_batch_3": "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
    "data_batch_4": "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
    "data_batch_5": "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
    "test_batch": "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831",
    "batches.meta": "f962466ef690d46b226450fb9aadc74ba4bc64a76aa526b5827fe4bc5c7125cb",
}


@dataclass(frozen=True, slots=True)
class Cifar10:
    """60,000 colour pictures, 32 × 32, 10 classes; cifar-10-batches-py or cifar-10-python.tar.gz in the data folder."""

    def availability(self, root: Path | None) -> Availability:
        """Present if all batches are, or the archive."""
        lacking = [name for name in CONTENT if files.first(root, [f"{FOLDER}/{name}"]) is None]
        if lacking and files.first(root, [ARCHIVE]) is not None:
            lacking = []
        return available("cifar10", root, FOLDER, lacking, "none stated (cite Krizhevsky 2009)")

    def digest(self, root: Path | None) -> str:
        """SHA-256 over the digests of the seven files, each checked; an archive's are checked when it is unpacked."""
        for name, path in _batches(root).items():
            expect(path, files.sha256(path, root), CONTENT[name])
        return content_digest(list(CONTENT.values()))

    def load(self, root: Path | None) -> Examples:
        """Return the official 50,000 training and 10,000 test images [3, 32, 32] as uint8."""

        def build() -> Tensors:
            with scratch() as folder:
                _unpack(root, folder / FOLDER)
                tensors: Tensors = {}
                for part, train in (("train", True), ("test", False)):
                    read = torchvision_datasets().CIFAR10(folder, train=train)
                    x = torch.from_numpy(np.ascontiguousarray(read.data.transpose(0, 3, 1, 2)))
                    y = torch.tensor(read.targets, dtype=torch.int64)
                    check_labels(f"CIFAR-10 {part}", x, y, 10)
                    tensors |= {f"x_{part}": x, f"y_{part}": y}
            return tensors

        return examples_of(cached("cifar10", {"digest": self.digest(root)}, build), 10)

    def download(self, root: Path) -> None:
        """Fetch it into root through torchvision."""
        download("cifar10", lambda module: module.CIFAR10(root, download=True))


def _batches(root: Path | None) -> dict[str, Path]:
    """Where each unpacked file lies; nothing if there is only the archive."""
    found = {name: files.first(root, [f"{FOLDER}/{name}"]) for name in CONTENT}
    there = {name: path for name, path in found.items() if path is not None}
    if len(there) < len(found):
        if files.first(root, [ARCHIVE]) is not None:
            return {}
        lacking = next(name for name, path in found.items() if path is None)
        raise files.missing("cifar10", root, f"{FOLDER}/{lacking} or {ARCHIVE}", how("cifar10"))
    return there


def _unpack(root: Path | None, folder: Path) -> None:
    """Checked copies for torchvision, which unpickles them: nothing is unpickled that does not have the published
    digest.
    """
    folder.mkdir()
    for name, path, content in _content(root):
        expect(path, hashlib.sha256(content).hexdigest(), CONTENT[name])
        (folder / name).write_bytes(content)


def _content(root: Path | None) -> Iterator[tuple[str, Path, bytes]]:
    """Name, place and content of the seven files."""
    for name, path in _batches(root).items():
        yield name, path, files.read(path)
    archive = files.first(root, [ARCHIVE])
    if _batches(root) or archive is None:
        return
    try:
        with tarfile.open(archive) as opened:
            for name in CONTENT:
                member = opened.extractfile(f"{FOLDER}/{name}")
                yield name, archive / FOLDER / name, member.read() if member else b""
    except (tarfile.TarError, OSError, EOFError, KeyError) as error:
        raise DataError(f"{archive}: cannot be unpacked ({error}); truncated or damaged, fetch it again") from error
