"""Runs against each other: what two runs share by construction must be the same in both.

Each fact of a record follows from some part of its configuration. Runs that agree in that part must agree in the fact,
be they of one column or not; of runs that do not, the ones in the minority are named, or all of them on a tie.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from dpflbench.canonical import content_digest
from dpflbench.provenance.runs import PIECES
from dpflbench.results.record import Record

Pick = Callable[[Record], Any]


def _everybody(record: Record) -> Any:
    return ""


def _data(record: Record) -> Any:
    return record.config["task"]["dataset"]


def _split(record: Record) -> Any:
    task = {k: v for k, v in record.config["task"].items() if k != "model"}
    return [task, record.config["federation"]["clients"], record.config["seed"]]


def _model(record: Record) -> Any:
    return [record.config["task"], record.config["federation"]["clients"], record.config["seed"]]


def _budgets(record: Record) -> Any:
    """Who shares budgets; nobody without privacy."""
    if not record.private:
        return None
    privacy = record.config["privacy"]
    drawn = privacy["epsilon"], privacy.get("delta")
    return [drawn, record.config["federation"]["clients"], record.config["seed"]]


def _algorithm(record: Record) -> Any:
    return [record.config["task"], record.config["algorithm"]]


def _fact(name: str) -> Pick:
    return lambda record: record.facts[name]


def _column(name: str) -> Pick:
    return lambda record: record.clients[name]


def _first(record: Record) -> Any:
    """Utility and loss of the initial model; the same start, the same values."""
    return [float(record.rounds[name][0]) for name in ("utility_global", "loss")] if record.rounds else None


# what must be equal, and among which runs
SHARED: Mapping[str, tuple[Pick, Pick]] = {
    "data_digest": (_data, _fact("data_digest")),
    **{name: (_split, _fact(name)) for name in ("split_digest", "n_train", "n_test", "n_classes", "references")},
    **{name: (_split, _column(name)) for name in ("n_examples", "n_holdout")},
    "metric": (_split, lambda r: [r.metric.name, r.metric.unit, r.metric.higher_is_better]),
    **{name: (_model, _fact(name)) for name in ("dim", "initial_model")},
    "utility before the first round": (_model, _first),
    **{name: (_budgets, _column(name)) for name in ("epsilon", "delta")},
    **{name: (_algorithm, _fact(name)) for name in ("phi_dim", "gradient_path")},
}


def _source(name: str) -> Pick:
    return lambda record: record.plugins.get(name)


def unmatched(records: Mapping[str, Record], titles: Mapping[str, str]) -> dict[str, list[str]]:
    """Run → what it does not share with runs it should share it with; records without facts are not asked."""
    problems: dict[str, list[str]] = defaultdict(list)
    known = {run: record for run, record in records.items() if record.facts}
    for thing, (among, value) in SHARED.items():
        _compare(known, titles, thing, among, value, problems)
    for name in sorted({name for record in records.values() for name in record.plugins}):
        among = _algorithm if name in PIECES else _everybody
        _compare(records, titles, f"source of {name}", among, _source(name), problems)
    return problems


def _compare(
    records: Mapping[str, Record],
    titles: Mapping[str, str],
    thing: str,
    among: Pick,
    value: Pick,
    problems: dict[str, list[str]],
) -> None:
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run, record in records.items():
        try:
            shared, own = among(record), value(record)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            continue  # too odd to be asked; the recount says so
        if shared is not None and own is not None:
            groups[content_digest(shared)][content_digest(own)].append(run)
    for values in groups.values():
        if len(values) < 2:
            continue
        sizes = sorted(map(len, values.values()))
        for runs in values.values():
            if len(runs) == sizes[-1] and sizes[-1] > sizes[-2]:
                continue
            other = next(r for rs in values.values() if rs is not runs for r in rs)
            for run in runs:
                problems[run].append(f"{thing} differs between {titles.get(run, run)} and {titles.get(other, other)}")
