"""A verdict on a results folder: the findings of `judges.verify`, counted."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from dpflbench.judges.verify import Finding
from dpflbench.privacy.residuals import ALARM
from dpflbench.report import labels

EXIT = {"verified": 0, "wrong": 1, "empty": 1, "unverified": 3}


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found about every run, and which were played again."""

    findings: tuple[Finding, ...]
    records: int  # in the folder
    seed: int  # which runs were played again
    chosen: int  # how many were to be

    @property
    def count(self) -> Counter[str]:
        """Findings by verdict: ok, unverified, wrong, irreproducible, missing."""
        return Counter("missing" if f.missing else f.ruling.verdict for f in self.findings)

    @property
    def wrong(self) -> int:
        """How many findings are against the folder."""
        return self.count["wrong"] + self.count["irreproducible"]

    @property
    def unpriced(self) -> int:
        """How many of the unverified runs nobody here can price."""
        return sum(f.ruling.unpriced and f.ruling.verdict == "unverified" for f in self.findings)

    @property
    def standing(self) -> int:
        """How many runs stand a recount."""
        return self.count["ok"] + self.count["unverified"] - self.unpriced

    @property
    def verdict(self) -> Literal["verified", "unverified", "wrong", "empty"]:
        """`verified`: all of it; `unverified`: nothing is wrong, something could not be verified or is not there;
        `empty`: nothing to verify.
        """
        if self.wrong:
            return "wrong"
        if not self.standing and not self.unpriced:
            return "empty"
        return "unverified" if self.count["unverified"] or self.count["missing"] else "verified"

    @property
    def exit_code(self) -> int:
        """0 verified, 1 wrong or nothing there, 3 not wholly verified."""
        return EXIT[self.verdict]

    @property
    def replayed(self) -> int:
        """Runs that were played again to their end."""
        return sum(f.replayed is not None and not f.replayed.doubts for f in self.findings)

    @property
    def draws(self) -> int:
        """Draws of noise that were examined on the way."""
        return sum(f.replayed.residuals for f in self.findings if f.replayed is not None)

    @property
    def lines(self) -> list[str]:
        """The verdict in words."""
        partly = self.count["unverified"] or self.count["missing"]
        word = "WRONG" if self.wrong else "NOT WHOLLY VERIFIED" if partly else "Verified"
        ended = Counter(f.status for f in self.findings if f.status not in ("", "done") and not f.problems)
        extra = [f"{number} {status}" for status, number in ended.items()]
        extra += [f"{self.unpriced} that nobody here can price"] if self.unpriced else []
        doubtful = self.count["unverified"] - self.unpriced
        extra += [f"{doubtful} not wholly verified"] if doubtful else []
        extra += [f"{self.count['missing']} not there (yet)"] if self.count["missing"] else []
        found = [f"{word}: {self.standing} runs stand a recount, {self.wrong} findings{', '.join(['', *extra])}."]
        if self.chosen:
            found.append(
                f"Played again: {self.replayed} of {self.records} runs (--seed {self.seed}), {self.draws:,} draws of "
                f"noise examined (honest noise is accused in one run of {1 / ALARM:,.0f})."
            )
        return found

    def json(self) -> dict[str, Any]:
        """As `verify --json` prints it: dpflbench/api/README.md has the keys."""
        return {
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "counts": {name: self.count[name] for name in ("ok", "unverified", "wrong", "irreproducible", "missing")},
            "replayed": self.replayed,
            "draws_examined": self.draws,
            "seed": self.seed if self.chosen else None,
            "runs": [_finding(f) for f in self.findings],
        }

    def __str__(self) -> str:
        return "\n".join([*(line for f in bad(self.findings) for line in told(f)), *self.lines])

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        doubts = [f"* {labels.markdown(' '.join(told(f)))}" for f in bad(self.findings)]
        return "\n".join([*doubts, "", *(f"{labels.markdown(line)}" for line in self.lines)])


def bad(findings: Iterable[Finding]) -> list[Finding]:
    """Those that do not stand."""
    return [f for f in findings if not f.ruling.stands]


def told(finding: Finding) -> list[str]:
    """A run in a line, and a line for each thing that is wrong or could not be verified."""
    status = finding.status if finding.status not in ("", "done") else "ok"
    word = (
        "–" if finding.missing else {"ok": status, "wrong": "FAIL"}.get(finding.ruling.verdict, finding.ruling.verdict)
    )
    summary = f": {finding.summary}" if finding.summary else ""
    first = f"{word:12}  {finding.run or '-':20}  {finding.label}{summary}"
    return [first, *(f"{'':14}{reason}" for reason in finding.ruling.reasons)]


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "run": finding.run or None,
        "title": finding.label,
        "status": finding.status or None,
        "verdict": "missing" if finding.missing else finding.ruling.verdict,
        "reasons": list(finding.ruling.reasons),
        "accountants": list(finding.accountants),
        "replayed": finding.replayed is not None,
    }
