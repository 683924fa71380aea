"""The command line: commands are found by name, explain themselves, and answer a typo."""

import pytest
from typer.testing import CliRunner

from dpflbench.cli import COMMANDS, app


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_list_is_there_and_explains_itself(name):
    shown = CliRunner().invoke(app, [name, "-h"])
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith(f"Usage: root {name} ")


def test_help_lists_every_command_with_what_it_does():
    shown = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    assert [f"{name} {line}" in shown for name, (_, line) in COMMANDS.items()] == [True] * len(COMMANDS)


def test_a_command_that_is_not_there_is_answered_by_the_nearest():
    shown = CliRunner().invoke(app, ["verfiy"])
    assert shown.exit_code == 2
    assert "no such command 'verfiy'; did you mean 'verify'?" in shown.output
