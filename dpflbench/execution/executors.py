"""Runs happen here: those whose record is not there yet, one after the other in this process."""

from collections.abc import Callable

from dpflbench.catalogue import Catalogue
from dpflbench.execution.execute import Place, execute
from dpflbench.execution.store import Store
from dpflbench.plan import Planned
from dpflbench.records import RecordError


def run_serially(planned: Planned, store: Store, catalogue: Catalogue, place: Place, say: Callable[[str], None] | None) -> int:
    """Execute what is missing and keep each record; the number of runs that failed."""
    failed = 0
    for i, run in enumerate(planned.runs.values(), 1):
        try:
            record = store.read(run.id)
        except RecordError:
            record = None
        reused = record is not None and record.status in ("done", "diverged", "disqualified")
        if record is None or not reused:
            record = execute(run, catalogue, place)
            store.write(record)
        failed += record.status == "failed"
        if say:
            value = record.final.get("utility_global")
            shown = "" if value is None else f" {record.metric.name} {value:.2f}{record.metric.unit}"
            say(f"[{i}/{len(planned.runs)}] {run.id} {record.algorithm} seed {run.config['seed']}: {record.status}{shown}"
                f"{' (reused)' if reused else ''}{' – ' + record.reason if record.reason else ''}")
    return failed
