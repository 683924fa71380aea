"""A comparison as Markdown for a pull request, as JUnit XML for a CI server and as plain data for scripts. Names in it
come from strangers.
"""

from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree

from dpflbench.regression.compare import Check, Comparison, counts
from dpflbench.report.labels import clean, markdown, number, signed

SIGNS = {"ok": "✓", "failed": "✗", "skipped": "–"}


def as_markdown(comparison: Comparison) -> str:
    """A verdict, what failed, a table of utilities, and what the other tiers say."""
    count = counts(comparison)
    verdict = f"✗ {count['failed']} checks failed" if comparison.failed else "✓ no regression"
    lines = [
        f"## dpflbench: {markdown(comparison.name)}: {verdict}",
        "",
        f"{count['ok']} checks passed, {count['failed']} failed, {count['skipped']} noted, new or not comparable.",
        "",
    ]
    if comparison.failed:
        lines += [
            "### Failed",
            "",
            *(f"* **{c.tier}**, {markdown(c.name)}: {markdown(c.message)}" for c in comparison.failed),
            "",
        ]
    rows = [c for c in comparison.checks if c.figures]
    if rows:
        lines += [
            "### Utility at equal epsilon",
            "",
            "| | algorithm | baseline | now | difference [95 %] | |",
            "|---|---|---:|---:|---:|---|",
        ]
        lines += [_row(c) for c in rows] + [""]
    lines += ["### Other tiers", ""]
    for tier in ("coverage", "numerics", "privacy", "run time"):
        checks = [c for c in comparison.checks if c.tier == tier]
        if checks:
            lines.append(f"* {tier}: {_summary(checks)}")
    return "\n".join(lines) + "\n"


def _row(check: Check) -> str:
    f = check.figures
    if f is None:
        return ""
    spread = f" [{signed(f.low)}, {signed(f.high)}]" if f.seeds > 1 else ""
    return (
        f"| {SIGNS[check.verdict]} | {markdown(check.name)} | {number(f.before)} | {number(f.now)} | "
        f"{signed(f.difference)}{spread} | {markdown(check.message)} |"
    )


def _summary(checks: list[Check]) -> str:
    """How often what; the messages where they are few."""
    parts = []
    for verdict, word in (("ok", "passed"), ("failed", "failed"), ("skipped", "noted, new or not comparable")):
        found = [c for c in checks if c.verdict == verdict]
        if found:
            messages = sorted({c.message for c in found})
            detail = f" ({markdown('; '.join(messages))})" if len(messages) <= 2 else ""
            parts.append(f"{len(found)} {word}{detail}")
    return ", ".join(parts)


def as_junit(comparison: Comparison) -> str:
    """One test case a check: class name the tier, name the place."""
    count = counts(comparison)
    attributes = {
        "tests": str(len(comparison.checks)),
        "failures": str(count["failed"]),
        "skipped": str(count["skipped"]),
        "errors": "0",
    }
    root = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": f"dpflbench compare {clean(comparison.name)}", **attributes}
    )
    for check in comparison.checks:
        named = {"classname": f"dpflbench.{check.tier.replace(' ', '_')}", "name": clean(check.name)}
        case = ElementTree.SubElement(suite, "testcase", named)
        if check.verdict == "failed":
            ElementTree.SubElement(case, "failure", {"message": clean(check.message)})
        elif check.verdict == "skipped":
            ElementTree.SubElement(case, "skipped", {"message": clean(check.message)})
        else:
            ElementTree.SubElement(case, "system-out").text = clean(check.message)
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def as_plain(comparison: Comparison) -> dict[str, Any]:
    """As `compare --json` prints it: dpflbench/api/README.md has the keys."""
    return {
        "suite": comparison.name,
        "passed": not comparison.failed,
        "counts": dict(counts(comparison)),
        "checks": [asdict(check) for check in comparison.checks],
    }
