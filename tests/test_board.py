"""The board shows every row with its source and its proof, keeps versions of a suite apart, and believes no bundle."""

import csv
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from test_bundle import exchanged_record, folder, home, invoke, packed, run_in  # noqa: F401
from test_replay import better

from dpflbench.bundles.board import write_board
from dpflbench.bundles.bundle import make, read
from dpflbench.bundles.prove import Proved, prove
from dpflbench.bundles.rows import joined, page_of, reported
from dpflbench.errors import DpflbenchError
from dpflbench.results.store import manifest_text

REPO = Path(__file__).parent.parent
REPORTS = [REPO / "reports" / name for name in ("heterogeneity", "lending", "mnist")]


def bundle_of(home, tiny, name, catalogue, monkeypatch, **changes):  # noqa: F811
    """A bundle of a suite with some changes."""
    path = home.parent / f"{name}.tar.xz"
    path.write_bytes(make(run_in(home, {**tiny, **changes}, name, catalogue, monkeypatch), f"author of {name}"))
    return path


def page(path, catalogue):
    bundle = read(path)
    return page_of(bundle, prove(bundle, catalogue, 0, 0)), bundle


def test_rows_of_one_version_share_a_page_and_others_never_do(home, tiny, catalogue, monkeypatch, tmp_path):  # noqa: F811
    first = bundle_of(home, tiny, "first", catalogue, monkeypatch)
    mine = bundle_of(home, tiny, "mine", catalogue, monkeypatch, algorithms=["WeiAvg", "PFA"])
    longer = {**tiny["federation"], "rounds": 7}
    other = bundle_of(home, tiny, "other", catalogue, monkeypatch, federation=longer)
    pages = joined(page(path, catalogue) for path in (first, mine, other))
    assert [[row.algorithm for row in p.rows] for p in pages] == [
        ["FedSGD", "DPSGD", "WeiAvg", "WeiAvg", "PFA"],
        ["FedSGD", "DPSGD", "WeiAvg"],
    ]
    assert {row.source for row in pages[0].rows} == {"author of first", "author of mine"}
    assert len({row.id for row in pages[0].rows}) == 5
    index = write_board(pages, tmp_path / "site")
    links = re.findall(r'href="([\w-]+\.html)"', index.read_text())
    assert sorted(set(links)) == sorted(f"{p.slug}.html" for p in pages)
    rows = list(csv.DictReader((index.parent / f"{pages[0].slug}.csv").read_text().splitlines()))
    record = next(r for r in read(first).results.records.values() if r.algorithm == "DPSGD")
    (dpsgd,) = [row for row in rows if row["algorithm"] == "DPSGD"]
    assert float(dpsgd["mean"]) == record.final["utility_global"]
    assert dpsgd["commit"] == record.measured["commit"]
    assert (dpsgd["proof"], dpsgd["file"], dpsgd["date"]) == ("verified", "first.tar.xz", read(first).date)
    assert (index.parent / "bundles" / "first.tar.xz").read_bytes() == first.read_bytes()
    body = json.loads((index.parent / f"{pages[0].slug}.json").read_text())
    assert body["suite_version"] == read(first).version
    assert yaml.safe_load((index.parent / f"{pages[0].slug}.yaml").read_text())["federation"]["rounds"] == 6


def test_the_same_bundle_twice_is_there_once(packed, catalogue):  # noqa: F811
    (alone,) = joined([page(packed, catalogue), page(packed, catalogue)])
    assert len(alone.rows) == 3


def test_two_bundles_of_a_version_that_do_not_share_a_federation_are_refused(packed, catalogue):  # noqa: F811
    found, bundle = page(packed, catalogue)
    records = {
        run: replace(r, clients={**r.clients, "n_examples": r.clients["n_examples"] + 1})
        for run, r in bundle.results.records.items()
    }
    other = replace(bundle, results=replace(bundle.results, records=records))
    with pytest.raises(DpflbenchError, match="n_examples is not that of"):
        joined([(found, bundle), (found, other)])


def test_a_refused_bundle_is_named_and_left_out(folder, packed, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(folder.parent)
    forged = exchanged_record(packed, better)
    answer = invoke("board", packed, forged, "-o", tmp_path / "site", "--replay", "all")
    assert answer.exit_code == 1
    assert f"{forged}: left out" in answer.output
    (body,) = [json.loads(p.read_text()) for p in (tmp_path / "site").glob("*.json")]
    assert {row["file"] for row in body["rows"]} == {packed.name}
    assert {row["proof"] for row in body["rows"]} == {"replayed"}


def test_a_row_is_as_proved_as_its_own_runs(packed, catalogue):  # noqa: F811
    bundle = read(packed)
    whole = prove(bundle, catalogue, None, 0, Path(packed).parent / "distinctive-folder" / "distinctive-user")
    some = Proved(tuple(f if f.run in list(bundle.results.records)[:1] else replace(f, replayed=None)
                        for f in whole.findings), 1)  # fmt: skip
    assert sorted(row.proof for row in page_of(bundle, some).rows) == ["replayed", "verified", "verified"]


def test_reports_without_records_have_pages_of_their_own_and_say_so(tmp_path):
    pages = [reported(path) for path in REPORTS]
    assert {row.proof for p in pages for row in p.rows} == {"reported"}
    assert all(p.version == "" for p in pages)
    main = pages[0]
    scores = next(row for row in main.rows if row.algorithm == "DPFL-BCS").scores
    readme = (REPO / "README.md").read_text()
    (row,) = (line.split("|")[2:6] for line in readme.splitlines() if line.startswith("| DPFL-BCS |"))
    columns = [f"gaussian, ε max {high}, alpha {alpha}" for high in (1, 6) for alpha in ("0.5", "3")]
    assert [f"{scores[column].mean:.2f}" for column in columns] == [cell.strip(" *").split()[0] for cell in row]
    html = (write_board(pages, tmp_path).parent / f"{main.slug}.html").read_text()
    assert "the records are not there, so nothing was checked" in html


def test_what_is_neither_a_bundle_nor_a_report_is_refused_in_one_line(tmp_path):
    with pytest.raises(DpflbenchError, match=r"neither a bundle nor a report with cells\.csv and board\.json"):
        reported(tmp_path)


def test_names_from_strangers_are_inert_on_the_page(packed, catalogue, tmp_path):  # noqa: F811
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    found, _ = page(packed, catalogue)
    rows = tuple(replace(r, algorithm=evil, source=evil, commit=evil, file="", mark=evil) for r in found.rows)
    index = write_board([replace(found, rows=rows, name=evil, description=evil, suite=evil, bundles=())], tmp_path)
    for text in (index.read_text(), (tmp_path / f"{found.slug}.html").read_text()):
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "default-src 'none'" in text


def test_the_page_sorts_links_and_fits_in_a_browser(packed, catalogue, tmp_path, browser):  # noqa: F811
    found, _ = page(packed, catalogue)
    write_board([found, *(reported(path) for path in REPORTS)], tmp_path)
    row = found.rows[1]
    browser.open(tmp_path / f"{found.slug}.html", f"#{row.id}")
    assert browser.run("return document.querySelector(':target th').textContent").startswith(row.algorithm)
    browser.open(tmp_path / f"{found.slug}.html")  # at its top: the bar lies over a head that is scrolled away
    names = "return Array.from(document.querySelectorAll('#utility tbody th'), e => e.textContent.split(' ')[0])"
    browser.click("#utility th .sort")
    assert browser.run(names) == sorted(r.algorithm for r in found.rows)
    browser.click("#utility th:nth-child(2) .sort")
    best = sorted(found.rows, key=lambda r: -next(iter(r.scores.values())).mean)
    assert browser.run(names) == [r.algorithm for r in best]
    for html in tmp_path.glob("*.html"):
        browser.open(html)
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
        assert browser.logs("browser") == []


@pytest.mark.parametrize("path", sorted((REPO / "board").glob("*.tar.xz")), ids=lambda p: p.name)
def test_committed_bundles_are_what_they_say(path, catalogue):
    bundle = read(path)
    assert prove(bundle, catalogue, 1, 0, isolated=False).level in ("recorded", "replayed")
    assert bundle.version[:12] in path.name


def test_there_is_a_committed_bundle_and_ci_checks_what_a_pull_request_brings():
    assert list((REPO / "board").glob("*.tar.xz"))
    workflow = yaml.safe_load((REPO / ".github" / "workflows" / "board.yml").read_text())
    runs = [step.get("run", "") for step in workflow["jobs"]["check"]["steps"]]
    assert any(".ci/check-bundles" in run for run in runs)
    subprocess.run(["bash", "-n", str(REPO / ".ci" / "check-bundles")], check=True)


def test_a_suite_in_a_manifest_that_is_not_the_records_is_found(packed, catalogue):  # noqa: F811
    """The page shows that suite: it must be the one that ran."""
    results = read(packed).results
    suite = {**results.manifest.suite, "federation": {**results.manifest.suite["federation"], "rounds": 7}}
    text = manifest_text(replace(results.manifest, suite=suite))
    assert "7" in text
    bundle = replace(read(packed), results=replace(results, manifest=replace(results.manifest, suite=suite)))
    assert prove(bundle, catalogue, 0, 0).level == "refused"
