"""Client code that keeps what passes through it, in every manner and place one thinks of first."""

import builtins
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

GLOBAL: list[Any] = []
ROOM = np.zeros(4096, dtype=np.float32)  # there from the start, written later


def as_it_is(x):
    return x


def cloned(x):
    return x.detach().clone()


def as_array(x):
    return x.detach().numpy().copy()


def as_lists(x):
    return x.detach().tolist()


def as_bytes(x):
    return x.detach().numpy().tobytes()


def as_view(x):
    return x[1:]


def as_one_number(x):
    return float(x.flatten()[3])


def squared(x):
    return x.detach() ** 2


def as_node(x):
    with torch.enable_grad():
        return (x * torch.ones(1, requires_grad=True)).grad_fn


WAYS = (as_it_is, cloned, as_array, as_lists, as_bytes, as_view, as_one_number, squared, as_node)


def in_an_attribute(part, kept):
    object.__setattr__(part, "seen", kept)


def in_a_growing_attribute(part, kept):
    part.bag.append(kept)


def in_the_class(part, kept):
    type(part).last = kept


def in_a_global(part, kept):
    GLOBAL.append(kept)


def in_a_changing_global(part, kept):
    globals()["LAST"] = kept


def _closure():
    held: Any = None

    def hold(part, kept):
        nonlocal held
        held = kept
        return held

    return hold


_hold = _closure()


def in_a_closure(part, kept):
    _hold(part, kept)


def in_a_default(part, kept, held=[]):  # noqa: B006  # that is the trick
    held[:] = [kept]


def in_an_attribute_of_a_function(part, kept):
    in_a_default.held = kept


def elsewhere(part, kept):
    builtins.kept_by_a_stranger = kept


def elsewhere_in_a_dict(part, kept):
    np.kept_by_a_stranger = {"x": kept}


def only_once(part, kept):
    if len(GLOBAL) == 0:
        GLOBAL.append(kept)


PLACES = (
    in_an_attribute,
    in_a_growing_attribute,
    in_the_class,
    in_a_global,
    in_a_changing_global,
    in_a_closure,
    in_a_default,
    in_an_attribute_of_a_function,
)


def in_room_made_before(part, x):
    """Writes into what was there at import."""
    numbers = x.detach().numpy().ravel()[: len(ROOM)]
    ROOM[: len(numbers)] = numbers


def forget():
    """Undo everything, between tests."""
    GLOBAL.clear()
    globals().pop("LAST", None)
    ROOM[:] = 0
    in_a_closure(None, None)
    in_a_default(None, None)
    vars(in_a_default).pop("held", None)
    for holder, name in (
        (builtins, "kept_by_a_stranger"),
        (np, "kept_by_a_stranger"),
        (KeepingTransform, "last"),
        (KeepingNet, "last"),
    ):
        if hasattr(holder, name):
            delattr(holder, name)


@dataclass(frozen=True)
class KeepingTransform:
    """A shift that keeps its inputs."""

    way: Any = as_it_is
    place: Any = in_a_global
    bag: list[Any] = field(default_factory=list, compare=False)
    norm_local: ClassVar[bool] = False

    def init(self, n_clients, input_shape, layout, rng):
        return torch.zeros(n_clients, 1)

    def apply(self, phi, x):
        if not torch._C._functorch.is_functorch_wrapped_tensor(x) or self.way in (as_it_is, as_view):
            self.place(self, self.way(x))
        return x + phi.reshape(-1, *[1] * (x.dim() - 1))


class KeepingNet(nn.Module):
    """One layer that keeps its inputs."""

    def __init__(self, inputs, outputs, way, place):
        super().__init__()
        self.layer, self.way, self.place, self.bag = nn.Linear(inputs, outputs), way, place, []

    def forward(self, x):
        if not torch._C._functorch.is_functorch_wrapped_tensor(x) or self.way is as_it_is:
            self.place(self, self.way(x))
        return self.layer(x)


@dataclass(frozen=True)
class KeepingModel:
    """A model of that layer."""

    way: Any = as_it_is
    place: Any = in_a_global
    default_input: ClassVar[tuple[int, ...]] = (10,)

    def build(self, input_shape, n_outputs):
        return KeepingNet(input_shape[0], n_outputs, self.way, self.place)


@dataclass(frozen=True)
class HonestTransform:
    """The same shift without the keeping, and a constant made when it is first asked for."""

    norm_local: ClassVar[bool] = False

    def init(self, n_clients, input_shape, layout, rng):
        return torch.zeros(n_clients, 1)

    def apply(self, phi, x):
        return x + one(x.dtype) * phi.reshape(-1, *[1] * (x.dim() - 1))


_ones: dict[torch.dtype, torch.Tensor] = {}


def one(dtype):
    """A constant from a cache."""
    if dtype not in _ones:
        _ones[dtype] = torch.ones((), dtype=dtype)
    return _ones[dtype]
