"""The HTML page: self-contained, inert text, and in a real browser it sorts, filters, shows values and stays silent."""

import json
import os
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from record_factory import make_record, make_results
from webdriver import Browser

from dpflbench.report.page import html_report
from dpflbench.report.view import view
from dpflbench.report.write import Contents, write_report
from dpflbench.results.cells import Cell, Manifest, Problem, Results
from dpflbench.results.record import MSE

HOSTILE = (
    "</title></script><script>window.hacked=1</script><img src=x onerror=window.hacked=2>\"' "
    "onmouseover=window.hacked=3 "
    "${7*7}{{7*7}}"
)
AXES = {
    "privacy.mechanism": ["gaussian", "laplace"],
    "privacy.epsilon.high": [1, 6],
    "task.partition.alpha": [0.5, 3.0],
}
ALGORITHMS = ("FedSGD", "DPSGD", "DMLDP", "WeiAvg", "DPFL-BCS")


def whole_results() -> Results:
    notes = [{"stage": 2, "heterogeneity": np.linspace(0, 1, 12), "gamma": 200.0}]
    return make_results(
        ALGORITHMS, seeds=3, axes=AXES, notes=notes, report={"sections": ["ma2024"], "baseline": ["DPSGD", "DMLDP"]}
    )


def hostile_results() -> Results:
    """Every text a stranger controls is an attack: algorithm, suite, axis value, reason, note, version."""
    results = make_results(("DPSGD", HOSTILE), seeds=2, axes={"privacy.mechanism": ["gaussian", HOSTILE]})
    first = results.manifest.cells[0].run
    broken = make_record(first, HOSTILE, 0, {"x": HOSTILE}, 1.0, status="failed", reason=HOSTILE)
    records = {**results.records, first: broken}
    for record in results.records.values():
        record.measured["versions"] = {HOSTILE: HOSTILE}
        record.measured["device"] = HOSTILE
    cells = [*results.manifest.cells, Cell({"privacy.mechanism": HOSTILE}, "WeiAvg", 0, None, HOSTILE)]
    return Results(
        Manifest(HOSTILE, {**results.manifest.suite, "description": HOSTILE, HOSTILE: HOSTILE}, cells),
        records,
        (Problem("x", HOSTILE),),
    )


def page_of(results: Results) -> str:
    contents = Contents(view(results))
    return html_report(contents.view, contents.tables, contents.charts, contents.looks)


class Tags(HTMLParser):
    """All start tags with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_the_page_needs_nothing_from_outside():
    page = page_of(whole_results())
    tags = Tags(page).found
    addresses = [
        v
        for _, attrs in tags
        for k, v in attrs.items()
        if k in ("src", "href", "xlink:href", "action", "data", "srcset")
    ]
    assert [a for a in addresses if not a.startswith("#") and a != "data:,"] == []
    assert re.findall(r"https?://|url\(|@import", page) == []


def test_every_link_inside_the_page_leads_somewhere_and_ids_are_unique():
    tags = Tags(page_of(whole_results())).found
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs["href"][1:] for tag, attrs in tags if tag == "a"} <= set(ids)


def test_hostile_text_makes_no_tag_and_no_attribute():
    tags = Tags(page_of(hostile_results())).found
    assert sum(tag == "script" for tag, _ in tags) == 1
    assert [tag for tag, _ in tags if tag in ("img", "iframe", "object", "embed", "form", "base")] == []
    assert [k for _, attrs in tags for k in attrs if k.startswith("on")] == []


def test_the_page_has_suite_environment_and_every_record_id():
    results = whole_results()
    page = page_of(results)
    assert all(run in page for run in results.records)
    assert "partition:" in page
    assert "version of torch" in page
    assert "2.13.0" in page


def test_a_line_for_each_mechanism_and_its_footing_stand_at_the_top():
    page = page_of(whole_results())
    head = page.split("<main>")[0]
    assert re.findall(r'<b class="mechanism">(\w+)</b> (DPFL-BCS leads on average over 4 columns)', head) == [
        ("gaussian", "DPFL-BCS leads on average over 4 columns"),
        ("laplace", "DPFL-BCS leads on average over 4 columns"),
    ]
    assert page.index("one comparison needs 6 seeds") < page.index("<main>")


def test_every_chart_of_the_page_has_values_to_hover():
    contents, page = Contents(view(whole_results())), page_of(whole_results())
    for chart in contents.charts:
        figure = page.split(f'<figure id="fig-{chart.key}">')[1].split("</figure>")[0]
        assert figure.count("<title>") > 0, chart.key
    assert len(contents.charts) == 10


def test_a_first_column_without_a_result_is_no_end_of_the_page(tmp_path):
    results = make_results(("DPSGD",), seeds=1, axes={"federation.lr.initial": [1.0e38, 2.0]})
    first = results.manifest.cells[0].run
    lost = make_record(first, "DPSGD", 0, results.records[first].config, 1.0, status="diverged", reason="loss is inf")
    paths = write_report(Results(results.manifest, {**results.records, first: lost}), tmp_path)
    assert "learning rate 10³⁸" in paths[0].read_text()
    assert tmp_path / "figures" / "rounds.svg" in paths


# ---------------------------------------------------------------- in a real browser


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return write_report(whole_results(), tmp_path_factory.mktemp("report"), ["html"])[0]


def column(browser: Browser, table: str, index: int) -> list[str]:
    return browser.run(
        f"return [...document.querySelectorAll('#{table} tbody tr')].filter(r => !r.hidden)"
        f".map(r => r.cells[{index}].textContent.trim())"
    )


def test_the_browser_reports_no_error_and_asks_for_nothing_but_the_page(browser, page):
    browser.open(page)
    browser.hover("#fig-rounds .h")
    assert [entry["message"] for entry in browser.logs("browser")] == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.logs("performance")]
    asked = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    assert asked - {"about:blank", "data:,"} == {page.as_uri()}


def test_a_click_on_a_heading_sorts_best_first_and_a_second_one_turns_it_round(browser, page, tmp_path):
    browser.open(page)
    browser.click("#utility th:nth-child(2) button")
    falling = column(browser, "utility", 1)
    assert [t.split(" ")[0] for t in falling] == ["92.10", "86.10", "84.10", "74.10", "impossible"]
    assert (
        browser.run("return document.querySelector('#utility th:nth-child(2)').getAttribute('aria-sort')")
        == "descending"
    )
    browser.click("#utility th:nth-child(2) button")
    rising = column(browser, "utility", 1)
    assert [t.split(" ")[0] for t in rising] == ["74.10", "84.10", "86.10", "92.10", "impossible"]
    browser.click("#utility th:nth-child(1) button")
    assert column(browser, "utility", 0)[0] == "DMLDP"
    errors = write_report(make_results(seeds=2, metric=MSE), tmp_path, ["html"])[0]
    browser.open(errors)
    browser.click("#utility th:nth-child(2) button")
    assert column(browser, "utility", 0)[0] == "DPSGD"  # the smallest error


def test_words_in_the_filter_leave_the_rows_that_have_them_all(browser, page):
    browser.open(page)
    everything = len(column(browser, "records", 3))
    browser.type("input[data-for='records']", "bcs laplace")
    assert set(column(browser, "records", 3)) == {"DPFL-BCS"}
    assert len(column(browser, "records", 3)) == 4 * 3
    assert (
        browser.run("return document.querySelector(\"output[data-count='records']\").textContent")
        == f"12 of {everything}"
    )
    browser.type("input[data-for='records']", " ")
    assert len(column(browser, "records", 3)) == everything


def test_hovering_a_figure_shows_the_values_under_it(browser, page):
    browser.open(page)
    browser.hover("#fig-rounds .h:last-child")
    shown = browser.run(
        "return document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent"
    )
    assert shown.startswith("round 20\nFedSGD: 92.10\nDPSGD: 74.10")
    # the scroll that brought the figure into sight may be reported after the pointer has come to rest
    browser.run("document.dispatchEvent(new Event('scroll'))")
    assert browser.run("return document.getElementById('tip').hidden") is False
    browser.hover("#fig-who-pays .m")
    assert "loosest third" in browser.run("return document.getElementById('tip').textContent")
    browser.hover("h1")
    assert browser.run("return document.getElementById('tip').hidden") is True


def press(browser: Browser, *keys: str) -> None:
    steps = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
    browser.call("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": steps}]})


def test_the_keyboard_reaches_the_values_too(browser, page):
    left, right, escape = "\ue012", "\ue014", "\ue00c"
    shown = "const tip = document.getElementById('tip'); return tip.hidden ? '' : tip.textContent"
    browser.open(page)
    browser.run("document.querySelector('#fig-rounds .panels svg').focus()")
    press(browser, right, right)
    assert browser.run(shown).startswith("round 2\nFedSGD")
    press(browser, left, left)
    assert browser.run(shown).startswith("round 20\nFedSGD: 92.10")
    press(browser, escape)
    assert browser.run(shown) == ""


def test_a_name_in_a_legend_takes_its_algorithm_out_of_the_figure_and_back(browser, page):
    drawn = (
        "return [...document.querySelectorAll('#fig-rounds .panels .s')]"
        ".filter(g => g.dataset.name === 'WeiAvg' && getComputedStyle(g).display !== 'none').length"
    )
    browser.open(page)
    assert browser.run(drawn) == 8
    browser.click("#fig-rounds [data-toggle='WeiAvg']")
    assert browser.run(drawn) == 0
    browser.click("#fig-rounds [data-toggle='WeiAvg']")
    assert browser.run(drawn) == 8


def test_every_filter_finds_something_by_its_own_example(browser, page):
    browser.open(page)
    keys = browser.run("return [...document.querySelectorAll('input[data-for]')].map(i => i.dataset.for)")
    assert {"differences", "records"} <= set(keys)
    for key in keys:
        words = browser.run(f"return document.querySelector(\"input[data-for='{key}']\").placeholder")
        browser.type(f"input[data-for='{key}']", words.removeprefix("words, e.g. "))
        assert column(browser, key, 0), (key, words)


def test_light_and_dark_can_be_chosen(browser, page):
    browser.open(page)
    colour = "return getComputedStyle(document.body).backgroundColor"
    browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
    browser.run("try { localStorage.clear() } catch {} delete document.documentElement.dataset.theme")
    light = browser.run(colour)
    browser.click("#theme")
    dark = browser.run(colour)
    assert (light, dark) == ("rgb(250, 250, 248)", "rgb(20, 23, 27)")
    browser.click("#theme")
    assert browser.run(colour) == light
    browser.run("delete document.documentElement.dataset.theme")
    browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert browser.run(colour) == dark
    browser.devtools("Emulation.setEmulatedMedia", features=[])


def test_on_a_phone_nothing_sticks_out_sideways(browser, page):
    browser.devtools("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=2, mobile=True)
    browser.open(page)
    wide, shown = browser.run("return [document.scrollingElement.scrollWidth, innerWidth]")
    small = browser.run("return parseFloat(getComputedStyle(document.querySelector('#utility td')).fontSize)")
    firsts = browser.run(
        "return [...document.querySelectorAll('tbody th:first-child')].map(cell => cell.getBoundingClientRect().width)"
    )
    keep(browser, "phone")
    browser.devtools("Emulation.clearDeviceMetricsOverride")
    assert wide <= shown == 390
    assert min(firsts) >= 60
    assert small >= 12


def test_the_page_looks_right_to_whoever_keeps_its_pictures(browser, page):
    browser.devtools("Emulation.setDeviceMetricsOverride", width=1280, height=9000, deviceScaleFactor=1, mobile=False)
    browser.open(page)
    wide = browser.run(
        "return [...document.querySelectorAll('.card, .panels svg')].every(e => e.getBoundingClientRect().width > 100)"
    )
    keep(browser, "light")
    browser.click("#theme")
    keep(browser, "dark")
    browser.click("#theme")
    browser.devtools("Emulation.clearDeviceMetricsOverride")
    assert wide


def test_an_anchor_opens_the_page_at_its_table(browser, page):
    browser.open(page, "#who-pays")
    top = "return Math.abs(document.getElementById('who-pays').getBoundingClientRect().top)"
    for _ in range(30):  # the browser jumps when its layout is done
        if browser.run(top) < 100:
            break
        time.sleep(0.1)
    assert browser.run(top) < 100
    assert browser.run("return document.querySelector(':target').id") == "who-pays"


def test_the_page_prints_whole(browser, page):
    browser.open(page)
    assert browser.call("/print", {"background": True})[:6] == "JVBERi"  # base64 of %PDF-
    styles = (
        "return [getComputedStyle(document.querySelector('#records .scroll')).display, "
        "getComputedStyle(document.querySelector('nav')).display]"
    )
    on_screen = browser.run(styles)
    browser.devtools("Emulation.setEmulatedMedia", media="print")
    on_paper = browser.run(styles)
    below = browser.run(
        "const s = getComputedStyle(document.querySelector('#differences .scroll')); return [s.maxHeight, s.display]"
    )
    browser.devtools("Emulation.setEmulatedMedia", media="")
    assert on_screen == ["block", "block"]
    assert on_paper == ["none", "none"]  # thousands of record rows are for the screen
    assert below == ["none", "block"]
    browser.devtools("Emulation.setEmulatedMedia", media="print")
    kept = browser.run(
        "const g = (at, what) => getComputedStyle(document.querySelector(at))[what];"
        "return [g('figure', 'breakInside'), g('h2', 'breakAfter'), g('figcaption', 'breakAfter')]"
    )
    browser.devtools("Emulation.setEmulatedMedia", media="")
    assert kept == ["avoid", "avoid", "auto"]  # no heading alone; figures that hang together would be torn anywhere


def test_a_hostile_name_is_shown_and_does_not_run(browser, tmp_path):
    hostile = write_report(hostile_results(), tmp_path, ["html"])[0]
    browser.open(hostile)
    for target in ("#utility tbody td", "#fig-rounds .h", "#fig-who-pays .m", "#gaps tbody td:last-child"):
        browser.hover(target)
    assert browser.run("return window.hacked === undefined")
    assert browser.run("return document.querySelector('h1').textContent").startswith(HOSTILE[:90])
    assert "window.hacked=1" in browser.run("return document.querySelector('#utility').textContent")
    assert browser.run("return document.scripts.length") == 1
    assert [entry["message"] for entry in browser.logs("browser")] == []
    keep(browser, "hostile")


def test_the_policy_of_the_page_stops_a_script_that_got_in_anyhow(browser, page):
    browser.open(page)
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s);"
        "const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i)"
    )
    assert browser.run("return window.hacked === undefined")
    assert any("Content Security Policy" in entry["message"] for entry in browser.logs("browser"))


def keep(browser: Browser, name: str) -> None:
    """Keep a screenshot where somebody wants to look at it."""
    folder = os.environ.get("DPFLBENCH_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{name}.png").write_bytes(browser.screenshot())
