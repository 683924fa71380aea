"""Proof levels: how much of what somebody's results say was seen to be true, by whoever says so. All their names stand
here.

A level is never read from a file: it is what this installation found. What no level proves is in `UNPROVED`.
"""

from typing import Literal

from dpflbench.results.rulings import Verdict

Proof = Literal["refused", "reported", "recorded", "verified", "replayed"]
LEVELS: dict[Proof, str] = {  # each is more than the one before
    "refused": "a record contradicts itself, its suite or its neighbours, or ends elsewhere when it is played again",
    "reported": "numbers as they were printed; the records are not there, so nothing was checked",
    "recorded": "the records are there and nothing in them is wrong, but not everything could be looked at: a part "
    "that is not installed, other sources than this installation's, one accountant only",
    "verified": "every epsilon, budget, cohort, sensitivity, sum and digest was recomputed from the records, by two "
    "accountants that share no code, and every record is the one its suite asks for",
    "replayed": "verified, and a sample of the runs, which the submitter could not foresee, was played again here and "
    "ended at the same bits, its noise examined",
}
UNPROVED = (
    "what is not in the sample: a forger who changes one run in ten is missed by three replays with probability 0.73",
    "how often the submitter tried: algorithms, settings or seeds left out of suite and table alike",
    "that a plugin did not look where it must not, or behaves otherwise when it is watched: read its source",
    "times, machine and versions: they were measured once, elsewhere",
)


def proof_of(verdict: Verdict, played: int) -> Proof:
    """The level of runs whose records were ruled on like that at worst, and of which so many ended at the same bits
    when they were played again.
    """
    if verdict in ("wrong", "irreproducible"):
        return "refused"
    if verdict == "unverified":
        return "recorded"
    return "replayed" if played else "verified"
