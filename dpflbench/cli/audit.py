"""`dpflbench audit`: an algorithm's real client path, attacked with canaries."""

from typing import Annotated, Any

import typer

from dpflbench.catalogue import Catalogue, load
from dpflbench.cli.options import Without
from dpflbench.cli.output import say
from dpflbench.errors import DpflbenchError, SuiteError
from dpflbench.judges.audit import audit_algorithm
from dpflbench.judges.bounds import trials_needed
from dpflbench.schema import INVALID, build
from dpflbench.suite import parse_value


def audit(
    algorithm: Annotated[
        str,
        typer.Argument(
            help="Name of an algorithm, as `dpflbench list algorithms` shows it, or all.", show_default=False
        ),
    ],
    given: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="KEY=VALUE", help="A parameter of the algorithm. May be repeated."),
    ] = None,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Mechanism. May be repeated.  [default: gaussian and laplace where the algorithm allows them]",
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Budget of each client.  [default: 8 for gaussian, else 2]")
    ] = None,
    clients: Annotated[
        int, typer.Option(help="Clients of a federation: half hold one canary, half the other.", min=64)
    ] = 4096,
    rounds: Annotated[int, typer.Option(help="Rounds of the canaries that need several.", min=2)] = 12,
    confidence: Annotated[float, typer.Option(help="Confidence of each bound.", min=0.5, max=0.999999)] = 0.999,
    seed: Annotated[int, typer.Option(help="Seed of all noise.")] = 0,
    without: Without = None,
) -> None:
    """Attack an algorithm's releases and hold what they give away against what the ledger charged; exit 1 if more is
    given away.
    """
    catalogue = load(without or ())
    names = sorted(catalogue.parts["algorithms"]) if algorithm == "all" else [algorithm]
    audited, violations = 0, 0
    for name in names:
        made = _make(catalogue, name, given or [])
        if not made.private:
            if algorithm != "all":
                raise DpflbenchError(f"{name}: promises no privacy, there is nothing to audit")
            continue
        allowed = [m for m in ("gaussian", "laplace") if made.mechanisms is None or m in made.mechanisms]
        for which in mechanism or allowed:
            outcomes = audit_algorithm(
                made,
                noise := catalogue.get("mechanisms", which).factory(),
                catalogue.get("accountants", noise.accountant).factory(),
                epsilon=epsilon,
                clients=clients,
                many=rounds,
                confidence=confidence,
                seed=seed,
            )
            for canary, found in outcomes:
                audited, violations = audited + 1, violations + found.violated
                low = found.epsilon if found.claim.mu is None else max(found.epsilon, found.epsilon_by_mu)
                say(
                    f"{'VIOLATED' if found.violated else 'ok':8}  {name}, {which}, {canary}: charged epsilon "
                    f"{found.claim.epsilon:.3f}, at least {low:.3f} given away"
                )
    twice = trials_needed(1.0, 2.0, confidence=confidence)
    say(
        f"{violations} of {audited} attacks show more than was charged, each at confidence {confidence:g} with "
        f"{clients // 2} releases a world."
    )
    say(
        f"To see a charge of mu 1 that is really 2, {twice} releases a world are enough nine times in ten; "
        "an audit proves leaks, never their absence."
    )
    if violations:
        raise typer.Exit(1)


def _make(catalogue: Catalogue, name: str, given: list[str]) -> Any:
    problems = [f"--with {g}: expected key=value" for g in given if "=" not in g]
    values = {key.strip(): parse_value(text) for key, sign, text in (g.partition("=") for g in given) if sign}
    made = build(catalogue.get("algorithms", name).factory, values, "--with", problems)
    if problems or made is INVALID:
        raise SuiteError(problems)
    return made
