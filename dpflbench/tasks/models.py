"""The models of the paper with its exact parameter counts, and what a module must be like to be learnt privately.

A sample's gradient must be its own affair: a module with batch statistics has none (one sample moves the others'
outputs, and the running averages are an un-noised release), so GroupNorm with affine parameters stands where the paper
has BatchNorm. The number of parameters stays the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from torch import Tensor, nn

from dpflbench.errors import DpflbenchError


def _chw(name: str, input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width of an image shape; a flat image has one channel."""
    if len(input_shape) == 2:
        return (1, *input_shape)
    if len(input_shape) == 3:
        return input_shape[0], input_shape[1], input_shape[2]
    raise DpflbenchError(
        f"model {name}: input shape {input_shape}; allowed: images, (height, width) or (channels, height, width)"
    )


def _flat(name: str, size: int, input_shape: tuple[int, ...]) -> int:
    if size <= 0:
        raise DpflbenchError(
            f"model {name}: input shape {input_shape} is too small for its convolutions; give it larger images"
        )
    return size


def _image_first(input_shape: tuple[int, ...]) -> list[nn.Module]:
    return [nn.Unflatten(1, (1, input_shape[0]))] if len(input_shape) == 2 else []


def _affine(input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
    size = 1
    for n in input_shape:
        size *= n
    linear = nn.Linear(size, n_outputs)
    return linear if len(input_shape) == 1 else nn.Sequential(nn.Flatten(), linear)


@dataclass(frozen=True, slots=True)
class Linear:
    """Linear regression: one affine map, 11 parameters on Lending Club."""

    default_input: ClassVar[tuple[int, ...]] = (10,)
    default_outputs: ClassVar[int] = 1

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        """Return one Linear layer."""
        return _affine(input_shape, n_outputs)


@dataclass(frozen=True, slots=True)
class Softmax:
    """Multinomial logistic regression: the same affine map under cross-entropy, the convex case of the theory."""

    default_input: ClassVar[tuple[int, ...]] = (50,)
    default_outputs: ClassVar[int] = 10

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        """Return one Linear layer."""
        return _affine(input_shape, n_outputs)


@dataclass(frozen=True, slots=True)
class MnistCnn:
    """Two small convolutions and one linear layer: 4,266 parameters on MNIST."""

    default_input: ClassVar[tuple[int, ...]] = (1, 28, 28)
    default_outputs: ClassVar[int] = 10

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        """Conv 4, pool, conv 8, pool, linear; convolutions are 3×3 and keep the size."""
        c, h, w = _chw("mnist_cnn", input_shape)
        flat = _flat("mnist_cnn", 8 * (h // 4) * (w // 4), input_shape)
        return nn.Sequential(
            *_image_first(input_shape),
            nn.Conv2d(c, 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(flat, n_outputs),
        )


def _lenet_tail(name: str, input_shape: tuple[int, ...], n_outputs: int) -> list[nn.Module]:
    """The three linear layers after a size-keeping and an unpadded 5×5 convolution, each followed by a pool."""
    _, h, w = _chw(name, input_shape)
    flat = _flat(name, 16 * max(0, (h // 2 - 4) // 2) * max(0, (w // 2 - 4) // 2), input_shape)
    return [nn.Flatten(), nn.Linear(flat, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, n_outputs)]


@dataclass(frozen=True, slots=True)
class LeNet5:
    """LeNet-5 with ReLU and max pooling: 61,706 parameters on Fashion-MNIST."""

    default_input: ClassVar[tuple[int, ...]] = (1, 28, 28)
    default_outputs: ClassVar[int] = 10

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        """Conv 6, pool, conv 16, pool, linear 120, 84 and the outputs."""
        c, _, _ = _chw("lenet5", input_shape)
        return nn.Sequential(
            *_image_first(input_shape),
            nn.Conv2d(c, 6, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            *_lenet_tail("lenet5", input_shape, n_outputs),
        )


@dataclass(frozen=True, slots=True)
class FemnistCnn:
    """Two normalised convolutions and three linear layers: 67,026 parameters on FEMNIST."""

    groups: int = 4  # of GroupNorm, in place of BatchNorm

    default_input: ClassVar[tuple[int, ...]] = (1, 28, 28)
    default_outputs: ClassVar[int] = 62

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        """Conv 8, norm, pool, conv 16, norm, pool, linear 120, 84 and the outputs."""
        c, _, _ = _chw("femnist_cnn", input_shape)
        return nn.Sequential(
            *_image_first(input_shape),
            nn.Conv2d(c, 8, 5, padding=2),
            _group_norm("femnist_cnn", self.groups, 8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 5),
            _group_norm("femnist_cnn", self.groups, 16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            *_lenet_tail("femnist_cnn", input_shape, n_outputs),
        )


def _group_norm(name: str, groups: int, channels: int) -> nn.GroupNorm:
    if groups < 1 or channels % groups:
        raise DpflbenchError(f"model {name}: groups = {groups}; allowed: divisors of its {channels} channels")
    return nn.GroupNorm(groups, channels)


class _Block(nn.Module):
    """Two 3×3 convolutions with a shortcut; where width changes, the shortcut is a 1×1 convolution and a norm (option
    B).
    """

    def __init__(self, before: int, width: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, padding=1, bias=False)
        self.norm1 = _group_norm("resnet20", groups, width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = _group_norm("resnet20", groups, width)
        self.shortcut: nn.Module = nn.Identity()
        if before != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, width, 1, stride, bias=False), _group_norm("resnet20", groups, width)
            )
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(shortcut(x) + two convolutions of x)."""
        out = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        result: Tensor = self.relu(out + self.shortcut(x))
        return result


@dataclass(frozen=True, slots=True)
class ResNet20:
    """ResNet-20 of He et al. for CIFAR-10, widths 16, 32, 64, option-B shortcuts: 272,474 parameters."""

    groups: int = 8  # of GroupNorm, in place of BatchNorm

    default_input: ClassVar[tuple[int, ...]] = (3, 32, 32)
    default_outputs: ClassVar[int] = 10

    def build(self, input_shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        """Conv 16, nine blocks in three stages, mean over the map, linear."""
        c, _, _ = _chw("resnet20", input_shape)
        widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
        blocks = [_Block(b, w, 1 if b == w else 2, self.groups) for b, w in pairwise(widths)]
        return nn.Sequential(
            *_image_first(input_shape),
            nn.Conv2d(c, 16, 3, padding=1, bias=False),
            _group_norm("resnet20", self.groups, 16),
            nn.ReLU(),
            *blocks,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(64, n_outputs),
        )


MODELS: dict[str, Callable[..., Any]] = {
    "linear": Linear,
    "softmax": Softmax,
    "mnist_cnn": MnistCnn,
    "lenet5": LeNet5,
    "femnist_cnn": FemnistCnn,
    "resnet20": ResNet20,
}


def parameter_count(module: nn.Module) -> int:
    """The length of theta."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def layer_name(name: str, layer: nn.Module) -> str:
    """What messages call a layer: its path from the model, and its type."""
    return f"{'model.' if name else 'model'}{name} ({type(layer).__name__})"


def check_module(module: nn.Module) -> None:
    """Refuse, by name and with the reason, a module whose samples have no gradients of their own."""
    for name, part in module.named_modules():
        where = layer_name(name, part)
        if isinstance(part, nn.modules.batchnorm._NormBase):
            per_sample = isinstance(part, nn.modules.instancenorm._InstanceNorm) and not part.track_running_stats
            if not per_sample:
                raise DpflbenchError(
                    f"{where} keeps batch statistics, which couple samples; use GroupNorm or LayerNorm"
                )
        rate = part.p if isinstance(part, nn.modules.dropout._DropoutNd) else getattr(part, "dropout", 0.0)
        if isinstance(rate, float | int) and rate > 0:
            raise DpflbenchError(f"{where} draws dropout masks outside the run's streams; set its rate to 0")
    owners: dict[int, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if id(parameter) in owners:
            raise DpflbenchError(
                f"{name}: shares its parameter with {owners[id(parameter)]}; each place needs a parameter of its own"
            )
        owners[id(parameter)] = name
    if not any(p.requires_grad for p in module.parameters()):
        raise DpflbenchError(f"{type(module).__name__}: has no trainable parameters; at least one is needed")
