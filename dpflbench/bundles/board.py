"""The board as files: an index, a page a version of a suite, its rows as CSV and JSON, and the bundles themselves.

Static: no server, no requests but for what is linked. Who is in bold is decided by means of rows that stand and by
nothing else; whether two rows differ is a paired test's business, and the page says how to have it.
"""

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpflbench.bundles.rows import BoardRow, Page, Scored
from dpflbench.bundles.version import DIGITS
from dpflbench.report import labels
from dpflbench.report.page import render
from dpflbench.report.tables.table import Item, Table, as_csv
from dpflbench.results.proofs import LEVELS, UNPROVED, Proof
from dpflbench.results.store import write_atomically

STANDING: tuple[Proof, ...] = ("verified", "replayed")
FACTS = ("proof", "replayed", "source", "supplier", "commit", "dpflbench", "date", "mark", "file")


def write_board(pages: Sequence[Page], out: Path) -> Path:
    """Write all of it into a folder; the index."""
    (out / "bundles").mkdir(parents=True, exist_ok=True)
    for page in pages:
        for path in page.bundles:
            shutil.copyfile(path, out / "bundles" / path.name)
        write_atomically(out / f"{page.slug}.csv", as_csv(*_long(page)))
        write_atomically(out / f"{page.slug}.json", json.dumps(_plain(page), indent=1, ensure_ascii=False) + "\n")
        if page.suite:
            write_atomically(out / f"{page.slug}.yaml", page.suite)
        write_atomically(out / f"{page.slug}.html", _page_html(page))
    write_atomically(out / "index.html", _index_html(pages))
    return out / "index.html"


def _page_html(page: Page) -> str:
    rows = _ordered(page)
    links = {f"#{row.id[4:]}": f"#{row.id}" for row in rows}
    links |= {row.file: f"bundles/{row.file}" for row in rows if row.file}
    files = {"CSV": f"{page.slug}.csv", "JSON": f"{page.slug}.json"}
    return render(
        "board.html.j2",
        title=f"{page.name} {page.version[:DIGITS]}".strip(),
        description=page.description,
        made=_made(page),
        table=_table(page, rows),
        links=links,
        ids=[row.id for row in rows],
        files={**files, "suite": f"{page.slug}.yaml"} if page.suite else files,
        suite=page.suite,
        levels=_levels(),
        home=True,
        warnings=[] if page.version else [f"Report only: {LEVELS['reported']}."],
    )


def _index_html(pages: Sequence[Page]) -> str:
    rows, links = [], {}
    for page in sorted(pages, key=lambda p: (not p.version, p.name.lower())):
        links[page.slug] = f"{page.slug}.html"
        proofs = [row.proof for row in page.rows]
        counted = ", ".join(f"{proofs.count(level)} {level}" for level in reversed(LEVELS) if level in proofs)
        newest = max(row.date for row in page.rows)
        rows.append(tuple(map(Item, (page.slug, counted, newest, page.description))))
    table = Table(
        key="suites",
        title="Suites",
        header=("page", "rows", "newest", "what it is"),
        rows=tuple(rows),
        labels=4,
        caption="One page a version of a suite: settings of every column, seeds, data, split and initial model. "
        "Results of different versions are never mixed.",
    )
    return render(
        "board.html.j2",
        title="Board",
        description="Differentially private federated learning at the same budget, client by client: results from "
        "anybody, with what was seen of their truth.",
        made={},
        table=table,
        links=links,
        ids=[],
        files={},
        suite="",
        levels=_levels(),
        home=False,
        warnings=[],
    )


def _levels() -> Table:
    """The proof levels, the most first, and what none of them proves."""
    return Table(
        key="proof",
        title="Proof levels",
        header=("level", "what was seen by whoever built this board"),
        rows=tuple((Item(level), Item(text)) for level, text in reversed(LEVELS.items())),
        labels=2,
        notes=tuple(f"No level proves {text}." for text in UNPROVED),
    )


def _made(page: Page) -> dict[str, str]:
    found = {
        "suite version": page.version or "unknown: the records are not there",
        "rows": str(len(page.rows)),
        "sources": labels.listing(list(dict.fromkeys(row.source for row in page.rows))),
        "command": page.command,
    }
    return {name: text for name, text in found.items() if text}


def _table(page: Page, rows: Sequence[BoardRow]) -> Table:
    digits = labels.decimals([s.mean for row in rows for s in row.scores.values()])
    best = {key: _best(page, key) for key in page.columns}
    body = []
    for row in rows:
        name = Item(row.algorithm, mark=" ".join(filter(None, ["" if row.private else "(not private)", row.mark])))
        scores = [_item(row.scores.get(key), digits, row.id in best[key]) for key in page.columns]
        proof = Item(row.proof, float(list(LEVELS).index(row.proof)), mark=row.replayed and f"({row.replayed} runs)")
        facts = (row.source, row.supplier, row.commit or "–", row.date, row.file or "–")
        body.append((name, *scores, proof, *map(Item, facts), Item(f"#{row.id[4:]}")))
    arrow = labels.arrow(page.metric)
    heads = [title.replace(", ", "\n") + f" {arrow}" for title in page.columns.values()]
    return Table(
        key="utility",
        title=f"Rows: {labels.metric_label(page.metric)}",
        header=("algorithm", *heads, "proof", "source", "code", "commit", "date", "bundle", "link"),
        rows=tuple(body),
        words=7,
        caption="Mean ± standard deviation over paired seeds, after the last round. Click a head to sort.",
        notes=(
            "Bold: the best mean of private rows that are verified or replayed and whose seeds all ended well. A mean "
            "is no test: `dpflbench report` of several results folders compares seed by seed.",
            "Rows of one page share settings, seeds, data, split, initial model and budgets; noise is each row's own.",
        ),
    )


def _item(score: Scored | None, digits: int, bold: bool) -> Item:
    if score is None or not score.values:
        return Item("–", hint=score.gaps if score else "not part of it")
    part = f" ({len(score.values)}/{score.seeds})" if len(score.values) < score.seeds else ""
    return Item(labels.mean_std(score.mean, score.std, digits) + part, score.mean, bold=bold, hint=score.gaps)


def _best(page: Page, key: str) -> set[str]:
    """Who has the best mean of a column among those who can be compared."""
    fit = {
        row.id: row.scores[key].mean
        for row in page.rows
        if row.private and row.proof in STANDING and not row.mark and key in row.scores
        and len(row.scores[key].values) == row.scores[key].seeds
    }  # fmt: skip
    top = (max if page.metric.higher_is_better else min)(fit.values(), default=math.nan)
    return {row for row, mean in fit.items() if mean == top}


def _ordered(page: Page) -> list[BoardRow]:
    """The best of the first column first; what has no value there last."""
    first, sign = next(iter(page.columns)), -1 if page.metric.higher_is_better else 1

    def place(row: BoardRow) -> tuple[bool, float]:
        mean = row.scores[first].mean if first in row.scores else math.nan
        return math.isnan(mean), sign * mean if not math.isnan(mean) else 0.0

    return sorted(page.rows, key=place)


def _long(page: Page) -> tuple[list[str], list[list[object]]]:
    """One line a row and column."""
    header = [
        "suite",
        "suite_version",
        "row",
        "algorithm",
        "private",
        "column",
        "metric",
        "mean",
        "std",
        "n_done",
        "n_seeds",
    ]
    lines: list[list[object]] = []
    for row in _ordered(page):
        for key, title in page.columns.items():
            score = row.scores.get(key, Scored({}, 0))
            found = (score.mean, score.std, len(score.values), score.seeds)
            line = [page.name, page.version, row.id, row.algorithm, row.private, title, page.metric.name, *found]
            lines.append([*line, *(getattr(row, fact) for fact in FACTS)])
    return [*header, *FACTS], lines


def _plain(page: Page) -> dict[str, Any]:
    rows = [
        {
            "row": row.id,
            "algorithm": row.algorithm,
            "private": row.private,
            **{fact: getattr(row, fact) for fact in FACTS},
            "values": {
                page.columns[key]: {str(s): v for s, v in score.values.items()} for key, score in row.scores.items()
            },
        }
        for row in _ordered(page)
    ]
    return {"suite": page.name, "suite_version": page.version, "metric": page.metric.name, "rows": rows}
