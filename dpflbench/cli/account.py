"""`dpflbench account`: claimed against true epsilon, for one's own noise and for published recipes."""

from typing import Annotated

import typer
from tabulate import tabulate

from dpflbench.judges import published

app = typer.Typer(
    help="Claimed against true epsilon: what noise is really worth. Exit 1 if a claim does not hold.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

Uses = Annotated[int, typer.Option(help="Releases by the same client.", min=1)]
Delta = Annotated[float, typer.Option(help="Delta of the guarantee, between 0 and 1.", min=0.0, max=1.0)]
Sensitivity = Annotated[float, typer.Option(help="How far replacing one example moves the released value.")]
Claimed = Annotated[float | None, typer.Option(help="An epsilon to check.")]


@app.command()
def gaussian(
    sigma: Annotated[float, typer.Option(help="Standard deviation of the noise.")],
    uses: Uses,
    delta: Delta,
    sensitivity: Sensitivity = 1.0,
    claimed: Claimed = None,
) -> None:
    """Epsilon of repeated Gaussian noise without subsampling (L2 sensitivity)."""
    _show(published.gaussian(sigma, uses, delta, sensitivity, claimed))


@app.command()
def laplace(
    scale: Annotated[float, typer.Option(help="Scale b of the noise; its standard deviation is b times sqrt(2).")],
    uses: Uses,
    sensitivity: Sensitivity = 1.0,
    delta: Delta = 0.0,
    claimed: Claimed = None,
) -> None:
    """Epsilon of repeated Laplace noise (L1 sensitivity)."""
    _show(published.laplace(scale, uses, sensitivity, delta, claimed))


@app.command("paper-bcs")
def paper_bcs(
    epsilon: Annotated[float, typer.Option(help="The epsilon a client is promised.")] = 3.0,
    delta: Delta = 1e-5,
    uses: Annotated[float, typer.Option(help="Planned participations T_n, in the paper maybe a fraction.")] = 40.0,
) -> None:
    """DPFL-BCS as printed: Lemma 1 with c2 = 1 and the linear split of Algorithm 2."""
    _show(published.paper_bcs(epsilon, delta, uses))


@app.command("pfa-formula")
def pfa_formula(
    epsilon: Annotated[float, typer.Option(help="The epsilon the formula is asked for.")] = 10.0,
    n_examples: Annotated[int, typer.Option(help="Examples of the client.", min=1)] = 6000,
    batch: Annotated[int, typer.Option(help="Examples in a minibatch.", min=1)] = 4,
    delta: Delta = 1e-5,
    steps: Annotated[int, typer.Option(help="Steps of a client over the whole training.", min=1)] = 8000,
) -> None:
    """The closed form of the PFA reference code against an accountant."""
    _show(published.pfa_formula(epsilon, n_examples, batch, delta, steps))


def _show(result: published.Account) -> None:
    typer.echo(
        tabulate([(row.what, f"{row.value:.6g}") for row in result.rows], tablefmt="plain", disable_numparse=True)
    )
    typer.echo(result.verdict)
    if result.broken:
        raise typer.Exit(1)
