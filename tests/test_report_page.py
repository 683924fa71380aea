"""The page for those who look: what fits a screen, what the keyboard reaches, what it links and says of itself."""

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from record_factory import make_results
from test_report_html import ALGORITHMS, AXES, Tags, keep, page_of, press, whole_results

from dpflbench.planning import plan_suite
from dpflbench.report.merge import Folder, merge
from dpflbench.report.write import write_report
from dpflbench.results.store import Store
from dpflbench.suite_reading import load

SUITES = Path(__file__).parent.parent / "suites"
SCREENS = {"desk": (1440, 900, False), "phone": (390, 844, True)}


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return write_report(whole_results(), tmp_path_factory.mktemp("report"), ["html"])[0]


def test_a_mark_stands_beside_what_it_is_about():
    results = make_results(seeds=8)
    run = next(c.run for c in results.manifest.cells if c.algorithm == "DPFL-BCS")
    table = page_of(replace(results, marks={run: "unverified"})).split('id="utility"')[1].split("</table>")[0]
    rows = {re.search(r">([\w-]+)", row)[1]: row for row in table.split("<tr>")[2:]}
    assert "(unverified)" in rows["DPFL-BCS"]
    assert [name for name, row in rows.items() if " best" in row] == ["WeiAvg"]


@pytest.mark.parametrize("screen", SCREENS)
def test_navigation_is_one_line_and_its_menus_close(browser, page, screen):
    wide, high, mobile = SCREENS[screen]
    browser.devtools("Emulation.setDeviceMetricsOverride", width=wide, height=high, deviceScaleFactor=1, mobile=mobile)
    browser.open(page)
    tops = browser.run(
        "return [...document.querySelectorAll('nav > div > *')].filter(e => e.offsetWidth)"
        ".map(e => Math.round(e.getBoundingClientRect().top + e.getBoundingClientRect().height / 2))"
    )
    assert max(tops) - min(tops) <= 2
    assert browser.run("return document.querySelector('nav').offsetHeight") <= 44
    browser.click("nav details summary")
    assert browser.run("return document.querySelector('nav details').open") is True
    browser.click("nav details a")
    assert browser.run("return document.querySelector('nav details').open") is False
    browser.devtools("Emulation.clearDeviceMetricsOverride")


@pytest.mark.parametrize("budgets", [[1, 6], [1, 2, 4, 8]])
def test_the_main_table_is_whole_on_a_screen_of_1440_pixels(browser, tmp_path, budgets):
    axes = {**AXES, "privacy.epsilon.high": budgets}
    wide = write_report(make_results(ALGORITHMS, seeds=3, axes=axes), tmp_path, ["html"])[0]
    browser.devtools("Emulation.setDeviceMetricsOverride", width=1440, height=900, deviceScaleFactor=1, mobile=False)
    browser.open(wide)
    inner, room = browser.run(
        "const s = document.querySelector('#utility .scroll'); return [s.scrollWidth, s.clientWidth]"
    )
    keep(browser, f"main-{len(budgets)}")
    browser.devtools("Emulation.clearDeviceMetricsOverride")
    assert len(budgets) * 4 == browser.run("return document.querySelectorAll('#utility thead th').length") - 1
    assert inner <= room


def test_a_dead_column_is_grey_and_has_no_winner(browser, tmp_path):
    def utility(algorithm, seed, where):
        return 10.0 if where["privacy.mechanism"] == "laplace" else 80.0 + len(algorithm) + seed

    results = make_results(("WeiAvg", "DPFL-BCS"), 3, {"privacy.mechanism": ["gaussian", "laplace"]}, utility=utility)
    for record in results.records.values():
        record.facts["n_classes"] = 10
    browser.open(write_report(results, tmp_path, ["html"])[0])
    classes = browser.run("return [...document.querySelectorAll('#utility tbody td')].map(c => c.className.trim())")
    assert classes == ["num", "num grey", "num best", "num grey"]
    assert "at chance" in browser.run("return document.querySelector('#utility thead .grey').textContent")


def test_rows_have_headers_for_those_who_hear_the_page(browser, page):
    browser.open(page)
    rows, headed, columns = browser.run(
        "const all = q => document.querySelectorAll(q).length;"
        "return [all('tbody tr'), all('tbody tr > th[scope=row]:first-child'), all('thead th:not([scope=col])')]"
    )
    assert rows == headed > 50
    assert columns == 0


def test_a_chart_can_be_enlarged_and_put_back_by_the_keyboard(browser, page):
    width = "return document.querySelector('#fig-rounds .panels svg').getBoundingClientRect().width"
    browser.open(page)
    before = browser.run(width)
    browser.run("document.querySelector('#fig-rounds [data-enlarge]').focus()")
    press(browser, "\ue007")
    assert browser.run(width) > 1.5 * before
    browser.hover("#fig-rounds .h:last-child")
    covered = "const t = document.getElementById('tip'); return !t.hidden && t.closest('dialog') !== null"
    assert browser.run(covered)  # what lies outside a dialog lies below it
    keep(browser, "large")
    press(browser, "\ue00c")
    assert browser.run("return document.getElementById('large').open") is False
    assert browser.run(width) == before
    assert browser.run("return document.activeElement.textContent") == "enlarge"


def test_values_reached_by_the_keyboard_stay_when_the_page_moves(browser, page):
    browser.open(page)
    browser.hover("h1")
    browser.run("document.querySelector('#fig-rounds .panels svg').focus()")
    press(browser, "\ue014", "\ue014")
    browser.run("scrollBy(0, 40); document.dispatchEvent(new Event('scroll'))")
    assert browser.run("return document.getElementById('tip').textContent").startswith("round 2\n")
    assert browser.run("return document.getElementById('tip').hidden") is False


@pytest.fixture
def kept(tmp_path):
    """A results folder with a blank in its name, and what is in it."""
    store, results = Store(tmp_path / "a folder"), make_results(seeds=1)
    store.write_manifest(results.manifest)
    for record in results.records.values():
        store.write(record)
    return store.root, results


def test_the_page_links_every_file_of_its_report_and_every_record_of_the_folder_it_lies_in(kept, tmp_path):
    root, results = kept
    out = root / "report"
    paths = write_report(results, out, folders=[root])
    tags = Tags(paths[0].read_text()).found
    linked = {unquote(attrs["href"]) for tag, attrs in tags if tag == "a" and not attrs["href"].startswith("#")}
    assert all((out / path).is_file() for path in linked)
    assert {p.relative_to(out).as_posix() for p in paths[1:]} <= linked
    assert {f"../records/{run}.json" for run in results.records} | {"../suite.json"} <= linked
    elsewhere = write_report(results, tmp_path / "elsewhere", ["html", "csv"], folders=[root])[0].read_text()
    assert "../" not in elsewhere  # the page or the folder may move
    assert all(run in elsewhere for run in results.records)


def test_a_record_is_a_click_away(browser, kept):
    root, results = kept
    browser.open(write_report(results, root / "report", ["html"], folders=[root])[0])
    browser.click("#records tbody a")
    assert "/a%20folder/records/" in browser.call("/url", method="GET")


def test_of_merged_folders_the_page_links_those_records_that_it_shows_and_has(tmp_path):
    one, two = make_results(("WeiAvg", "DPSGD"), seeds=1), make_results(("WeiAvg", "DPSGD"), seeds=1)
    first, second = one.records
    failed = {**one.records, second: replace(one.records[second], status="failed", reason="no memory")}
    found = [Folder(str(tmp_path / n), r) for n, r in (("a", replace(one, records=failed)), ("b", two))]
    out, paths = tmp_path / "a" / "report", [tmp_path / "a", tmp_path / "b"]
    page = write_report(merge(found), out, ["html"], folders=paths)[0].read_text()
    assert f'"../records/{first}.json"' in page
    assert f"records/{second}.json" not in page  # the failed one, and not the one that is shown
    assert "../b" not in page


def test_the_page_says_when_where_from_what_and_how(tmp_path):
    results = make_results(seeds=1)
    for record in results.records.values():
        record.measured.update(started=1.7e9, commit="0123456789ab", processor="Some Processor 9000", threads=2)
    head = page_of(results).split("<main>")[0]
    found = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", head))
    assert found == {
        "date": "2023-11-14",
        "commit": "0123456789ab",
        "processor": "Some Processor 9000",
        "command": "dpflbench run suite.yaml --threads 2 --device cpu",
    }


def test_where_runs_were_made_by_different_options_no_command_repeats_them_all():
    results = make_results(("FedSGD", "DPSGD"), seeds=1)
    one, two = (record.measured for record in results.records.values())

    def command() -> str:
        return re.findall(r"<dt>command</dt><dd>(.*?)</dd>", page_of(results))[0]

    one["kernels"] = two["kernels"] = "native 0123456789ab"
    assert command() == "dpflbench run suite.yaml --device cpu --kernels native"
    del one["kernels"]  # of an earlier version
    assert command() == "none repeats them all: kernels native and torch"
    one.update(threads=1, kernels="native 0123456789ab")
    two.update(threads=2)
    assert command() == "none repeats them all: threads 1 and 2"
    one.update(threads=2, device="cuda:0")
    two.update(device="cuda:1")  # dealt out over all there are
    assert command() == "dpflbench run suite.yaml --threads 2 --device cuda --kernels native"


def test_the_command_asks_for_the_runs_that_explain_others_if_there_are_some():
    results = make_results(("FedSGD", "DPSGD"), seeds=1)
    run = next(k for k, r in results.records.items() if r.private)
    more = replace(results, counterfactuals={run: {"noise": replace(results.records[run], private=False)}})
    assert "--why" not in page_of(results).split("<main>")[0]
    assert "<dd>dpflbench run suite.yaml --device cpu --why</dd>" in page_of(more)


def test_the_suite_of_a_page_can_be_run(tmp_path, catalogue):
    overrides = ["axes={privacy.mechanism: [gaussian, laplace], privacy.epsilon.high: [1, 6]}", "seeds=2"]
    manifest = plan_suite(load(SUITES / "smoke.yaml", overrides), catalogue, None).manifest
    kept = Store(tmp_path)
    kept.write_manifest(manifest)
    out = write_report(kept.results(), tmp_path / "report", ["html"])[1]
    again = plan_suite(load(out), catalogue, None).manifest
    assert out.name == "suite.yaml"
    assert list(again.cells) == list(manifest.cells)
