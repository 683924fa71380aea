"""Check of an algorithm: its parts one by one, then short runs through the real harness under both mechanisms."""

from typing import Any

import numpy as np

from dpflbench.assembly import assemble
from dpflbench.catalogue import Catalogue, Part
from dpflbench.execution.attempt import Place, execute
from dpflbench.federation.local import FullStep
from dpflbench.federation.minibatch import Minibatch
from dpflbench.hookspecs import KINDS
from dpflbench.interfaces import PLAIN, Algorithm, LocalUpdate
from dpflbench.planning import Run
from dpflbench.results.record import Record
from dpflbench.suite_reading import normalise
from dpflbench.tasks.models import Softmax
from dpflbench.tasks.partition import Iid
from dpflbench.tasks.population import Constant, Uniform
from dpflbench.testing.aggregators import check_aggregator
from dpflbench.testing.factories import named, obtain
from dpflbench.testing.local_rules import check_local_rule
from dpflbench.testing.rules import pickled, refuse
from dpflbench.testing.selectors import check_selector
from dpflbench.testing.transforms import check_transform
from dpflbench.testing.worlds import Toy, standard_accountant, standard_noise

CLIENTS, COHORT, ROUNDS = 8, 3, 6
PLACE = Place(noise_key=bytes(16))  # the same noise each time: two runs shall be equal to the bit


def check_algorithm(part: Any, who: str = "") -> None:
    """Raise ConformanceError at the first broken rule; `part` is an Algorithm or a factory of one."""
    who = named(part, "algorithm", who)
    algorithm = obtain(part, who)
    if not isinstance(algorithm, Algorithm):
        refuse(
            who,
            f"is a {type(algorithm).__name__}",
            "a dpflbench.interfaces.Algorithm",
            "return Algorithm(name, selector, aggregator)",
        )
    if not algorithm.name or not algorithm.name.isprintable():
        refuse(who, f"its name is {algorithm.name!r}", "a printable name", "give it the name of its row in a table")
    if algorithm.private and not algorithm.clip:
        refuse(who, "is private and does not clip", "a clip bound wherever there is noise", "leave clip at True")
    known = standard_noise()
    allowed = set(known) if algorithm.mechanisms is None else set(algorithm.mechanisms)
    if not allowed:
        refuse(who, "mechanisms is empty", "at least one name, or None for any", "leave mechanisms out")
    usable = [name for name in known if name in allowed]
    check_selector(algorithm.selector, f"{who}, selector", algorithm.mechanisms)
    check_aggregator(algorithm.aggregator, f"{who}, aggregator")
    check_transform(algorithm.transform, f"{who}, transform")
    pickled(who, algorithm)
    check_local_rule(algorithm.rule, f"{who}, local rule")
    for mechanism in usable if algorithm.private else usable[:1]:
        first, again = (short_run(algorithm, mechanism, who) for _ in range(2))
        if first.digest != again.digest:
            refuse(
                who,
                f"two runs of one configuration under {mechanism} noise differ",
                "a run that its configuration determines",
                "keep nothing between runs: no globals, no files, no clocks",
            )
        _kept_its_budgets(first, mechanism, who, algorithm.frame.get("cohorts") == "poisson")


def short_run(algorithm: Algorithm, mechanism: str, who: str) -> Record:
    """The record of a few rounds on toy data, through the same path as any run of a suite."""

    def part(kind: str, name: str, made: Any) -> Part:
        return Part(kind, name, lambda: made, "check", "dpflbench", "0", "dpflbench.testing")

    noise, accountant = standard_noise()[mechanism]
    local: LocalUpdate = FullStep()
    if algorithm.trains or algorithm.rule != PLAIN:
        local, accountant = Minibatch(lr=0.1, steps=2, batch=8), standard_accountant(Minibatch.accountant)
    asked = algorithm.frame
    if asked.get("cohorts") == "poisson":
        accountant = standard_accountant("rdp")
    made: dict[str, dict[str, Any]] = {
        "mechanisms": {mechanism: noise},
        "accountants": {accountant.name: accountant},
        "local_updates": {"full_step": local},
        "datasets": {"toy": Toy()},
        "partitions": {"iid": Iid()},
        "budgets": {"epsilon": Uniform(1.0, 8.0), "delta": Constant(1e-5)},
        "models": {"softmax": Softmax()},
        "algorithms": {"it": algorithm},
    }
    catalogue = Catalogue({kind: {n: part(kind, n, p) for n, p in made.get(kind, {}).items()} for kind in KINDS})
    config: dict[str, Any] = {
        "task": {"dataset": {"name": "toy"}, "model": {"name": "softmax"}, "partition": {"kind": "iid"}},
        "federation": {"clients": CLIENTS, "cohort": COHORT, "rounds": ROUNDS, "lr": {"initial": 0.5}},
        "privacy": {
            "mechanism": {"name": mechanism},
            "clip": 1.0,
            "epsilon": {"kind": "epsilon"},
            "delta": {"kind": "delta"},
        },
        "evaluate": {"every": ROUNDS},
        "algorithm": {"name": "it"},
        "seed": 5,
    }
    for section, names in (("privacy", ("trust", "unit")), ("federation", ("cohorts",))):
        config[section] |= {name: asked[name] for name in names if name in asked}
    if asked.get("cohorts") == "poisson" and "trust" not in asked:
        config["privacy"]["trust"] = "central"
    problems: list[str] = []
    assembly = assemble(normalise(config), catalogue, problems)
    if assembly is None:
        refuse(
            who,
            f"cannot be assembled: {problems[0]}",
            "an algorithm of a selector, an aggregator and a transform",
            "see the message",
        )
    record = execute(Run("check", assembly.config, {}, assembly.task.dataset.digest(None), assembly), catalogue, PLACE)
    if record.status != "done":
        refuse(
            who,
            f"a short run under {mechanism} noise ended as {record.status} ({record.reason})",
            "a run that is done",
            "run dpflbench.testing.check_* on its parts; a run gets what they get",
        )
    return record


def _kept_its_budgets(record: Record, mechanism: str, who: str, by_coins: bool) -> None:
    """Uses as planned and nobody beyond its epsilon, from the record as a reader would see it."""
    uses, clients = record.clients["uses"], record.clients
    if int(uses.sum()) != COHORT * ROUNDS and not by_coins:
        refuse(
            who,
            f"{int(uses.sum())} participations in {ROUNDS} rounds",
            f"{COHORT * ROUNDS}",
            "plan horizon * cohort uses",
        )
    if not record.private:
        return
    over = np.flatnonzero(clients["epsilon_spent"] > clients["epsilon"])
    if len(over):
        at = int(over[0])
        refuse(
            who,
            f"client {at} spent epsilon {clients['epsilon_spent'][at]:.6g} of {clients['epsilon'][at]:.6g} under "
            f"{mechanism} noise",
            "every client within its budget",
            "let the harness calibrate: leave Plan.cost out",
        )
