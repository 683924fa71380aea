"""An honest results folder in memory, and what somebody who tampers with it can make anew: chains, digests, ids."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from places import place

from dpflbench.canonical import content_digest
from dpflbench.catalogue import Catalogue
from dpflbench.execution.attempt import execute
from dpflbench.planning import plan_suite
from dpflbench.privacy.chain import chain_of
from dpflbench.results.cells import Results
from dpflbench.results.record import Record, dumps, loads
from dpflbench.suite_reading import check


def honest_suite(data: str) -> dict[str, Any]:
    """Two mechanisms, probes, joint probes, personal clip bounds, personal transforms and a run without privacy."""
    return {
        "name": "honest",
        "task": {
            "dataset": {"name": "npz", "path": data},
            "model": "softmax",
            "partition": {"kind": "iid"},
            "holdout": 0.2,
        },
        "federation": {"clients": 8, "cohort": 4, "rounds": 6, "lr": {"initial": 0.5, "decay": 20}},
        "privacy": {
            "mechanism": "gaussian",
            "clip": {"gaussian": 1.0, "laplace": 2.0},
            "delta": 1e-5,
            "epsilon": {"kind": "uniform", "low": 0.5, "high": 4.0},
        },
        "axes": {"privacy.mechanism": ["gaussian", "laplace"], "privacy.epsilon.high": [4.0, 8.0]},
        "algorithms": [
            "FedSGD",
            "DPSGD",
            "WeiAvg",
            {"use": "DPFL-BCS", "with": {"probe_rounds": 2}},
            {"use": "DPFL-BCS", "as": "literal", "with": {"probe_rounds": 2, "probe": "literal"}},
            "IDP-clipping",
            "PRIVATEFL",
        ],
    }


def results_of(raw: Mapping[str, Any], catalogue: Catalogue) -> Results:
    """All runs of a suite, as a results folder would have them."""
    problems: list[str] = []
    suite = check(raw, "honest.yaml", problems)  # type: ignore[arg-type]
    assert suite is not None, problems
    planned = plan_suite(suite, catalogue, None)
    records = {run.id: loads(dumps(execute(run, catalogue, place()))) for run in planned.runs.values()}
    return Results(planned.manifest, records)


def of(results: Results, algorithm: str, **coordinates: Any) -> Record:
    """The record of the first cell of an algorithm at some coordinates of the privacy section."""
    cell = next(
        c
        for c in results.manifest.cells
        if c.algorithm == algorithm
        and c.run
        and all(c.coordinates[f"privacy.{k}"] == v for k, v in coordinates.items())
    )
    return results.records[cell.run]


def remade(record: Record) -> Record:
    """The record with ledger digest, chain, id and digests that fit its content, as a careful forger leaves it."""
    facts = dict(record.facts)
    if record.private and facts and set(record.events):
        accountant = record.config["privacy"]["mechanism"]["accountant"]["name"]
        chain = chain_of(accountant, record.clients["epsilon"], record.clients["delta"], record.events)
        facts |= {"ledger_digest": chain.digest, "ledger_chain": chain.links}
    if facts:
        run = content_digest([record.config, record.plugins, facts["data_digest"]])[:20]
        if facts["noise"].get("run") == record.id:
            facts["noise"] = {**facts["noise"], "run": run}
        record = replace(record, id=run)
    return loads(dumps(replace(record, facts=facts)))


def exchanged(results: Results, old: str, new: Record) -> Results:
    """The folder with one record exchanged for another; cells follow its id."""
    cells = [replace(c, run=new.id) if c.run == old else c for c in results.manifest.cells]
    records = {run: record for run, record in results.records.items() if run != old}
    return Results(replace(results.manifest, cells=cells), {**records, new.id: new}, results.problems)
