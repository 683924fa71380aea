"""Errors a user can fix (one line, exit 2) and the ways a run can end other than well.

Any other exception is a bug of ours and keeps its traceback.
"""

from collections.abc import Sequence


class DpflbenchError(Exception):
    """Something the user can fix; its text is one line: where, what was found, what is allowed."""


class DpflbenchWarning(UserWarning):
    """Something the user should know and need not fix."""


class SuiteError(DpflbenchError):
    """All problems of one suite file, each with its path into the file."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class PluginError(DpflbenchError):
    """A plugin that cannot be loaded, clashes with another or breaks its interface."""


class DataError(DpflbenchError):
    """Data that is missing, damaged or not what its name says."""


class RunEnded(DpflbenchError):
    """A run that cannot go on; the suite can. `status` goes into its record."""

    status = "failed"


class BudgetExceeded(RunEnded):
    """A client was asked to spend more than its budget: the run is disqualified."""

    status = "disqualified"


class Diverged(RunEnded):
    """The model or its loss is no longer finite."""

    status = "diverged"
