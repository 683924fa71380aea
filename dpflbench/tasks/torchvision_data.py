"""torchvision as a reader and downloader of data sets; the data sets themselves are in idx_images.py and cifar10.py.

Files are checked before torchvision sees them. It insists on unpacked files, so it is given checked copies in a folder
that vanishes afterwards; nothing is written into the user's folder unless `download` is asked for.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from dpflbench.errors import DataError
from dpflbench.interfaces import Availability, Examples
from dpflbench.tasks.cache import Tensors

_kept_alive: list[Any] = []


def torchvision_datasets() -> ModuleType:
    """The module torchvision.datasets.

    A torchvision built for CUDA beside a CPU-only torch fails to import, because its compiled operators are not there.
    The data-set classes need none of them: when the import fails in just that way, the two missing operators are
    declared and it is tried again.
    """
    try:
        import torchvision.datasets as datasets
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        declare: Any = torch.library.Library
        library = declare("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept_alive.append(library)  # a library that is collected takes its operators along
        import torchvision.datasets as datasets
    except ImportError as error:
        raise DataError(f"torchvision: cannot be imported ({error}); pip install torchvision") from error
    return datasets  # type: ignore[no-any-return]


def download(name: str, fetch: Callable[[ModuleType], Any]) -> None:
    """Run torchvision's download; a network that does not answer is one line."""
    try:
        fetch(torchvision_datasets())
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{name}: torchvision could not download it ({reason})") from error


def how(name: str) -> str:
    """The command that gets a data set torchvision can download."""
    return f"dpflbench data get {name}"


def available(name: str, root: Path | None, folder: str, lacking: list[str], licence: str) -> Availability:
    """What to say of a folder in which some files are lacking, or none."""
    where = "no data folder given" if root is None else str(root / folder)
    more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    return Availability(
        not lacking, where, f"missing: {lacking[0]}{more}" if lacking else "complete", licence, how(name), True
    )


def expect(path: Path | None, found: str, expected: str) -> None:
    """Refuse content that is not the published one."""
    if found != expected:
        raise DataError(
            f"{path}: content has SHA-256 {found}, the published file {expected}; damaged or not it, fetch it again"
        )


def check_labels(name: str, x: Tensor, y: Tensor, n_classes: int) -> None:
    """Refuse labels outside 0 … n_classes - 1, and other numbers of labels than examples."""
    if len(x) != len(y):
        raise DataError(f"{name}: {len(x)} examples and {len(y)} labels; allowed: one label an example")
    if len(y) and (int(y.min()) < 0 or int(y.max()) >= n_classes):
        raise DataError(f"{name}: labels from {int(y.min())} to {int(y.max())}; allowed: 0 to {n_classes - 1}")


def examples_of(tensors: Tensors, n_classes: int) -> Examples:
    """Examples from the four tensors of a cache file."""
    return Examples(tensors["x_train"], tensors["y_train"], tensors["x_test"], tensors["y_test"], n_classes)
