"""The skeleton of a plugin: a complete distribution that passes `dpflbench check` as it is, to be changed bit by
bit. The frames are here, what is particular to a kind is in `scaffold_kinds.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from dpflbench import __version__
from dpflbench.errors import DpflbenchError
from dpflbench.hookspecs import noun
from dpflbench.scaffold_kinds import TEMPLATES, Template
from dpflbench.schema import suggest

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
PREFIX = "dpflbench-"
DEFAULT = "algorithm"  # a kind of template


@dataclass(frozen=True, slots=True)
class Names:
    """One name in the spellings its places want."""

    plugin: str  # entry point and part: my_idea
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


def template_of(kind: str) -> Template:
    """The template of a kind; DpflbenchError if there is none."""
    if kind not in TEMPLATES:
        raise DpflbenchError(f"new-plugin --kind {kind[:40]}: unknown; {suggest(kind, TEMPLATES)}")
    return TEMPLATES[kind]


def write_skeleton(name: str, folder: Path | None = None, kind: str = DEFAULT) -> tuple[Path, list[str]]:
    """Write the skeleton into a new folder (by default named like its distribution); the folder and its files."""
    names, template = names_of(name), template_of(kind)
    root = folder or Path(names.distribution)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise DpflbenchError(f"new-plugin {name}: {root} is there already; give another folder by --out")
    files = skeleton(names, template)
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root, list(files)


def skeleton(names: Names, template: Template = TEMPLATES[DEFAULT]) -> Mapping[str, str]:
    """Path → content."""
    also = template.also
    texts = {f"@{field.name}@": getattr(template, field.name) for field in fields(template)} | {
        "@noun@": noun(template.hook),
        "@check@": f"check_{template.hook[:-1]}",
        "@factories@": f"@label@, {also}" if also else "@label@",
        "@checks@": ", ".join(sorted(f"check_{n}" for n in (template.hook[:-1], "plugin", *([also] if also else [])))),
        "@called@": f"\n    check_{also}({also})" if also else "",
    }
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
    return {path: _filled(_filled(_filled(text, texts), texts), words) for path, text in paths.items()}


def _filled(text: str, words: Mapping[str, str]) -> str:
    return re.sub("|".join(words), lambda hit: words[hit[0]], text)


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

Adds the @noun@ **@label@** to dpflbench: @does@.
Change that to your idea.

```
pip install -e ".[dev]"
dpflbench check @plugin@       # does it keep the rules?
pytest                         # its own tests
dpflbench run suite.yaml       # what it does beside the plain mean, at the same budgets
```

| part | kind | parameters |
|---|---|---|
| `@plugin@` | @noun@ | @parameters@ |
"""

MODULE = '''\
"""@label@: say here what it is, where it was published, and how it differs from that."""

@imports@

@body@

@hookimpl
def dpflbench_@hook@() -> Factories:
    """The part, under the name a suite gives it."""
    return {"@plugin@": @label@}
@more@'''

TESTS = '''\
"""@label@ by hand and by dpflbench's conformance checks."""

@test_imports@from @module@ import @factories@

@test_needs@from dpflbench.testing import @checks@


@test@

def test_it_conforms():
    @check@(@label@)@called@


def test_the_installed_plugin_conforms():
    check_plugin("@plugin@")
'''

SUITE = """\
name: @plugin@
description: @label@ and the plain mean at the same budgets
task:
  dataset: @dataset@
  model: @model@
  partition: @partition@
  limit: 6000
federation: {clients: 20, cohort: 5, rounds: 40, lr: {initial: 2.0, decay: 200}@local@}
privacy: {mechanism: @mechanism@, clip: 1.0, epsilon: {kind: uniform, low: 2.0, high: 20.0}, delta: 1.0e-5}
@axes@seeds: 3
algorithms:
  - {use: compose, as: Plain, with: {selector: uniform, aggregator: mean}}
@rows@"""

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
      # the gate: commit a baseline made once by `dpflbench compare results --baseline baseline.json --update-baseline`;
      # what costs no utility is green, another model a note (--strict-numerics fails that too)
      - run: dpflbench compare results --baseline baseline.json --markdown summary.md --junit junit.xml
        if: hashFiles('baseline.json') != ''
      - run: cat summary.md >> "$GITHUB_STEP_SUMMARY"
        if: always() && hashFiles('summary.md') != ''
      - uses: actions/upload-artifact@v4
        if: always()
        with: {name: dpflbench, path: "results\\nsummary.md\\njunit.xml"}
"""
