"""Which runs explain a table: for every private run that is done, the same one without noise, and without clip as well.

They are planned from records, so after the runs they explain, and are cached and resumed like those. They never fill a
cell: a results folder keeps beside its manifest which run explains which.
"""

from dpflbench.assembly import assemble
from dpflbench.catalogue import Catalogue
from dpflbench.errors import SuiteError
from dpflbench.planning import Run, make_run
from dpflbench.replay import EXPLAINING, stages_of
from dpflbench.results.cells import Results
from dpflbench.results.record import Record
from dpflbench.suite_schema import Canonical, Normalised, Raw


def counterfactuals(results: Results, catalogue: Catalogue) -> tuple[dict[str, dict[str, str]], dict[str, Run]]:
    """Private run → what is left out → run, and those runs by their id."""
    links: dict[str, dict[str, str]] = {}
    runs: dict[str, Run] = {}
    for record in results.records.values():
        if record.private and record.status == "done" and has_rows(record):
            for without in EXPLAINING:
                run = counterfactual(record, without, catalogue)
                links.setdefault(record.id, {})[without] = run.id
                runs[run.id] = run
    return links, runs


def has_rows(record: Record) -> bool:
    """Whether every message of a run had noise of its own, which is what can be left out here; sums and secret cohorts
    have none.
    """
    privacy, federation = record.config["privacy"], record.config["federation"]
    return bool(privacy.get("trust", "local") == "local" and federation.get("cohorts", "exact") == "exact")


def counterfactual(record: Record, without: str, catalogue: Catalogue) -> Run:
    """The run that replays a record; SuiteError if this installation cannot make it."""
    asked = {"of": record.id, "without": without, "stages": stages_of(record)}
    config, problems = Normalised(Raw({**record.config, "counterfactual": asked})), list[str]()
    made = assemble(config, catalogue, problems)
    if made is None:
        raise SuiteError([f"counterfactual of run {record.id}: {p}" for p in problems])
    return make_run(Canonical(made.config), made, str(record.facts["data_digest"]))
