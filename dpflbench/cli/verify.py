"""`dpflbench verify`: a results folder under a second accountant."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

from dpflbench.api.folders import read
from dpflbench.api.verification import told
from dpflbench.cli.options import AsJson, DataRoot
from dpflbench.cli.output import say, say_json
from dpflbench.errors import DpflbenchError
from dpflbench.judges.verify import Finding

Seed = Annotated[
    int | None, typer.Option(help="Which runs to play again.  [default: drawn, and printed]", show_default=False)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only what is not verified, and the verdict.")]


def verify(
    results: Annotated[Path, typer.Argument(help="Results folder, yours or somebody else's.", show_default=False)],
    again: Annotated[
        str,
        typer.Option(
            "--replay",
            metavar="N|all",
            help="Play so many runs again, drawn by --seed, to the last bit; their noise is examined.",
        ),
    ] = "0",
    seed: Seed = None,
    data: DataRoot = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Recompute from the records alone every client's epsilon, every budget, cohort, sensitivity, sum and digest; plan
    the suite again and hold every record against its cell and its neighbours.

    Exit code 0: all verified; 1: something is wrong, or nothing is there; 3: nothing is wrong, but something could not
    be verified (one accountant only, a part that is not installed, other sources than this installation's, a run that
    is not there, a replay on another processor).

    \b
    What it can never find:
    - code that looked where it must not, or behaves otherwise when it is watched
    - without --replay, what only playing a run again can show: utilities and models that were made
      up and agree with each other; scales, costs and spent epsilons changed together; what a selector
      noted; noise drawn otherwise than its scale says; a run called failed or diverged that was not
    - whole algorithms, axis values or seeds left out of suite and table alike, and earlier attempts
    - sizes, splits and initial models that all runs of a task and seed state alike
    - times, machine, versions, whether server code was apart, and what client code and noise looked
      like while it ran: they were measured, once
    """
    folder, findings = read(results), list[Finding]()
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    chosen, found = folder.findings(counted(again), seed, data)
    for finding in found:
        findings.append(finding)
        if not as_json and (not quiet or not finding.ruling.stands):
            for line in told(finding):
                say(line)
    verdict = folder.verdict(findings, seed, chosen)
    if as_json:
        say_json(verdict.json())
    else:
        for line in verdict.lines:
            say(line)
    if verdict.exit_code:
        raise typer.Exit(verdict.exit_code)


def counted(text: str) -> int | None:
    """How many runs to play again; None for all."""
    if text == "all":
        return None
    if not text.isdecimal():
        raise DpflbenchError(f"--replay {text}: expected a number of runs, or all")
    return int(text)
