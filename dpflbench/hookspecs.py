"""The hooks of dpflbench, nothing else.

Each takes no argument and returns a mapping from name to factory, so nothing runs when a plugin is loaded. A factory's
keyword parameters (names, types, defaults) are the configuration schema of the part: a frozen dataclass is its own
factory.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pluggy

hookspec = pluggy.HookspecMarker("dpflbench")
Factories = Mapping[str, Callable[..., Any]]


@hookspec
def dpflbench_mechanisms() -> Factories:  # type: ignore[empty-body]
    """Return name → factory of `interfaces.Mechanism`: what noise is drawn and what a release costs."""


@hookspec
def dpflbench_selectors() -> Factories:  # type: ignore[empty-body]
    """Return name → factory of `interfaces.Selector`: who takes part how often."""


@hookspec
def dpflbench_aggregators() -> Factories:  # type: ignore[empty-body]
    """Return name → factory of `interfaces.Aggregator`: noisy updates to one direction."""


@hookspec
def dpflbench_transforms() -> Factories:  # type: ignore[empty-body]
    """Return name → factory of `interfaces.LocalTransform`: what each client keeps in front of the shared model."""


@hookspec
def dpflbench_algorithms() -> Factories:  # type: ignore[empty-body]
    """Return name → factory of `interfaces.Algorithm`: a named combination of parts."""


@hookspec
def dpflbench_datasets() -> Factories:  # type: ignore[empty-body]
    """Return name → factory of `interfaces.Dataset`: examples with labels, and where they come from."""


@hookspec
def dpflbench_models() -> Factories:  # type: ignore[empty-body]
    """Return name → factory of `interfaces.Model`: an `nn.Module` for a given input shape and number of outputs."""


@hookspec
def dpflbench_sections() -> Factories:  # type: ignore[empty-body]
    """Return name → factory of `report.sections.Section`: tables and charts that a report gets when a suite asks."""
