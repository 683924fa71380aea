"""`dpflbench bundle`: results as one archive for others; `bundle check`: what of somebody's archive is true."""

import secrets
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dpflbench.api.options import data_root
from dpflbench.api.verification import told
from dpflbench.bundles.bundle import MAX_SOURCE, NOISE_KEY, SUFFIX, make, read
from dpflbench.bundles.prove import Proved, prove
from dpflbench.bundles.version import DIGITS
from dpflbench.catalogue import load
from dpflbench.cli.options import DataRoot
from dpflbench.cli.output import say
from dpflbench.cli.verify import Quiet, Seed, counted
from dpflbench.judges.verify import Finding
from dpflbench.results.proofs import LEVELS, UNPROVED
from dpflbench.results.store import write_atomically, writing

UNVERIFIED = 3  # exit code, as `verify` has it


class MakeUnlessCheck(TyperGroup):
    """`bundle RESULTS` makes one, `bundle check FILE` looks at one; a results folder called check is ./check."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments with the command they leave out."""
        if args and args[0] not in ("check", "make", "--help", "-h"):
            args = ["make", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=MakeUnlessCheck,
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    subcommand_metavar="RESULTS [OPTIONS] | check FILE",
)


@app.callback()
def group() -> None:
    """Make one archive of a results folder for others (`bundle RESULTS`), or check somebody's (`bundle check FILE`)."""


@app.command("make")
def make_bundle(
    results: Annotated[Path, typer.Argument(help="Results folder of a suite that has run.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help=f"The archive.  [default: SUITE-VERSION{SUFFIX}]")
    ] = None,
    source: Annotated[
        str, typer.Option(help=f"Who it is from and where it is explained, as a board shows it; {MAX_SOURCE} signs.")
    ] = "",
) -> None:
    """Pack records, manifest, suite, versions and digests into one file; nothing private of this machine.

    Left out: host, user, folders, tracebacks, what only explains (`run --why`). A data set named by an absolute path is
    refused. The same results give the same bytes.
    """
    packed = make(results, source)
    with writing(out or Path(f".new{SUFFIX}")) as target:
        write_atomically(target, packed)
    bundle = read(target)  # what goes out is what comes in, or it does not go out
    if out is None:
        name = "-".join(bundle.results.manifest.name.split())
        target = target.replace(target.with_name(f"{name}-{bundle.version[:DIGITS]}{SUFFIX}"))
    say(f"Bundle: {target}, {len(packed) / 1e3:,.0f} kB, {len(bundle.results.records)} runs of {bundle.name}")
    say(NOISE_KEY)


@app.command("check")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A bundle, from anybody.", show_default=False)],
    again: Annotated[
        str, typer.Option("--replay", metavar="N|all", help="Play so many runs again, drawn by --seed.")
    ] = "3",
    seed: Seed = None,
    data: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Verify a bundle with the second accountant, play a sample of its runs again to the last bit, and say what that
    proves.

    Exit codes as `verify`: 0 proved as far as asked; 1 something is wrong; 2 it is no bundle; 3 nothing is wrong, but
    something could not be verified here. Nothing is written, and no code is run but what is installed here.
    """
    count, root = counted(again), data_root(data)
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    bundle, catalogue = read(file), load()
    say(f"{file}: suite {bundle.name}, {len(bundle.results.records)} runs, {bundle.date}, digest {bundle.digest[:16]}")
    say(f"Source: {bundle.source or 'not given'}; commit {', '.join(bundle.commits) or 'not known'}")
    proved = prove(bundle, catalogue, count, seed, root, told=lambda f: _tell(f, quiet))
    _conclude(proved, len(bundle.results.records), seed)


def _tell(finding: Finding, quiet: bool) -> None:
    if not quiet or not finding.ruling.stands:
        for line in told(finding):
            say(line)


def _conclude(proved: Proved, runs: int, seed: int) -> None:
    """What was proved, what was not, and the exit code of that."""
    level, played = proved.level, len(proved.played)
    say(f"Played again: {played} of {runs} runs ended at the same bits, {proved.asked} were asked for (--seed {seed}).")
    say(f"Proved: {level}. That is: {LEVELS[level]}.")
    for line in UNPROVED if level != "refused" else ():
        say(f"Not proved: {line}.")
    say(NOISE_KEY)
    if level == "refused":
        raise typer.Exit(1)
    if level == "recorded" or played < proved.asked:
        raise typer.Exit(UNVERIFIED)
