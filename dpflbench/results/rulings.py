"""What is ruled on a run: whether its numbers stand, and why not. Made by `judges.verify`, shown by whoever shows
the run.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

NOT_AS_CLAIMED = "not private as claimed"  # begins the reason, and is the mark, of a run whose prices are no proof
UNPRICED = "its releases cannot be priced here"  # begins the doubt about a run whose accountant nobody here can ask
Verdict = Literal["ok", "unverified", "wrong", "irreproducible"]
ORDER: tuple[Verdict, ...] = ("ok", "unverified", "wrong", "irreproducible")  # each is worse than the one before


@dataclass(frozen=True, slots=True)
class Ruling:
    """ok              every number that can be recomputed was, by two who share no code
    unverified      nothing is wrong, but something could not be looked at: one accountant only, a part that is not
                    installed, other sources than this installation's, another processor
    wrong           the record contradicts itself, its suite or its neighbours
    irreproducible  played again with the same key it ends elsewhere
    """

    verdict: Verdict
    reasons: tuple[str, ...] = ()

    @property
    def stands(self) -> bool:
        """Whether the run may be called best."""
        return self.verdict == "ok"

    @property
    def unpriced(self) -> bool:
        """Whether nobody here can say what its releases cost, nor whether that is what it claims."""
        return any(why.startswith(UNPRICED) for why in self.reasons)


def worst(rulings: Iterable[Ruling]) -> Verdict:
    """The worst verdict among them; ok if there is none."""
    return max((r.verdict for r in rulings), key=ORDER.index, default="ok")
