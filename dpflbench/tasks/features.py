"""What the model sees of an example: principal components, standardised or flattened values.

Fitted on the training pool (held-out shards included, the test part never) and declared public preprocessing: it is not
paid for from anybody's budget. Without features the model sees the example itself, images scaled to [0, 1]. `FEATURES`
is what the plugin `parts` hands over.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from dpflbench.errors import DpflbenchError
from dpflbench.interfaces import Features

ROWS = 8192  # rows in float64 at a time


@dataclass(frozen=True, slots=True)
class Pca:
    """The first principal components of the flattened example, centred on the training mean.

    `scale` says how large they are made. `overall`: all components are divided by one number, so that the mean squared
    norm of a training example is 1; directions keep their relative spread, and clip norm and learning rate mean the
    same whatever the pixel range or the number of components. `each`: every component is divided by its own standard
    deviation. `none`: as projected. `standardise` first gives each input column unit variance, for columns in different
    units. Signs are fixed: a component's largest loading is positive.
    """

    components: int = 50
    scale: Literal["overall", "each", "none"] = "overall"
    standardise: bool = False
    costly: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.components < 1:
            raise DpflbenchError(f"components: {self.components}; allowed: a whole number ≥ 1")

    def fit_apply(self, train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
        """Eigenvectors of the training covariance in float64, applied to both parts."""
        rows, columns = len(train), train[0].numel()
        if self.components > min(rows - 1, columns):
            raise DpflbenchError(
                f"pca.components: {self.components}; allowed: at most {min(rows - 1, columns)} "
                f"with {rows} examples of {columns} values"
            )
        mean, covariance = _moments(train)
        if self.standardise:
            spread = _safe_root(covariance.diagonal())
            covariance = covariance / spread[:, None] / spread
        else:
            spread = torch.ones(columns, dtype=torch.float64)
        values, vectors = torch.linalg.eigh(covariance)  # ascending
        values, vectors = values.flip(0)[: self.components].clamp_min(0.0), vectors.flip(1)[:, : self.components]
        vectors = vectors * vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
        if self.scale == "each":
            vectors = vectors / _safe_root(values)
        elif self.scale == "overall":
            vectors = vectors / _safe_root(values.sum())
        projection = vectors / spread[:, None]  # [columns, components]
        return _project(train, mean, projection), _project(test, mean, projection)


@dataclass(frozen=True, slots=True)
class Standardise:
    """Zero mean and unit variance, a channel at a time for images and a column at a time otherwise."""

    costly: ClassVar[bool] = False

    def fit_apply(self, train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
        """Training mean and standard deviation, applied to both parts; a constant column becomes 0."""
        images = train.dim() == 4  # [M, C, H, W]
        axes = (0, 2, 3) if images else (0,)
        zero = torch.zeros((), dtype=torch.float64)
        count = len(train) * (train.shape[2] * train.shape[3] if images else 1)
        mean = sum((part.sum(axes, keepdim=True) for part in _parts(train)), zero) / count
        spread = _safe_root(sum((((part - mean) ** 2).sum(axes, keepdim=True) for part in _parts(train)), zero) / count)
        return _standardised(train, mean.float(), spread.float()), _standardised(test, mean.float(), spread.float())


@dataclass(frozen=True, slots=True)
class Flatten:
    """One row of numbers an example; images scaled to [0, 1]."""

    costly: ClassVar[bool] = False
    fitted: ClassVar[bool] = False

    def fit_apply(self, train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
        """Both parts as [M, values]."""
        return as_float(train).flatten(1), as_float(test).flatten(1)


FEATURES: dict[str, type[Features]] = {"pca": Pca, "standardise": Standardise, "flatten": Flatten}


def as_float(x: Tensor) -> Tensor:
    """Float32 as a model takes it: uint8 images become [0, 1], anything else keeps its values."""
    return x.float().div_(255.0) if x.dtype == torch.uint8 else x.float()


def _parts(x: Tensor) -> Iterator[Tensor]:
    """Some examples at a time in float64, images divided by 255."""
    for part in torch.split(x, ROWS):
        yield part.double() / 255.0 if x.dtype == torch.uint8 else part.double()


def _standardised(x: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """(x - mean) / spread as float32, without changing x and with one copy at most of what may be large."""
    values = as_float(x)
    return (values - mean if values is x else values.sub_(mean)).div_(spread)


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [P] and covariance [P, P] (divided by M)."""
    rows = x.flatten(1)
    zero = torch.zeros((), dtype=torch.float64)
    mean = sum((part.sum(0) for part in _parts(rows)), zero) / len(x)
    covariance = sum(((part - mean).T @ (part - mean) for part in _parts(rows)), zero) / len(x)
    return mean, covariance


def _project(x: Tensor, mean: Tensor, projection: Tensor) -> Tensor:
    """(x - mean) @ projection as float32."""
    return torch.cat([((part - mean) @ projection).float() for part in _parts(x.flatten(1))])


def _safe_root(variance: Tensor) -> Tensor:
    """Standard deviations to divide by: 1 where there is no spread."""
    return torch.where(variance > 1e-12, variance.clamp_min(1e-12).sqrt(), torch.ones_like(variance))
