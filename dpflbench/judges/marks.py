"""Marks: what a table has to say beside a row whose numbers do not stand, or were had where they could be spoilt.

A marked row is shown, and never bold, ranked or crowned.
"""

from dataclasses import replace

from dpflbench.catalogue import Catalogue
from dpflbench.judges.exposed import exposed, spoilt
from dpflbench.judges.verify import rulings
from dpflbench.results.cells import Results
from dpflbench.results.rulings import NOT_AS_CLAIMED, Ruling

PATIENCE = 20.0  # CPU seconds for second accountants: all of the main job; of slower ones a sample


def marked(results: Results, catalogue: Catalogue, doubts: bool = True) -> Results:
    """The results with a mark for every run that needs one, after all its records were verified.

    Without `doubts` a run is not marked for being unverified alone: records of an earlier version are, all of them.
    One that nobody here can price is marked all the same: its accountant may be the one to say it is no proof.
    """
    ruled = rulings(results, catalogue, PATIENCE)
    marks = {
        run: _mark(ruling)
        for run, ruling in ruled.items()
        if not ruling.stands and (doubts or ruling.unpriced or ruling.verdict != "unverified")
    }
    for run, record in results.records.items():
        alone = run not in ruled or set(ruled[run].reasons) <= {*spoilt(record)}  # nothing else is wrong with it
        if (run not in marks or alone) and (why := exposed(record)):
            marks[run] = why
    return replace(results, marks={**results.marks, **marks})


def _mark(ruling: Ruling) -> str:
    """The verdict, or that a run never was what it claims where its accountant says so itself."""
    return NOT_AS_CLAIMED if any(why.startswith(NOT_AS_CLAIMED) for why in ruling.reasons) else ruling.verdict
