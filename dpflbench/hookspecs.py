"""The hooks of dpflbench: one line of `KINDS` a kind of part.

The hook of a kind is `dpflbench_` and its name (`dpflbench_models`). It takes no argument and returns a mapping from
name to factory, so nothing runs when a plugin is loaded. A factory's keyword parameters (names, types, defaults) are
the configuration schema of the part: a frozen dataclass is its own factory. `dpflbench.testing` has a `check_` for each
kind (`check_model`).
"""

import inspect
import typing
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import pluggy

hookspec = pluggy.HookspecMarker("dpflbench")
Factories = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of part."""

    named: str  # the interface of what its factories make
    decides: str
    tag: Literal["name", "kind"] = "name"  # under which a suite names one: `{name: softmax}`, `{kind: iid}`
    methods: tuple[str, ...] = ()  # of its interface, where a part is used without torch

    @property
    def interface(self) -> Any:
        """What its factories make; looked up when asked for, because most interfaces bring torch along."""
        from dpflbench import interfaces

        return getattr(interfaces, self.named)

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
        wanted = [self.methods] if self.methods else [_methods(interface) for interface in self.interfaces]
        lacks = [", ".join(n for n in own if not callable(getattr(factory, n, None))) for own in wanted]
        return " or ".join(f"{names}()" for names in lacks) if all(lacks) else ""


def _methods(interface: Any) -> tuple[str, ...]:
    return tuple(n for n, value in vars(interface).items() if inspect.isfunction(value) and not n.startswith("_"))


KINDS: Mapping[str, Kind] = {
    "mechanisms": Kind("Mechanism", "what noise is drawn"),
    "accountants": Kind("Accountant", "what releases cost, how much noise a budget needs, and who else says so"),
    "local_updates": Kind("LocalUpdate", "what a participation computes, and how far one record moves it", "kind"),
    "local_rules": Kind("LocalRule", "how a client turns noisy gradients into steps"),
    "selectors": Kind("Selector", "who takes part how often"),
    "aggregators": Kind("Aggregator", "what the server makes of noisy updates"),
    "transforms": Kind("LocalTransform", "what each client keeps in front of the shared model"),
    "algorithms": Kind("Algorithm", "which selector, aggregator, transform and local rule make one row of a table"),
    "datasets": Kind("Dataset", "examples with labels, and where they come from"),
    "features": Kind("Features", "what the model sees of an example", "kind"),
    "partitions": Kind("Partition", "who owns which example", "kind"),
    "budgets": Kind("Distribution", "the distribution epsilons or deltas are drawn from", "kind"),
    "models": Kind("Model", "an `nn.Module` for a given input shape and number of outputs"),
    "trackers": Kind("Tracker", "where runs are shown as they end", methods=("ready", "track")),
    "sections": Kind("Section", "tables and charts of a report", methods=("contents",)),
}


def noun(kind: str) -> str:
    """What one part of a kind is called."""
    return kind[:-1].replace("_", " ")


def kind_of(annotation: Any) -> str | None:
    """The kind whose parts an annotation asks for; None for anything else."""
    return _kinds().get(annotation) if isinstance(annotation, Hashable) else None


@cache
def _kinds() -> dict[Any, str]:
    """The kind of each interface; a plan asks for it at every parameter of every part."""
    return {kind.interface: name for name, kind in KINDS.items()}


def _hook(name: str, kind: Kind) -> Callable[[], Factories]:
    def hook() -> Factories:  # type: ignore[empty-body]
        """Named and described below."""

    hook.__name__ = hook.__qualname__ = f"dpflbench_{name}"
    hook.__doc__ = f"Return name → factory of `interfaces.{kind.named}`: {kind.decides}."
    return hookspec(hook)


HOOKS: Mapping[str, Callable[[], Factories]] = {f"dpflbench_{name}": _hook(name, kind) for name, kind in KINDS.items()}
