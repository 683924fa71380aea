"""Ma et al., "The Power of Bias" (arXiv 2408.08642): what they print beside ours, and their claims put to the test.

A section of a report: `report: {sections: [{name: ma2024, show: table1}]}`. `table1` and `table2` are the printed ones,
each with the table of claims; `claims` is that one alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dpflbench import hookimpl
from dpflbench.hookspecs import Factories
from dpflbench.report.tables.table import Table
from dpflbench.report.view import View
from dpflbench_ma2024.claims import claim_table
from dpflbench_ma2024.printed import table_1, table_2


@dataclass(frozen=True, slots=True)
class Ma2024:
    """The paper's printed tables and its claims."""

    show: Literal["table1", "table2", "claims", "all"] = "all"

    def contents(self, view: View) -> Sequence[Table]:
        """Return the printed tables that were asked for, and the claims."""
        one = table_1(view) if self.show in ("table1", "all") else None
        two = table_2(view) if self.show in ("table2", "all") else None
        return [table for table in (one, two, claim_table(view)) if table is not None]


@hookimpl
def dpflbench_sections() -> Factories:
    """The paper."""
    return {"ma2024": Ma2024}
