"""`dpflbench verify`: a results folder under a second accountant."""

from pathlib import Path
from typing import Annotated

import typer

from dpflbench.catalogue import load
from dpflbench.cli.output import say
from dpflbench.judges.verify import verify as findings
from dpflbench.results.store import Store


def verify(
    results: Annotated[Path, typer.Argument(help="Results folder, yours or somebody else's.", show_default=False)],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only what is wrong, and the verdict.")] = False,
) -> None:
    """Recompute every client's epsilon, every schedule, budget and digest from the records alone; exit 1 if anything
    differs.
    """
    good, missing, bad, alone = 0, 0, 0, 0
    for finding in findings(Store(results).results(), load()):
        if finding.problems:
            bad += 1
            say(f"FAIL  {finding.run or '-':20}  {finding.label}")
            for problem in finding.problems:
                say(f"      {problem}")
            continue
        good, missing = good + (not finding.missing), missing + finding.missing
        alone += len(finding.accountants) == 1
        if not quiet:
            say(f"{'–' if finding.missing else 'ok':4}  {finding.run:20}  {finding.label}: {finding.summary}")
    extra = f", {alone} of them by one accountant alone" if alone else ""
    extra += f", {missing} not there (yet)" if missing else ""
    verdict = "NOT VERIFIED" if bad else "Verified"
    say(f"{verdict}: {good} runs stand a recount, {bad} findings{extra}.")
    if bad or not good:
        raise typer.Exit(1)
