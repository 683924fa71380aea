"""Docs are tested: every hook, suite key and command appears in its README."""

import dataclasses
from pathlib import Path

import pytest

from dpflbench import hookspecs
from dpflbench.assembly import Federation, PrivacySection, TaskSection
from dpflbench.cli import COMMANDS
from dpflbench.suite import SECTIONS, Evaluate, Report, Resources
from dpflbench.tasks.features import FEATURES
from dpflbench.tasks.partition import PARTITIONS
from dpflbench.tasks.population import DISTRIBUTIONS

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
    for field in dataclasses.fields(shape):
        assert f"`{section}.{field.name}`" in SUITES


@pytest.mark.parametrize(
    "kinds", [FEATURES, PARTITIONS, DISTRIBUTIONS], ids=["features", "partitions", "distributions"]
)
def test_every_kind_and_its_parameters_are_documented(kinds):
    for kind in kinds:
        assert f"kind: {kind}" in SUITES


def test_what_a_run_may_ask_of_a_cluster_is_documented():
    assert "{" + ", ".join(f.name for f in dataclasses.fields(Resources)) + "}" in SUITES


def test_every_command_is_in_the_readme():
    readme = (REPO / "README.md").read_text()
    for name in COMMANDS:
        assert f"dpflbench {name}" in readme, name


def test_every_hook_is_in_the_plugin_guide():
    guide = (REPO / "plugins" / "README.md").read_text()
    for name in vars(hookspecs):
        if name.startswith("dpflbench_"):
            assert name in guide, name


def test_every_suite_in_the_folder_is_in_its_readme():
    for path in (REPO / "suites").glob("*.yaml"):
        assert f"`{path.name}`" in SUITES, path.name
