"""What is claimed, and what is not: one list, the same in every report and in the README (tests/test_docs.py)."""

from dpflbench.report.tables.table import Table
from dpflbench.report.view import View

CLAIMED = (
    "Epsilon is the promise of one run, made to each client by itself: replacing one of its examples (under zero_out: "
    "emptying it), or with privacy.unit: client all of them, changes the probability of whatever is shown by no more "
    "than (ε, δ) say. A table composes many runs of one data set.",
    "Whatever is shown is every message, or under privacy.trust: secure_sum the sums alone, as long as the protocol "
    "that adds up shows nothing else and the share honest of its clients adds noise (a floating-point stand-in for it "
    "is simulated); under central the server itself is trusted.",
    "The budget is the guarantee. What is reported as spent is an odometer reading: where a plan depends on earlier "
    "releases the filter theorem (Smith and Thakurta, arXiv 2210.17520) covers the budget, not the reading.",
    "Accounting is exact (gdp, pure) or on the safe side (rdp, pld) for ideal real-valued noise, and what "
    "leaves a client is that noise rounded to a grid without "
    "error, tails included. Its bits hang on a key of 128 bits or more, so δ goes down to 2⁻⁶⁴ and no further.",
    "Amplification is claimed for the Poisson samples a client draws in secret of its own records, and for who takes "
    "part where federation.cohorts: poisson keeps that secret; never where the server sees it.",
)
NOT_COVERED = (
    "Features fitted on training data (principal components, means and scales), held-out examples included.",
    "Client sizes, budgets, and who takes part when.",
    "The utility on a client's own held-out examples, and every test utility.",
    "data_digest and split_digest in records: they tell whoever has a guess at the whole data set whether it is right.",
    "Reference values such as pooled least squares and predict-the-mean.",
    "Partitions that deal out examples by their labels.",
    "Whatever was tuned on the data: learning rates, clip bounds, the choice of an algorithm.",
    "How long a run takes.",
    "Code that runs in the same process as the data: it can read data and keys, whatever a server is shown.",
)


def claims_table(view: View) -> Table:
    """The list as a table of notes."""
    notes = (*CLAIMED, *(f"Not covered: {text[0].lower() + text[1:]}" for text in NOT_COVERED))
    return Table(key="claims", title="What is claimed, and what is not", header=(), rows=(), notes=notes)
