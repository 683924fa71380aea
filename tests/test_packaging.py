"""What is said of the package in one place holds in the others: its version, what it depends on, the lowest of each."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import dpflbench

REPO = Path(__file__).parent.parent
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
IMPORTED_AS = {
    "scikit-learn": "sklearn",
    "pillow": "PIL",
    "pyyaml": "yaml",
    "vl-convert-python": "vl_convert",
    "dp-accounting": "dp_accounting",
}
NOT_TRIED = {"torch", "torchvision"}  # constraints-lowest.txt says why


def bounds(requirements: list[str]) -> dict[str, str]:
    """Name → lowest version; an upper bound would be in a neighbour's way."""
    found = {}
    for requirement in requirements:
        name, version = re.fullmatch(r"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)", requirement).groups()
        found[name] = version
    return found


def pins(file: str) -> dict[str, str]:
    lines = (REPO / file).read_text().splitlines()
    return dict(line.lower().split("==") for line in lines if line and not line.startswith("#"))


def test_the_version_stands_in_one_place_and_the_changelog_begins_with_it():
    assert PROJECT["dynamic"] == ["version"]
    assert "version: " not in (REPO / "CITATION.cff").read_text().replace("cff-version: ", "")
    heads = re.findall(r"^## (\S+)", (REPO / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heads[0] == dpflbench.__version__


def test_the_lowest_versions_that_are_tried_are_those_that_are_claimed():
    def padded(version: str) -> list[int]:
        return [int(n) for n in [*version.split("."), "0", "0"][:3]]

    claimed, tried = bounds(PROJECT["dependencies"]), pins("constraints-lowest.txt")
    assert set(claimed) == set(tried)
    other = {name for name in claimed if padded(claimed[name]) != padded(tried[name])}
    assert other == NOT_TRIED
    for name in NOT_TRIED:
        assert tried[name] == pins("constraints.txt")[name]


def test_whatever_the_package_imports_it_depends_on():
    extras = bounds(
        [line for name, lines in PROJECT["optional-dependencies"].items() if name != "dev" for line in lines]
    )
    declared = {IMPORTED_AS.get(name, name.replace("-", "_")) for name in (*bounds(PROJECT["dependencies"]), *extras)}
    used = set()
    for package in ("dpflbench", "plugins/dpflbench_algorithms", "plugins/dpflbench_ma2024"):
        for file in (REPO / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Import):
                    used |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    used.add(node.module.split(".")[0])
    ours = {"dpflbench", "dpflbench_algorithms", "dpflbench_ma2024", "__main__"}
    assert used - declared - ours - set(sys.stdlib_module_names) == set()
