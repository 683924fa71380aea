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
    def interfaces(self) -> tuple[Any, ...]:
        """The interfaces of which one will do."""
        return typing.get_args(self.interface) or (self.interface,)

    @property
    def title(self) -> str:
        """The name of the interface."""
        return " or ".join(interface.__name__ for interface in self.interfaces)

    def missing(self, factory: type) -> str:
        """What a class lacks of the interface its parts must have; of several that will do, of each."""
        lacks = []
        for interface in self.interfaces:
            own = [n for n, value in vars(interface).items() if inspect.isfunction(value) and not n.startswith("_")]
            lacks.append(", ".join(n for n in own if not callable(getattr(factory, n, None))))
        return " or ".join(f"{names}()" for names in lacks) if all(lacks) else ""


KINDS: Mapping[str, Kind] = {
    "mechanisms": Kind(i.Mechanism, "what noise is drawn"),
    "accountants": Kind(i.Accountant, "what releases cost, how much noise a budget needs, and who else says so"),
    "local_updates": Kind(i.LocalUpdate, "what a participation computes, and how far one record moves it", "kind"),
    "selectors": Kind(i.Selector, "who takes part how often"),
    "aggregators": Kind(i.Aggregator, "what the server makes of noisy updates"),
    "transforms": Kind(i.LocalTransform, "what each client keeps in front of the shared model"),
    "algorithms": Kind(i.Algorithm, "which selector, aggregator and transform make one row of a table"),
    "datasets": Kind(i.Dataset, "examples with labels, and where they come from"),
    "features": Kind(i.Features, "what the model sees of an example", "kind"),
    "partitions": Kind(i.Partition, "who owns which example", "kind"),
    "budgets": Kind(i.Distribution, "the distribution epsilons or deltas are drawn from", "kind"),
    "models": Kind(i.Model, "an `nn.Module` for a given input shape and number of outputs"),
    "sections": Kind(i.Section, "tables and charts that a report gets where a suite asks for them"),
}


def noun(kind: str) -> str:
    """What one part of a kind is called."""
    return kind[:-1].replace("_", " ")


def kind_of(annotation: Any) -> str | None:
    """The kind whose parts an annotation asks for; None for anything else."""
    return next((name for name, kind in KINDS.items() if kind.interface == annotation), None)


def _hook(name: str, kind: Kind) -> Callable[[], Factories]:
    def hook() -> Factories:  # type: ignore[empty-body]
        """Named and described below."""

    hook.__name__ = hook.__qualname__ = f"dpflbench_{name}"
    hook.__doc__ = f"Return name → factory of `interfaces.{kind.title}`: {kind.decides}."
    return hookspec(hook)


HOOKS: Mapping[str, Callable[[], Factories]] = {f"dpflbench_{name}": _hook(name, kind) for name, kind in KINDS.items()}
