"""The skeleton of a plugin: a complete distribution that passes `dpflbench check` as it is, to be changed bit by
bit.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dpflbench import __version__
from dpflbench.errors import DpflbenchError

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
PREFIX = "dpflbench-"


@dataclass(frozen=True, slots=True)
class Names:
    """One name in the spellings its places want."""

    plugin: str  # entry point and aggregator: my_idea
    distribution: str  # dpflbench-my-idea
    module: str  # dpflbench_my_idea
    label: str  # algorithm and class: MyIdea


def names_of(name: str) -> Names:
    """The spellings of a plugin's name; DpflbenchError if it is none."""
    short = name.removeprefix(PREFIX)
    if not NAME.fullmatch(short) or len(short) > 50:
        raise DpflbenchError(
            f"new-plugin {name[:60]!r}: not a name; allowed: small letters and digits in words joined by '-', "
            "at most 50 of them, e.g. my-idea"
        )
    plugin = short.replace("-", "_")
    return Names(plugin, PREFIX + short, f"dpflbench_{plugin}", "".join(word.capitalize() for word in short.split("-")))


def write_skeleton(name: str, folder: Path | None = None) -> tuple[Path, list[str]]:
    """Write the skeleton into a new folder (by default named like its distribution); the folder and its files."""
    names = names_of(name)
    root = folder or Path(names.distribution)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise DpflbenchError(f"new-plugin {name}: {root} is there already; give another folder by --out")
    files = skeleton(names)
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root, list(files)


def skeleton(names: Names) -> Mapping[str, str]:
    """Path → content."""
    words = {
        "@plugin@": names.plugin,
        "@distribution@": names.distribution,
        "@module@": names.module,
        "@label@": names.label,
        "@version@": __version__,
    }
    paths = {
        "pyproject.toml": PYPROJECT,
        "README.md": README,
        f"src/{names.module}/__init__.py": MODULE,
        f"src/{names.module}/py.typed": "",
        f"tests/test_{names.plugin}.py": TESTS,
        "suite.yaml": SUITE,
        ".github/workflows/dpflbench.yml": WORKFLOW,
        ".gitignore": "results/\n__pycache__/\n",
    }

    def filled(text: str) -> str:
        return re.sub("|".join(words), lambda hit: words[hit[0]], text)

    return {path: filled(text) for path, text in paths.items()}


PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.24"]
build-backend = "hatchling.build"

[project]
name = "@distribution@"
version = "0.1.0"
description = "@label@ for dpflbench"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["dpflbench>=@version@"]

[project.optional-dependencies]
dev = ["pytest>=8"]

# This line is all it takes to be found: group dpflbench, a name of your own, the module with the hooks.
[project.entry-points.dpflbench]
@plugin@ = "@module@"

[tool.hatch.build.targets.wheel]
packages = ["src/@module@"]

[tool.pytest.ini_options]
testpaths = ["tests"]
"""

README = """\
# @distribution@

Adds **@label@** to dpflbench: clients take part equally often, updates are weighed by client size.
Change that to your idea.

```
pip install -e ".[dev]"
dpflbench check @plugin@       # does it keep the rules?
pytest                         # its own tests
dpflbench run suite.yaml       # @label@ beside DPSGD and WeiAvg at the same budgets
```

| part | kind | parameters |
|---|---|---|
| `@label@` | algorithm | `power` |
| `@plugin@` | aggregator | `power`: weights are n_examples^power; 0 is the plain mean |
"""

MODULE = '''\
"""@label@: say here what it is, where it was published, and how it differs from that."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from dpflbench import hookimpl
from dpflbench.federation.schedule import even_uses
from dpflbench.hookspecs import Factories
from dpflbench.interfaces import Algorithm, Cohort, Plan, PlanView


@dataclass(frozen=True)
class EvenlyOften:
    """Who takes part how often: everybody equally. Budgets, sizes and noisy losses are in `view`."""

    def plan(self, view: PlanView, rng: np.random.Generator) -> Plan:
        """Return integer uses for the rounds left; they sum to horizon * cohort_size."""
        return Plan(even_uses(view.setup.n_clients, view.rounds_left * view.setup.cohort_size, rng), view.rounds_left)


@dataclass(frozen=True)
class @label@:
    """What the server makes of noisy updates: their mean, weighed by n_examples**power."""

    power: float = 1.0  # a parameter is a field with a type and a default; suites give it under `with:`

    def weights(self, cohort: Cohort) -> Tensor:
        """Return the weight of each client [K]; an idea that looks at updates has `init` and `aggregate` instead."""
        weights = cohort.n_examples**self.power
        return weights / weights.sum()


def algorithm(power: float = 1.0) -> Algorithm:
    """@label@: a selector, an aggregator and, if you like, a transform."""
    return Algorithm("@label@", EvenlyOften(), @label@(power))


@hookimpl
def dpflbench_aggregators() -> Factories:
    """The part, for `compose` in a suite."""
    return {"@plugin@": @label@}


@hookimpl
def dpflbench_algorithms() -> Factories:
    """The algorithm, for the `algorithms:` list of a suite."""
    return {"@label@": algorithm}
'''

TESTS = '''\
"""@label@ by hand and by dpflbench's conformance checks."""

import pytest
import torch
from @module@ import @label@, algorithm

from dpflbench.interfaces import Cohort
from dpflbench.testing import check_aggregator, check_algorithm, check_plugin


def test_a_client_with_three_times_the_data_counts_three_times():
    ones, sizes = torch.ones(2), torch.tensor([300.0, 100.0])
    cohort = Cohort(clients=torch.arange(2), epsilon=ones, delta=ones, n_examples=sizes, variance=ones, round=0)
    assert @label@().weights(cohort).tolist() == pytest.approx([0.75, 0.25])


def test_it_conforms():
    check_aggregator(@label@)
    check_algorithm(algorithm)


def test_the_installed_plugin_conforms():
    check_plugin("@plugin@")
'''

SUITE = """\
name: @plugin@
description: @label@ against DPSGD and WeiAvg at the same budgets
task:
  dataset: {name: mnist, features: {kind: pca, components: 50}}
  model: softmax
  partition: {kind: dirichlet, alpha: 3.0}
  limit: 6000
federation: {clients: 20, cohort: 5, rounds: 40, lr: {initial: 2.0, decay: 200}}
privacy: {mechanism: gaussian, clip: 1.0, epsilon: {kind: uniform, low: 2.0, high: 20.0}, delta: 1.0e-5}
seeds: 3
algorithms: [DPSGD, WeiAvg, @label@]
"""

WORKFLOW = """\
name: dpflbench
on: [push, pull_request]
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {python-version: "3.11", cache: pip}
      - run: pip install -e ".[dev]"
      - run: dpflbench check @plugin@
      - run: pytest
      - run: dpflbench run suite.yaml --out results
      - run: dpflbench verify results
      # the gate: commit a baseline made once by `dpflbench compare results --baseline baseline.json --update-baseline`
      - run: dpflbench compare results --baseline baseline.json --markdown summary.md --junit junit.xml
        if: hashFiles('baseline.json') != ''
      - run: cat summary.md >> "$GITHUB_STEP_SUMMARY"
        if: always() && hashFiles('summary.md') != ''
      - uses: actions/upload-artifact@v4
        if: always()
        with: {name: dpflbench, path: "results\\nsummary.md\\njunit.xml"}
"""
