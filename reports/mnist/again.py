"""The report of README.md from the files beside it: `python reports/mnist/again.py [OUT]`, some CPU minutes.

The 39 records are of version 0.1 and were not kept; cells, clients and rounds were. What the page shows comes from
those three, but for two things that follow from the suite: what predicting the majority reaches on each seed's test
set, and the two numbers of `--why`. Those need each client's size, budget and participations, which are kept, and the
noise of its messages, which a plan gives: this version deals out data and budgets as that one did (compared below,
client by client), so only the second stage of DPFL-BCS is not planned again but taken as it was. Cohorts are drawn
anew, which matters to the weights of WeiAvg alone. Estimates of heterogeneity and single releases are gone.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from dpflbench.assembly import Assembly
from dpflbench.catalogue import load as load_catalogue
from dpflbench.execution.attempt import assembly_of
from dpflbench.execution.prepare import Place, prepare, task_of
from dpflbench.forecast import forecast
from dpflbench.interfaces import Floats, Plan, PlanView, Selector
from dpflbench.planning import plan_suite
from dpflbench.report.write import write_report
from dpflbench.results.cells import Results
from dpflbench.results.record import ACCURACY, Array, Record
from dpflbench.suite_reading import load

HERE = Path(__file__).parent
Key = tuple[str, str, int]  # mechanism, algorithm, seed
FINAL = ("utility_global", "utility_personal", "utility_mean_phi", "loss", "best_utility_global", "best_round")


@dataclass(frozen=True)
class AsItWas:
    """Plans as a selector does, its last stage as it was carried out."""

    selector: Selector
    uses: Floats  # [N], of the whole run

    def plan(self, view: PlanView, rng: np.random.Generator) -> Plan:
        """The first stage, or what the recorded uses leave for the second."""
        if view.round == 0:
            return self.selector.plan(view, rng)
        return Plan((self.uses - view.used).astype(np.int64), view.rounds_left)


def tables(name: str) -> dict[Key, dict[str, Array]]:
    """The rows of a Parquet file by cell, as columns."""
    table = pq.read_table(HERE / f"{name}.parquet").to_pandas()
    return {
        key: {c: rows[c].to_numpy() for c in rows.columns}
        for key, rows in table.groupby(["privacy.mechanism", "algorithm", "seed"], sort=False)
    }


def two_numbers(assembly: Assembly, clients: Mapping[str, Array]) -> dict[str, Any]:
    """Noise efficiency and data coverage of a run, from its participations."""
    setup = prepare(assembly, Place()).world.setup
    if not all(np.allclose(getattr(setup, k), clients[k], rtol=1e-12) for k in ("n_examples", "epsilon", "delta")):
        raise SystemExit(f"{assembly.algorithm.name}: other clients than the recorded ones")
    algorithm = replace(assembly.algorithm, selector=AsItWas(assembly.algorithm.selector, clients["uses"]))
    told = forecast(replace(assembly, algorithm=algorithm), Place())
    if (told.uses, told.unused) != (spread(clients["uses"]), int(np.sum(clients["uses"] == 0))):
        raise SystemExit(f"{algorithm.name}: other uses than the recorded ones")
    if not algorithm.private:
        return {"data_coverage": told.coverage}
    how = {
        "weights": told.weights,
        "rounds": told.rounds,
        "variance": told.variance,
        "limit": told.limit,
        "mean_limit": told.mean_limit,
    }
    return {"noise_efficiency": told.efficiency, "data_coverage": told.coverage, "why": how}


def spread(values: Array) -> tuple[float, float, float]:
    """Least, middle and largest."""
    return float(values.min()), float(np.median(values)), float(values.max())


def main(out: Path) -> None:
    """Write the report."""
    catalogue = load_catalogue(())
    planned = plan_suite(load(HERE.parents[1] / "suites/paper/mnist.yaml", ["seeds=3"]), catalogue, None)
    cells, clients, rounds = tables("cells"), tables("clients"), tables("rounds")
    started = datetime(2026, 11, 16, tzinfo=UTC).timestamp()
    places, records = [], dict[str, Record]()
    for cell in planned.manifest.cells:
        key = (cell.coordinates["privacy.mechanism"], cell.algorithm, cell.seed)
        if cell.run is None:
            places.append(cell)
            continue
        row = {name: values[0] for name, values in cells[key].items()}
        places.append(replace(cell, run=row["run"]))
        if row["run"] in records:
            continue
        run = planned.runs[cell.run]
        made = assembly_of(run, catalogue)
        task = task_of(made, Place())
        kept = {k: v for k, v in clients[key].items() if k not in ("privacy.mechanism", "algorithm", "seed", "run")}
        records[row["run"]] = Record(
            id=row["run"],
            status=row["status"],
            reason="",
            config=run.config,
            algorithm=cell.algorithm,
            private=bool(row["private"]),
            metric=ACCURACY,
            rounds={k: rounds[key][k] for k in ("round", "utility_global", "loss")},
            final={k: float(row[k]) for k in FINAL},
            clients=kept,
            facts={
                "n_classes": task.n_classes,
                "references": dict(task.references),
                "data_digest": run.data_digest,
                **two_numbers(made, kept),
            },
            measured={
                **{k: float(row[k]) for k in ("seconds", "gradient_seconds", "samples_per_second")},
                "device": row["device"],
                "versions": {"dpflbench": "0.1.0", "torch": "2.13.0"},
                "commit": "5304135",
                "processor": "AMD EPYC",
                "started": started,
            },
        )
    suite = planned.manifest.suite
    suite = {
        **suite,
        "description": f"{suite['description']}; made by version 0.1, shown from the tables that were kept",
    }
    write_report(Results(replace(planned.manifest, suite=suite, cells=places), records), out, catalogue=catalogue)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
