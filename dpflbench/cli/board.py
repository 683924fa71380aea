"""`dpflbench board`: bundles, and reports whose records are not there, as a static site."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

from dpflbench.api.options import data_root
from dpflbench.bundles.board import write_board
from dpflbench.bundles.bundle import Bundle, read
from dpflbench.bundles.prove import prove
from dpflbench.bundles.rows import Page, joined, page_of, reported
from dpflbench.catalogue import Catalogue, load
from dpflbench.cli.options import DataRoot
from dpflbench.cli.output import say
from dpflbench.cli.verify import Seed, counted
from dpflbench.results.store import writing


def board(
    bundles: Annotated[
        list[Path],
        typer.Argument(
            metavar="BUNDLE...", help="Bundles; a report folder with board.json has a page too.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where the site goes.")] = Path("site"),
    again: Annotated[
        str, typer.Option("--replay", metavar="N|all", help="Play so many runs of each bundle again, drawn by --seed.")
    ] = "3",
    seed: Seed = None,
    data: DataRoot = None,
) -> None:
    """Build a static board: a page a version of a suite, every row with source, commit, proof level and date.

    Every bundle is proved as `bundle check` does. One that is refused is named and left out, and the exit code is 1.
    """
    count, root, catalogue = counted(again), data_root(data), load()
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    found, reports, refused = list[tuple[Page, Bundle]](), list[Page](), list[Path]()
    for path in bundles:
        if path.is_dir():
            reports.append(reported(path))
        elif (page := _proved(path, catalogue, count, seed, root)) is None:
            refused.append(path)
        else:
            found.append(page)
    with writing(out):
        index = write_board([*joined(found), *reports], out)
    for path in refused:
        say(f"{path}: left out: `dpflbench bundle check` says what is wrong with it", err=True)
    say(f"Board: {index} (--seed {seed})")
    if refused:
        raise typer.Exit(1)


def _proved(
    path: Path, catalogue: Catalogue, count: int | None, seed: int, root: Path | None
) -> tuple[Page, Bundle] | None:
    """The page of a bundle; None if something is wrong with it."""
    bundle = read(path)
    proved = prove(bundle, catalogue, count, seed, root)
    say(f"{path}: {proved.level}, {len(proved.played)} runs played again")
    return None if proved.level == "refused" else (page_of(bundle, proved), bundle)
