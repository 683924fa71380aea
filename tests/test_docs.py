"""Docs are tested: every hook, suite key and command appears in its README, and files that are named are there."""

import dataclasses
import re
import runpy
from pathlib import Path

import pytest

from dpflbench.cli import COMMANDS
from dpflbench.hookspecs import HOOKS, KINDS
from dpflbench.schema import parameters
from dpflbench.suite_schema import SECTIONS, Evaluate, Federation, PrivacySection, Report, Resources, TaskSection

REPO = Path(__file__).parent.parent
SUITES = (REPO / "suites" / "README.md").read_text()


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_of_a_suite_is_documented(section):
    assert f"`{section}" in SUITES or f"\n{section}:" in SUITES


@pytest.mark.parametrize(
    ("section", "shape"),
    [
        ("task", TaskSection),
        ("federation", Federation),
        ("privacy", PrivacySection),
        ("evaluate", Evaluate),
        ("report", Report),
    ],
)
def test_every_key_of_a_section_is_documented(section, shape):
    inside = {"accountant": "mechanism.accountant"}  # named among the parameters of a mechanism
    for field in dataclasses.fields(shape):
        assert f"`{section}.{inside.get(field.name, field.name)}`" in SUITES


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.tag == "kind"])
def test_every_kind_and_its_parameters_are_documented(kind, catalogue):
    for name, part in catalogue.parts[kind].items():
        if part.distribution == "dpflbench":
            shown = SUITES.split(f"kind: {name}", 1)[1].split("}", 1)[0]
            missing = [key for key in parameters(part.factory) if key != "min_size" and key not in shown]
            assert missing == [], (name, missing)  # min_size is said of all partitions at once


def test_what_a_run_may_ask_of_a_cluster_is_documented():
    assert "{" + ", ".join(f.name for f in dataclasses.fields(Resources)) + "}" in SUITES


def test_every_command_is_in_the_readme():
    readme = (REPO / "README.md").read_text()
    for name in COMMANDS:
        assert f"dpflbench {name}" in readme, name


def test_every_hook_is_in_the_plugin_guide():
    guide = (REPO / "plugins" / "README.md").read_text()
    for hook, kind in zip(HOOKS, KINDS.values(), strict=True):
        assert f"| `{hook}` |" in guide, hook
        for interface in kind.interfaces:
            assert f"`{interface.__name__}`" in guide, kind


def test_every_check_is_in_the_plugin_guide():
    guide = (REPO / "plugins" / "README.md").read_text()
    for kind in KINDS:
        assert f"`check_{kind[:-1]}`" in guide, kind


def test_every_suite_in_the_folder_is_in_its_readme():
    for path in (REPO / "suites").glob("*.yaml"):
        assert f"`{path.name}`" in SUITES, path.name


HARNESS = REPO / "dpflbench"
MAP = (HARNESS / "README.md").read_text()


def test_the_flow_has_at_most_ten_hops_with_one_file_each():
    hops = re.findall(r"^\d+\. .*$", MAP, re.MULTILINE)
    assert 5 <= len(hops) <= 10
    for hop in hops:
        (file,) = re.findall(r"`([^`]+\.py)`", hop)
        assert (HARNESS / file).is_file(), file


def test_every_file_of_the_tree_is_there_and_every_package_and_lone_module_is_in_the_tree():
    named = set()
    for line in MAP.split("```")[1].strip().splitlines():
        folder, files = re.match(r"(?:(\S+/)\s+)?((?:\S+\.py\s+)+)", line).groups()
        named |= {f"{folder or ''}{file}" for file in files.split()} | {folder}
    missing = [name for name in named - {None} if not (HARNESS / name).exists()]
    assert missing == []
    packages = {f"{path.parent.relative_to(HARNESS)}/" for path in HARNESS.glob("*/**/__init__.py")} - {"tasks/data/"}
    assert packages | {path.name for path in HARNESS.glob("[!_]*.py")} <= named


@pytest.mark.parametrize("readme", ["dpflbench/README.md", "dpflbench/execution/README.md"])
def test_every_file_named_in_passing_is_there(readme):
    path = REPO / readme
    for name in re.findall(r"`([\w./]+\.(?:py|md))`", path.read_text()):
        assert (path.parent / name).is_file(), name


def test_readme_and_reports_have_one_list_of_what_is_claimed_and_what_is_not():
    from dpflbench.report.tables.claims import CLAIMED, NOT_COVERED

    listed = [" ".join(line.split()) for line in (REPO / "README.md").read_text().split("\n* ")]
    for sentence in (*CLAIMED, *NOT_COVERED):
        assert any(line.startswith(sentence) for line in listed), sentence


@pytest.mark.parametrize("script", sorted((REPO / "reports").glob("*/*.py")), ids=lambda path: path.parent.name)
def test_scripts_of_committed_reports_find_what_they_import(script):
    assert "main" in runpy.run_path(str(script))
