"""Task: a data set dealt out to clients, resident on the device.

Client data is one flat tensor sorted by client with offsets, so sizes may be ragged without padding and the samples of
a client are a slice.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from dpflbench.interfaces import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Shards:
    """Examples by owner: those of client n are rows offsets[n] to offsets[n + 1]."""

    x: Tensor  # [M, ...] on the device: float32, or uint8 images that are scaled when used
    y: Tensor  # [M]
    offsets: Ints  # [N + 1] on the host

    @property
    def sizes(self) -> Ints:
        """Examples of each client [N]."""
        return self.offsets[1:] - self.offsets[:-1]


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What a federation learns from and is measured on."""

    train: Shards
    holdout: Shards  # each client's own held-out shard, for personal utility; not counted in n_examples
    test_x: Tensor
    test_y: Tensor
    n_classes: int  # 0 for regression
    references: Mapping[str, float]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return tuple(self.train.x.shape[1:])

    @property
    def n_outputs(self) -> int:
        """Outputs a model needs: one a class, or one number."""
        return self.n_classes or 1
