"""Where the numbers come from: every record, and the versions and machines behind them."""

import math

from dpflbench.report.tables.table import Item, Table, figure
from dpflbench.report.view import View


def records_table(view: View) -> Table:
    """Every cell with the id and status of its record."""
    rows = []
    for column in view.columns:
        for group in view.in_column(column):
            for e in group.endings:
                seconds = e.record.measured.get("seconds") if e.record else None
                took = float(seconds) if isinstance(seconds, int | float) else math.nan
                rows.append(
                    (
                        *(Item(text) for text in (e.run or "–", e.status, column.title, group.algorithm)),
                        Item(str(e.seed), e.seed),
                        figure(e.value),
                        figure(took),
                        Item(e.reason),
                    )
                )
    return Table(
        key="records",
        title="Records",
        header=("record", "status", "column", "algorithm", "seed", "value", "seconds", "reason"),
        rows=tuple(rows),
        labels=4,
        caption="Every number above comes from one of these files, records/<id>.json.",
    )


def environment_table(view: View) -> Table:
    """Versions, packages, devices and machines the records come from, with how many come from each."""
    counts: dict[tuple[str, str], int] = {}
    for record in view.records.values():
        facts = {f"version of {k}": v for k, v in (record.measured.get("versions") or {}).items()}
        facts |= {f"source of {k}": v for k, v in record.plugins.items()}
        facts |= {k: record.measured[k] for k in ("device", "threads", "machine") if k in record.measured}
        facts |= {k.replace("_", " "): record.facts[k] for k in ("data_digest", "gradient_path") if k in record.facts}
        for name, value in facts.items():
            counts[name, str(value)] = counts.get((name, str(value)), 0) + 1
    rows = tuple((Item(name), Item(value), Item(str(n), n)) for (name, value), n in sorted(counts.items()))
    header = ("what", "value", "records")
    return Table(key="environment", title="Environment", header=header, rows=rows, labels=2)
