"""What a record says of its own run that a number cannot show: a stranger's code that could have spoilt it, or did."""

from dpflbench.report.noise import predictable, strangers
from dpflbench.results.record import Record


def exposed(record: Record) -> str:
    """The mark of a run that is right as far as numbers go; empty if it needs none."""
    if record.measured.get("odd_noise"):
        return "odd noise"
    if record.private and strangers(record):
        if predictable(record):
            return "predictable noise"
        if record.measured.get("isolation", "none") == "none":
            return "not isolated"
    return "keeps data" if record.measured.get("leftovers") else ""


def spoilt(record: Record) -> list[str]:
    """What was seen while it ran and must not be."""
    found = []
    if odd := record.measured.get("odd_noise"):
        found.append(f"while it ran its noise was not what its ledger says ({odd})")
    if left := record.measured.get("leftovers"):
        found.append(f"while it ran client code left something of what it was shown behind ({left})")
    return found


def remark(record: Record) -> str:
    """Why tables mark it although nothing is wrong with it; empty if they do not."""
    if exposed(record) == "predictable noise":
        return f"marked: its noise key was known before the run, and {', '.join(strangers(record))} saw its messages"
    if exposed(record) == "not isolated":
        return f"marked: {', '.join(strangers(record))} ran in one process with the data"
    return ""
