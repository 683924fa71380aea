"""The hooks of dpflbench: one line of `KINDS` a kind of part.

The hook of a kind is `dpflbench_` and its name (`dpflbench_models`). It takes no argument and returns a mapping from
name to factory, so nothing runs when a plugin is loaded. A factory's keyword parameters (names, types, defaults) are
the configuration schema of the part: a frozen dataclass is its own factory. `dpflbench.testing` has a `check_` for each
kind (`check_model`).
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pluggy

from dpflbench import interfaces as i

hookspec = pluggy.HookspecMarker("dpflbench")
Factories = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of part."""

    interface: Any  # what its factories make
    decides: str
    tag: Literal["name", "kind"] = "name"  # under which a suite names one: `{name: softmax}`, `{kind: iid}`

    @property
    def methods(self) -> list[str]:
        """What a part must be able to do: the methods of its interface."""
        own = vars(self.interface).items()
        return [name for name, value in own if inspect.isfunction(value) and not name.startswith("_")]


KINDS: Mapping[str, Kind] = {
    "mechanisms": Kind(i.Mechanism, "what noise is drawn and what a release costs"),
    "selectors": Kind(i.Selector, "who takes part how often"),
    "aggregators": Kind(i.Aggregator, "what the server makes of noisy updates"),
    "transforms": Kind(i.LocalTransform, "what each client keeps in front of the shared model"),
    "algorithms": Kind(i.Algorithm, "which selector, aggregator and transform make one row of a table"),
    "datasets": Kind(i.Dataset, "examples with labels, and where they come from"),
    "features": Kind(i.Features, "what the model sees of an example", "kind"),
    "partitions": Kind(i.Partition, "who owns which example", "kind"),
    "budgets": Kind(i.Distribution, "the distribution epsilons or deltas are drawn from", "kind"),
    "models": Kind(i.Model, "an `nn.Module` for a given input shape and number of outputs"),
}


def kind_of(annotation: Any) -> str | None:
    """The kind whose parts an annotation asks for; None for anything else."""
    wanted = typing.get_origin(annotation) or annotation
    return next((name for name, kind in KINDS.items() if kind.interface is wanted), None)


def _hook(name: str, kind: Kind) -> Callable[[], Factories]:
    def hook() -> Factories:  # type: ignore[empty-body]
        """Named and described below."""

    hook.__name__ = hook.__qualname__ = f"dpflbench_{name}"
    hook.__doc__ = f"Return name → factory of `interfaces.{kind.interface.__name__}`: {kind.decides}."
    return hookspec(hook)


HOOKS: Mapping[str, Callable[[], Factories]] = {f"dpflbench_{name}": _hook(name, kind) for name, kind in KINDS.items()}
