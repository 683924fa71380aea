"""Containers and workflows, as far as reading them goes: what they name is there, and what they run exists."""

import json
import re
from pathlib import Path

import pytest
import yaml

from dpflbench import shipped
from dpflbench.cli import COMMANDS

REPO = Path(__file__).parent.parent
WORKFLOWS = sorted((REPO / ".github" / "workflows").glob("*.yml"))


def steps(workflow: Path) -> list[str]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_command_target_and_file_of_a_workflow_is_there(workflow):
    targets = set(re.findall(r"^([a-z-]+):", (REPO / "Makefile").read_text(), re.MULTILINE))
    text = "\n".join(steps(workflow))
    for target in re.findall(r"\bmake ([a-z-]+)", text):
        assert target in targets
    for name in re.findall(r"\bdpflbench ([a-z-]+)", text):
        assert name in COMMANDS
    for suite in re.findall(r"\bdpflbench run (\w+)", text):
        assert suite in shipped.names()
    for file in re.findall(r"(?:\.ci/|tests/|reports/)[\w./-]+", text):
        assert (REPO / file).exists(), file


def test_the_workflow_of_the_repository_has_tests_wheel_docs_and_the_gate_with_its_summary():
    text = "\n".join(steps(REPO / ".github" / "workflows" / "ci.yml"))
    for part in (".ci/run", "make release-check", "make docs", "make test-lowest", "dpflbench verify"):
        assert part in text
    assert "--markdown summary.md" in text
    assert 'cat summary.md >> "$GITHUB_STEP_SUMMARY"' in text


def test_the_container_copies_what_is_there_and_what_it_is_shown():
    text = (REPO / "Dockerfile").read_text()
    shown = {line[1:] for line in (REPO / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {name for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE) for name in line.split()[:-1]}
    assert copied == shown
    assert all((REPO / name).exists() for name in copied)
    assert re.findall(r"^FROM \S+ AS (\w+)$", text, re.MULTILINE) == ["cpu", "cuda"]
    assert text.count("\nUSER 10001\n") == 1  # nobody is root


def test_the_devcontainer_makes_what_there_is_to_make():
    body = json.loads((REPO / ".devcontainer" / "devcontainer.json").read_text())
    assert body["postCreateCommand"].startswith("make .venv/.dev && .venv/bin/dpflbench suites schema ")
    assert "\n.venv/.dev:" in (REPO / "Makefile").read_text()
