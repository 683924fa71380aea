"""Check of features: what the model sees of an example, fitted on training examples and on nothing else."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpflbench.errors import DpflbenchError
from dpflbench.interfaces import Features
from dpflbench.testing.factories import named, obtain
from dpflbench.testing.rules import (
    attempt,
    difference,
    keep,
    needs_methods,
    no_global_draws,
    pickled,
    refuse,
    unchanged,
)

TRAIN, TEST = 90, 20


def check_feature(part: Any, who: str = "") -> None:
    """Raise ConformanceError at the first broken rule; `part` is a Features or a factory of one."""
    who = named(part, "feature", who)
    features = obtain(part, who)
    needs_methods(who, features, Features, {"fit_apply": 2})
    if not isinstance(getattr(features, "costly", None), bool):
        refuse(
            who,
            "has no costly",
            "True or False: whether the result is kept on disk",
            "add `costly: ClassVar[bool] = False`",
        )
    pickled(who, features)
    if not any([_served(who, features, *world) for world in (_rows(), _images())]):
        refuse(
            who,
            f"declines rows of 60 numbers and images of 8 × 8, {TRAIN} of them each",
            "features of one of them at least",
            "raise DpflbenchError only for data it cannot serve",
        )


def _rows() -> tuple[Tensor, Tensor]:
    both = torch.from_numpy(np.random.default_rng(1).normal(3.0, 2.0, (TRAIN + TEST, 60)).astype(np.float32))
    return both[:TRAIN], both[TRAIN:]


def _images() -> tuple[Tensor, Tensor]:
    both = torch.from_numpy(np.random.default_rng(2).integers(0, 256, (TRAIN + TEST, 1, 8, 8)).astype(np.uint8))
    return both[:TRAIN], both[TRAIN:]


def _served(who: str, features: Any, train: Tensor, test: Tensor) -> bool:
    """Whether features were made, by all the rules; False if they decline such data."""
    made = _made(who, features, train, test)
    if made is None:
        return False
    for name, x, given in (("train", made[0], train), ("test", made[1], test)):
        found = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        if not isinstance(x, Tensor) or x.dtype != torch.float32 or len(x) != len(given) or x.dim() < 2:
            refuse(who, f"the {name} part is {found}", f"float32 ({len(given)}, …)", "return a row an example")
        if not bool(x.isfinite().all()):
            refuse(who, f"the {name} part holds non-finite numbers", "finite features", "divide by no spread of 0")
    if made[0].shape[1:] != made[1].shape[1:]:
        refuse(
            who,
            f"rows of the two parts have shapes {tuple(made[0].shape[1:])} and {tuple(made[1].shape[1:])}",
            "one shape",
            "apply one map to both",
        )
    if difference(made, _made(who, features, train, test)):
        refuse(who, "two fits to the same data differ", "a map that its data determines", "draw nothing, keep nothing")
    _fitted_on_train_alone(who, features, train, test, made)
    if not getattr(features, "fitted", True):
        _fitted_on_nothing(who, features, train, test, made)
    return True


def _made(who: str, features: Any, train: Tensor, test: Tensor) -> Any:
    """Features of both parts; None where DpflbenchError declines the data."""

    def quietly() -> Any:
        try:
            return features.fit_apply(train, test)
        except DpflbenchError:
            return None

    what, before = "fit_apply(train, test)", keep((features, train, test))
    with no_global_draws(who, what):
        made = attempt(who, what, "features of both parts", quietly)
    for name, old, new in zip(("itself", "train", "test"), before, (features, train, test), strict=True):
        unchanged(who, what, old, new, name)
    if made is not None and not (isinstance(made, tuple) and len(made) == 2):
        refuse(who, f"{what} returns {type(made).__name__}", "a pair (train, test)", "return both parts")
    return made


def _fitted_on_nothing(who: str, features: Any, train: Tensor, test: Tensor, made: tuple[Tensor, Tensor]) -> None:
    """Other training examples move nothing where a map says that it depends on no data."""
    other = torch.cat([train[:5], train[5:] // 2 if train.dtype == torch.uint8 else train[5:] * 10 - 3])
    again = _made(who, features, other, test)
    rest = [(made[0][:5], again[0][:5]), (made[1], again[1])] if again is not None else []
    if not rest or not all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in rest):
        refuse(
            who,
            "says fitted = False, and other training examples change the features of the rest",
            "a map that depends on no data",
            "make each row of its own example alone, or leave out `fitted`",
        )


def _fitted_on_train_alone(who: str, features: Any, train: Tensor, test: Tensor, made: tuple[Tensor, Tensor]) -> None:
    """Other test examples move nothing: neither the training part nor those that stay."""
    other = torch.cat([test[:5], test[5:] // 2 if test.dtype == torch.uint8 else test[5:] * 10 - 3])
    again = _made(who, features, train, other)
    same = again is not None and not difference(made[0], again[0])
    if not same or not torch.allclose(made[1][:5], again[1][:5], rtol=1e-4, atol=1e-5):
        refuse(
            who,
            "other test examples change the features of the rest",
            "a map fitted on the training part alone",
            "take means, spreads and directions from train",
        )
