"""Where the numbers come from: every record, and the versions and machines behind them."""

import math
from datetime import UTC, datetime

from dpflbench.report import labels
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
                        figure(e.value, view.digits(column)),
                        figure(took, 2),
                        Item(e.reason),
                    )
                )
    return Table(
        key="records",
        title="Records",
        header=("record", "status", "column", "algorithm", "seed", "value", "seconds", "reason"),
        rows=tuple(rows),
        labels=4,
        caption="Every number above comes from one of these records: records/<id>.json in its results folder.",
    )


def environment_table(view: View) -> Table:
    """Versions, packages, devices and machines the records come from, with how many come from each."""
    counts: dict[tuple[str, str], int] = {}
    for record in view.records.values():
        facts = {f"version of {k}": v for k, v in (record.measured.get("versions") or {}).items()}
        facts |= {f"source of {k}": v for k, v in record.plugins.items()}
        facts |= {
            k: record.measured[k]
            for k in ("device", "threads", "kernels", "machine", "processor", "commit", "isolation")
            if k in record.measured
        }
        facts |= {k.replace("_", " "): record.facts[k] for k in ("data_digest", "gradient_path") if k in record.facts}
        for name, value in facts.items():
            counts[name, str(value)] = counts.get((name, str(value)), 0) + 1
    rows = tuple((Item(name), Item(value), Item(str(n), n)) for (name, value), n in sorted(counts.items()))
    header = ("what", "value", "records")
    return Table(key="environment", title="Environment", header=header, rows=rows, labels=2)


def made(view: View) -> dict[str, str]:
    """When, where and from what the records were made, and the command that makes them again, or why no one command
    does; what is not known is not there.
    """
    measured = [record.measured for record in view.records.values()]

    def known(key: str) -> list[str]:
        return list(dict.fromkeys(labels.clean(m[key], 80) for m in measured if m.get(key)))

    started = sorted(float(m["started"]) for m in measured if isinstance(m.get("started"), int | float))
    days = dict.fromkeys(datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%d") for t in started[:1] + started[-1:])
    devices = known("device")
    if len(devices) > 1 and all(device.startswith("cuda") for device in devices):
        devices = ["cuda"]  # as they were asked for: runs are dealt out over all there are
    kernels = {labels.clean(m.get("kernels") or "torch", 80).partition(" ")[0] for m in measured if m}
    asked = {"threads": known("threads"), "device": devices, "kernels": sorted(kernels)}
    several = [f"{name} {labels.listing(values)}" for name, values in asked.items() if len(values) > 1]
    options = [f"--{name} {value}" for name, values in asked.items() for value in values if value != "torch"]
    noise = [record.facts.get("noise") or {} for record in view.records.values()]
    keys = {labels.clean(n["key"], 128) for n in noise if n.get("origin") in ("drawn", "given")}
    options += ["--why"] if view.counterfactuals and not view.report.why else []
    options += [f"--noise-key {key}" for key in keys if len(keys) == 1]  # pinned ones stand in the suite
    versions = list(dict.fromkeys(str((m.get("versions") or {}).get("dpflbench", "")) for m in measured))
    command = " ".join(["dpflbench run suite.yaml", *options]) if measured else ""
    found = {
        "date": " to ".join(days),
        "dpflbench": labels.listing([v for v in versions if v]),
        "commit": labels.listing(known("commit")),
        "processor": labels.listing(known("processor") or known("machine")),
        "command": f"none repeats them all: {'; '.join(several)}" if several else command,
    }
    return {name: text for name, text in found.items() if text}
