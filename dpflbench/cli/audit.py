"""`dpflbench audit`: an algorithm's noise examined, and its real client path attacked with canaries."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from dpflbench.assembly import COMPOSED, Assembler
from dpflbench.catalogue import Catalogue, load
from dpflbench.cli.options import DataRoot, Overrides, Without, data_root
from dpflbench.cli.output import say
from dpflbench.errors import DpflbenchError, SuiteError
from dpflbench.execution.prepare import Place
from dpflbench.federation.local import FullStep
from dpflbench.frame import PrivacyFrame
from dpflbench.interfaces import Accountant, Algorithm, Trust
from dpflbench.judges.audit import audit_algorithm, audit_noise, trains
from dpflbench.judges.bounds import noise_seen
from dpflbench.judges.planted import audit_run
from dpflbench.judges.sampled import ATTACKED, attack_sampled, audit_sampled_run, watch_sampled
from dpflbench.judges.summed import Overlooked, audit_sum
from dpflbench.planning import Resolved, columns_of
from dpflbench.privacy.residuals import ALARM, Examined, is_normal
from dpflbench.results.rulings import NOT_AS_CLAIMED
from dpflbench.schema import INVALID
from dpflbench.suite_reading import load as load_suite
from dpflbench.suite_reading import parse_value
from dpflbench.testing.factories import required

STANDARD = ("gaussian", "laplace")


def audit(
    algorithm: Annotated[
        str,
        typer.Argument(
            help="Name of an algorithm, `compose` (its parts by --with), a plugin (each of its parts), or all.",
            show_default=False,
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
    suite: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Audit the algorithm's runs of that suite, one a mechanism: its model, data, budgets and aggregator.",
        ),
    ] = None,
    overrides: Overrides = None,
    repeats: Annotated[int, typer.Option(help="With --suite: how often a run is played.", min=1)] = 4,
    epsilon: Annotated[
        float | None, typer.Option(help="Budget of each client.  [default: 8 where noise is normal, else 2]")
    ] = None,
    clients: Annotated[
        int, typer.Option(help="Clients of a federation: half hold one canary, half the other.", min=64)
    ] = 4096,
    rounds: Annotated[int, typer.Option(help="Rounds of the canaries that need several.", min=2)] = 12,
    confidence: Annotated[float, typer.Option(help="Confidence of each bound.", min=0.5, max=0.999999)] = 0.999,
    seed: Annotated[int, typer.Option(help="Seed of all noise.")] = 0,
    data: DataRoot = None,
    without: Without = None,
) -> None:
    """Hold what leaves clients against what they computed, then attack it and hold what is given away against what the
    ledger charged; exit 1 if noise is not what it should be or more is given away.

    Exact sums are at hand, so noise is examined first: its size, law, independence and every single message. The attack
    knows only what a server knows. With --suite both meet the suite's own run; where the server sees sums, or whole
    clients are protected, a small federation in that frame.
    """
    catalogue = load(without or ())
    if suite is not None:
        columns = _columns(load_suite(suite, overrides or ()), catalogue, algorithm, mechanism)
        bad = sum([_audited_run(c, Place(root=data_root(data)), repeats, seed, confidence) for c in columns])
    else:
        options = {"epsilon": epsilon, "clients": clients, "many": rounds, "seed": seed}
        bad = sum(
            [_audited(t, catalogue, mechanism, confidence, options) for t in _targets(catalogue, algorithm, given)]
        )
    say(
        f"{bad} violations. Honest noise is accused in one audit of {1 / ALARM:,.0f}, each bound is wrong in one of "
        f"{1 / (1 - confidence):,.0f}; an audit proves leaks, never their absence."
    )
    if bad:
        raise typer.Exit(1)


Target = tuple[str, Algorithm, str | None]  # label, algorithm, the only mechanism it is about


def _audited(target: Target, catalogue: Catalogue, asked: list[str] | None, confidence: float, options: Any) -> int:
    """Violations of one algorithm under each mechanism, told as they are found."""
    label, algorithm, only = target
    if algorithm.frame:
        return _framed(label, algorithm, catalogue, confidence, options)
    if trains(algorithm):
        return sum([_sampled(label, algorithm, m, catalogue, confidence, options) for m in asked or STANDARD[:1]])
    allowed = [m for m in STANDARD if algorithm.mechanisms is None or m in algorithm.mechanisms]
    bad = 0
    for name in [only] if only else asked or allowed:
        noise = catalogue.get("mechanisms", name).factory()
        accountant = catalogue.get("accountants", noise.accountant).factory()
        bad += _disclaimed(f"{label}, {name}", accountant)
        found = audit_noise(algorithm, noise, accountant, **{**options, "clients": min(options["clients"], 2048)})
        bad += _tell(f"{label}, {name}", found)
        seen = 0.0
        for canary, bound in audit_algorithm(algorithm, noise, accountant, confidence=confidence, **options):
            bad += bound.violated
            low = bound.epsilon if bound.claim.mu is None else max(bound.epsilon, bound.epsilon_by_mu)
            say(
                f"{'VIOLATED' if bound.violated else 'ok':8}  {label}, {name}, {canary}: charged epsilon "
                f"{bound.claim.epsilon:.3f}, at least {low:.3f} given away"
            )
            law = "gaussian" if is_normal(noise.law) else "laplace"
            seen = max(seen, noise_seen(bound.claim, law, bound.trials, confidence))
        say(f"          noise below {seen:.2f} of what it should be is seen by these attacks nine times in ten")
    return bad


def _framed(label: str, algorithm: Algorithm, catalogue: Catalogue, confidence: float, options: Any) -> int:
    """Violations of one algorithm that is defined for a frame: behind a trusted server unless it says otherwise."""
    asked: dict[str, Any] = {"trust": "central", "unit": "example", "cohorts": "exact", **algorithm.frame}
    frame = PrivacyFrame(Trust(asked["trust"]), asked["unit"], asked["cohorts"], FullStep())
    noise = catalogue.get("mechanisms", STANDARD[0]).factory()
    accountant = catalogue.get("accountants", frame.accountant or noise.accountant).factory()
    given = {"epsilon": options["epsilon"], "seed": options["seed"], "confidence": confidence}
    return _heard(f"{label}, {noise.name}", audit_sum(algorithm, noise, accountant, frame, **given))


def _heard(where: str, found: Overlooked) -> int:
    """Say what was overheard of sums or whole clients; the number of violations."""
    point = found.crossed
    say(
        f"{'VIOLATED' if point.violated else 'ok':8}  {where}, overheard: at epsilon {point.epsilon:g} charged delta "
        f"{point.promised:.4f}, at least {max(0.0, point.delta):.4f} given away"
    )
    return _tell(where, found.noise) + point.violated


def _sampled(
    label: str, algorithm: Algorithm, mechanism: str, catalogue: Catalogue, confidence: float, options: Any
) -> int:
    """Violations of one algorithm that trains at clients."""
    noise = catalogue.get("mechanisms", mechanism).factory()
    accountant = catalogue.get("accountants", ATTACKED.accountant).factory()
    where, most = f"{label}, {mechanism}", {"clients": min(options["clients"], 512), "many": min(options["many"], 4)}
    found, rate = watch_sampled(algorithm, noise, accountant, **{**options, **most})
    bad = _tell(where, found, rate)
    attack = {key: value for key, value in options.items() if key != "many"}
    seen = attack_sampled(algorithm, noise, accountant, confidence=confidence, **attack)
    point = seen.crossed
    say(
        f"{'VIOLATED' if point.violated else 'ok':8}  {where}, presence: at epsilon {point.epsilon:g} charged delta "
        f"{point.promised:.4f}, at least {max(0.0, point.delta):.4f} given away by messages"
    )
    power = "this attack would see no lack of noise: messages do not tell of the canary"
    if seen.noise_seen:
        power = (
            f"noise below {seen.noise_seen:.2f} of what it should be, or a rate above {seen.rate_seen:.2f} times what "
            "was charged, is seen by this attack nine times in ten"
        )
    say(f"          {power}; division by realised batches is seen above alone")
    return bad + point.violated


def _tell(where: str, found: Examined, rate: float | None = None) -> int:
    """Say what residuals show; 1 if noise is not what it should be. `rate`: the least wrong one that would be seen."""
    for test in found.alarms:
        say(f"VIOLATED  {where}, residuals ({test.name}): {test.about}")
    if not found.alarms:
        say(
            f"ok        {where}, residuals: {found.residuals:,} draws in {found.messages:,} messages; noise below "
            f"{found.visible:.3f} of its scale is seen nine times in ten"
        )
    if not found.alarms and rate is not None:
        say(
            "          each the sum over its expected batch, and messages made of noisy releases alone; a rate above "
            f"{rate:.2f} times what was charged is seen nine times in ten"
        )
    return int(bool(found.alarms))


def _disclaimed(where: str, accountant: Accountant) -> int:
    """1, and told, if an accountant's prices are no proof by its own word."""
    if accountant.unproved:
        say(f"VIOLATED  {where}: {NOT_AS_CLAIMED}: {accountant.unproved}")
    return bool(accountant.unproved)


def _audited_run(column: Resolved, place: Place, repeats: int, seed: int, confidence: float) -> int:
    """Violations of one run of a suite."""
    if column.assembly is None or column.assembly.privacy is None:
        raise DpflbenchError(column.problems[0] if column.problems else f"{column.entry.label}: promises no privacy")
    assembly = column.assembly.with_seed(seed)
    where = f"{column.entry.label}, {column.assembly.privacy.mechanism.name}"
    rate: float | None = None
    if disclaimed := _disclaimed(where, column.assembly.privacy.accountant):
        return disclaimed  # nothing to attack: it stands by none of its claims
    if assembly.frame.unit == "client" or not assembly.frame.trust.rows:
        made = assembly.privacy
        if made is None:
            raise DpflbenchError(f"{column.entry.label}: promises no privacy")
        found = audit_sum(
            assembly.algorithm,
            made.mechanism,
            made.accountant,
            assembly.frame,
            neighbours=assembly.neighbours,
            trials=128 * repeats,
            confidence=confidence,
            seed=seed,
        )
        return _heard(where, found)
    if assembly.federation.local.ruled:
        noise, coins, rate = audit_sampled_run(assembly, place, repeats, seed)
    else:
        noise, coins = audit_run(assembly, place, repeats, seed)
    bad = coins.violated(confidence)
    power = "so few guesses would see no lack of noise"
    if coins.visible:
        power = f"noise below {coins.visible:.2f} of its scale is seen nine times in ten"
    say(
        f"{'VIOLATED' if bad else 'ok':8}  {where}, coins: {coins.right} of {coins.coins} guessed, at most "
        f"{coins.allowed:.1f} expected by what was charged (p = {coins.p:.3g}); canaries move a message by "
        f"{coins.reach:.2f} of its sensitivity; {power}"
    )
    return _tell(where, noise, rate) + bad


def _columns(suite: Any, catalogue: Catalogue, name: str, mechanisms: list[str] | None) -> list[Resolved]:
    """The first possible column of an algorithm (or of all that promise privacy) under each mechanism."""
    chosen: dict[tuple[str, str], Resolved] = {}
    for column in columns_of(suite, catalogue):
        if name not in ("all", column.entry.label, column.entry.use) or column.reason:
            continue
        if column.problems:
            raise SuiteError(column.problems)
        made = column.assembly
        if made is not None and made.privacy is not None and made.algorithm.private:
            noise = made.privacy.mechanism.name
            if mechanisms is None or noise in mechanisms:
                chosen.setdefault((column.entry.label, noise), column)
    if not chosen:
        labels = ", ".join(entry.label for entry in suite.entries)
        raise DpflbenchError(f"audit {name}: no private run of that name in {suite.where}; there are {labels}")
    return list(chosen.values())


def _targets(catalogue: Catalogue, name: str, given: list[str] | None) -> Iterator[Target]:
    """What is audited under a name: an algorithm, all of them, or a plugin part by part."""
    problems = [f"--with {g}: expected key=value" for g in given or [] if "=" not in g]
    values = {k.strip(): parse_value(text) for k, sign, text in (g.partition("=") for g in given or []) if sign}
    if problems:
        raise SuiteError(problems)
    algorithms = catalogue.parts["algorithms"]
    supplied = [p for kind in catalogue.parts.values() for p in kind.values() if name in (p.plugin, p.distribution)]
    misspelt = name.casefold() in {each.casefold() for each in algorithms}  # and not a plugin, whatever that is called
    if name not in (*algorithms, "all", "compose") and (misspelt or not supplied):
        catalogue.get("algorithms", name)  # refuses it with a suggestion
    if name == "all":
        for each in sorted(algorithms):
            made = _make(catalogue, each, values)
            if made.private:
                yield each, made, None
    elif name in algorithms or name == "compose":
        made = _make(catalogue, name, values)
        if not made.private:
            raise DpflbenchError(f"{name}: promises no privacy, there is nothing to audit")
        yield name, made, None
    for part in supplied if name not in (*algorithms, "all", "compose") else ():
        if part.kind == "algorithms" and not required(part.factory) and (made := part.factory()).private:
            yield part.name, made, None
        elif part.kind[:-1] in COMPOSED and not required(part.factory):
            yield f"{part.kind[:-1]} {part.name}", _make(catalogue, "compose", {part.kind[:-1]: part.name}), None
        elif part.kind == "mechanisms":
            yield f"mechanism {part.name}", _make(catalogue, "compose", {}), part.name


def _make(catalogue: Catalogue, name: str, values: dict[str, Any]) -> Any:
    problems: list[str] = []
    made = Assembler(catalogue, problems).algorithm({"name": name, **values}, "--with")
    if problems or made is INVALID:
        raise SuiteError(problems)
    return made.value
