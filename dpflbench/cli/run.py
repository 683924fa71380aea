"""`dpflbench run`: a suite to records and a report."""

from pathlib import Path
from typing import Annotated

import typer

from dpflbench.cli.options import DataRoot, Device, Overrides, SuiteFile, Without, data_root


def run(suite: SuiteFile,
        out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help="Results folder.  [default: results/<suite name>]")] = None,
        overrides: Overrides = None, data: DataRoot = None, device: Device = "auto", without: Without = None,
        quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the table.")] = False) -> None:
    """Run what a suite asks for and is not there yet, then print its table and write its report."""
    from dpflbench import suite as suites

    checked = suites.load(suite, overrides or ())  # before anything heavy is imported: a typo answers at once
    from dpflbench.catalogue import load
    from dpflbench.cli.output import printable
    from dpflbench.execution.execute import Place
    from dpflbench.execution.executors import run_serially
    from dpflbench.execution.store import Store
    from dpflbench.plan import device_of, plan_suite
    from dpflbench.report.write import summary_table, write_report

    catalogue = load(without or ())
    root = data_root(data)
    planned = plan_suite(checked, catalogue, root)
    store = Store(out or Path("results") / checked.name)
    store.write_manifest(planned.manifest)
    failed = run_serially(planned, store, catalogue, Place(root, device_of(device)), None if quiet else typer.echo)
    results = store.results()
    typer.echo(summary_table(results))
    write_report(results, store.root / "report")
    typer.echo(f"\nReport: {printable(store.root / 'report')}")
    if failed:
        raise typer.Exit(1)
