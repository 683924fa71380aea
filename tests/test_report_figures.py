"""Figures: what the charts hold, how algorithms look, and that one drawing serves the page and every file."""

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from record_factory import make_record, make_results

import dpflbench.report
from dpflbench.errors import DpflbenchError
from dpflbench.report.charts.chart import Chart, Grid, Lanes, Plane, Ranks
from dpflbench.report.charts.clients import participation_chart, selection_chart, who_pays_charts
from dpflbench.report.charts.curves import rounds_chart, sweep_charts, time_chart
from dpflbench.report.charts.draw import axes, draw
from dpflbench.report.charts.files import DPI, WIDTHS, Format, check_font, figure, figure_path, write_figure
from dpflbench.report.charts.looks import MARKERS, NOT_PRIVATE, PALETTE, looks, nth
from dpflbench.report.charts.svg import log_ticks, text_width, tick_text, ticks, words, wrapped
from dpflbench.report.charts.winners import cliques, rank_chart, rank_table, settings_needed, winner_chart
from dpflbench.report.page import chart_html
from dpflbench.report.view import view
from dpflbench.report.write import Contents, write_report
from dpflbench.results.cells import Results
from dpflbench.results.record import MSE

AXES = {
    "privacy.mechanism": ["gaussian", "laplace"],
    "privacy.epsilon.high": [1, 6],
    "task.partition.alpha": [0.5, 3.0],
}
BASELINES = {"baseline": ["DPSGD", "DMLDP"]}
ALGORITHMS = ("FedSGD", "DPSGD", "DMLDP", "WeiAvg", "DPFL-BCS")


def climbing(algorithm, seed, where):
    return (
        {"FedSGD": 92, "DPSGD": 74, "WeiAvg": 84, "DPFL-BCS": 86}.get(algorithm, 60)
        + where.get("privacy.epsilon.high", 0)
        + seed
    )


def test_utility_by_round_has_mean_and_one_standard_deviation():
    chart = rounds_chart(view(make_results(("DPSGD", "WeiAvg"), seeds=3)))
    (panel,) = chart.panels
    assert [s.name for s in panel.series] == ["DPSGD", "WeiAvg"]
    last = panel.series[0]
    assert last.x[-1] == 20
    assert last.y[-1] == pytest.approx(74.1)
    assert last.high[-1] - last.y[-1] == pytest.approx(0.1)


def test_runs_that_did_not_end_well_are_not_drawn():
    results = make_results(("DPSGD", "WeiAvg"), seeds=1)
    run = next(c.run for c in results.manifest.cells if c.algorithm == "WeiAvg")
    records = {**results.records, run: make_record(run, "WeiAvg", 0, {}, 1.0, status="diverged", reason="inf")}
    chart = rounds_chart(view(Results(results.manifest, records)))
    assert [s.name for s in chart.panels[0].series] == ["DPSGD"]


def test_utility_against_an_axis_of_many_numbers_is_a_curve():
    budgets = {"privacy.mechanism": ["gaussian", "laplace"], "privacy.epsilon.high": [8, 0.5, 2]}
    (chart,) = sweep_charts(view(make_results(ALGORITHMS, seeds=2, axes=budgets, utility=climbing)))
    assert [p.title for p in chart.panels] == ["gaussian", "laplace"]
    panel = chart.panels[0]
    weiavg = next(s for s in panel.series if s.name == "WeiAvg")
    assert (weiavg.x.tolist(), weiavg.y.tolist()) == ([0.5, 2.0, 8.0], [85.0, 86.5, 92.5])
    assert panel.x_log
    assert panel.x_ticks == (0.5, 2.0, 8.0)  # the values themselves
    assert not sweep_charts(view(make_results(seeds=1, axes={"federation.rounds": [10, 20, 30]})))[0].panels[0].x_log


def test_two_values_are_a_pair_and_no_curve():
    charts = sweep_charts(view(make_results(ALGORITHMS, seeds=2, axes=AXES, utility=climbing)))
    assert [c.key for c in charts] == ["by-privacy.epsilon.high", "by-task.partition.alpha"]
    panel = charts[0].panels[0]
    assert isinstance(panel, Lanes)
    assert panel.title == "gaussian, alpha 0.5"
    assert panel.names == ALGORITHMS  # DMLDP has an empty lane: all panels have the same
    weiavg = [m for m in panel.marks if m.lane == 3]
    assert [(m.marker, m.x) for m in weiavg] == [("ring", 85.5), ("circle", 90.5)]
    assert weiavg[0].high - weiavg[0].x == pytest.approx(math.sqrt(0.5))  # one standard deviation of 0 and 1
    assert charts[0].signs == (("ring", "ε max 1"), ("circle", "ε max 6"))


def test_an_axis_of_words_is_no_sweep():
    assert sweep_charts(view(make_results(axes={"privacy.mechanism": ["gaussian", "laplace"]}))) == []


def test_the_winner_map_names_the_best_and_its_lead():
    chart = winner_chart(view(make_results(ALGORITHMS, seeds=2, axes=AXES)))
    assert [p.title for p in chart.panels] == ["gaussian: accuracy (%) ↑", "laplace: accuracy (%) ↑"]
    panel = chart.panels[0]
    assert isinstance(panel, Grid)
    assert (panel.columns, panel.rows) == (("1", "6"), ("0.5", "3"))
    assert len(panel.squares) == 4
    assert panel.squares[0].text == ("DPFL-BCS", "86.05", "lead 2.00 (n.s.)")


def test_a_narrow_lead_has_the_decimals_of_a_wide_one():
    results = make_results(("DPSGD", "WeiAvg"), 2, AXES, utility=lambda a, s, w: 80 + 0.0438 * (a == "DPSGD") + s)
    assert winner_chart(view(results)).panels[0].squares[0].text == ("DPSGD", "80.54", "lead 0.04 (n.s.)")


def test_the_winner_map_of_errors_names_the_lowest():
    chart = winner_chart(view(make_results(ALGORITHMS, seeds=2, axes=AXES, metric=MSE)))
    assert {s.name for s in chart.panels[0].squares} == {"DPSGD"}


def test_without_two_kinds_of_skew_there_is_no_winner_map():
    assert winner_chart(view(make_results(axes={"privacy.epsilon.high": [1, 6]}))) is None


def test_mean_ranks_with_the_baselines_as_one():
    panel = rank_chart(view(make_results(ALGORITHMS, seeds=2, axes=AXES, report=BASELINES))).panels[0]
    assert isinstance(panel, Ranks)
    assert panel.names == ("DPFL-BCS", "WeiAvg", "DPSGD/DMLDP")
    assert panel.ranks == (1.0, 2.0, 3.0)
    # 3 competitors over 8 settings: 3.314 / sqrt(2) * sqrt(3 * 4 / 48) = 1.172
    assert panel.difference == pytest.approx(1.172, abs=0.001)
    assert panel.cliques == ((0, 1), (1, 2))


def test_cliques_are_the_largest_groups_within_the_critical_difference():
    assert cliques([1.0, 2.0, 2.5, 4.0], 1.6) == ((0, 2), (2, 3))
    assert cliques([1.0, 2.0, 3.0], 5.0) == ((0, 2),)
    assert cliques([1.0, 3.0, 5.0], 1.0) == ()


def test_critical_differences_are_not_drawn_where_they_cannot_show_anything():
    # 7 competitors over 2 settings: 4.170 / sqrt(2) * sqrt(7 * 8 / 12) = 6.37, more than 7 - 1; over 3 it is 5.20
    assert (settings_needed(3), settings_needed(7)) == (3, 3)
    two, three = (
        view(make_results((*ALGORITHMS[3:], "PFA"), seeds=2, axes={"privacy.epsilon.high": values}))
        for values in ([1, 6], [1, 3, 6])
    )
    assert rank_chart(two) is None
    assert "over 2 settings the mean ranks of 3 algorithms would have to differ by 2.34" in rank_table(two).notes[0]
    assert rank_chart(three) is not None
    assert rank_table(three) is None


def test_the_diagram_of_ranks_stays_within_its_axis():
    chart = rank_chart(view(make_results(ALGORITHMS, seeds=2, axes=AXES, report=BASELINES)))
    (drawn,) = draw(chart, {}, 350)
    bars = [tuple(map(float, m)) for m in re.findall(r'class="d" d="M([\d.]+),[\d.]+H([\d.]+)"', drawn.body)]
    (start, end) = map(float, re.search(r'class="f" d="M([\d.]+),40H([\d.]+)"', drawn.body).groups())
    assert len(bars) == 2
    assert all(start - 3 <= a < b <= end + 3 for a, b in bars)


def test_who_pays_shows_what_the_loosest_third_has_more_than_the_strictest():
    results = make_results(ALGORITHMS, seeds=2)
    v = view(results)
    panel = who_pays_charts(v)[0].panels[0]
    assert panel.names == ("FedSGD", "DPSGD", "WeiAvg", "DPFL-BCS")
    assert panel.zero
    assert panel.x_label == "Δ accuracy (%)"
    gaps = []
    for record in (r for r in results.records.values() if r.algorithm == "DPFL-BCS"):
        order = np.argsort(record.clients["epsilon"])
        served = record.clients["utility_shared"][order]
        gaps.append(served[8:].mean() - served[:4].mean())  # 12 clients, all with as many examples
    (mark,) = (m for m in panel.marks if m.lane == 3)
    assert mark.x == pytest.approx(np.mean(gaps))
    # two seeds: Student's t has 12.706 at one degree of freedom
    assert mark.high - mark.x == pytest.approx(12.706 * np.std(gaps, ddof=1) / math.sqrt(2), rel=1e-3)
    assert [m.x for m in panel.marks if m.lane == 1] == [0.0]  # DPSGD serves all alike


def test_who_takes_part_shows_those_that_do_not_share_evenly():
    share = who_pays_charts(view(make_results(ALGORITHMS, seeds=2)))[1]
    panel = share.panels[0]
    assert panel.names == ("DPFL-BCS",)
    assert [m.marker for m in panel.marks] == ["down", "diamond", "up"]
    strict, _, loose = (m.x for m in panel.marks)
    assert strict < 33.3 < loose
    assert share.caption.endswith("FedSGD, DPSGD and WeiAvg share evenly.")


def test_participations_are_one_panel_for_algorithms_that_choose_alike():
    chart = participation_chart(view(make_results(("DPSGD", "WeiAvg", "DPFL-BCS"), seeds=1)))
    assert [p.title for p in chart.panels] == ["DPSGD and WeiAvg", "DPFL-BCS"]
    assert set(chart.panels[0].series[0].y) == {5.0}


def test_selection_shows_the_last_estimate_against_the_uses():
    notes = [{"stage": 1, "uses": np.ones(12)}, {"stage": 2, "heterogeneity": np.arange(12.0)}]
    results = make_results(("DPFL-BCS",), seeds=1, notes=notes)
    (panel,) = selection_chart(view(results)).panels
    assert (panel.x_label, panel.y_label) == ("estimated Γ (largest = 1)", "participations")
    assert [s.marker for s in panel.series] == ["down", "diamond", "up"]  # thirds by budget
    (record,) = results.records.values()
    found = {(float(x), float(y)) for s in panel.series for x, y in zip(s.x, s.y, strict=True)}
    assert found == {(n / 11, float(uses)) for n, uses in enumerate(record.clients["uses"])}
    assert selection_chart(view(make_results(("DPSGD",), seeds=1))).panels == ()


def test_selection_shows_the_column_in_which_something_was_estimated_and_says_where_nothing_was():
    results = make_results(("DPFL-BCS",), seeds=1, axes={"privacy.epsilon.high": [1, 3, 6]})
    for record in results.records.values():
        high = record.config["privacy"]["epsilon"]["high"]
        record.notes.append({"heterogeneity": np.arange(12.0) * (high == 3)})
    (panel,) = selection_chart(view(results)).panels
    assert panel.title == "DPFL-BCS: ε max 3"
    for record in results.records.values():
        record.notes[0]["heterogeneity"][:] = 0
    chart = selection_chart(view(results))
    assert chart.panels == ()
    assert chart.caption.endswith("so that budgets alone decide: DPFL-BCS: ε max 1.")


def test_time_is_the_median_of_warm_rounds_in_every_setting():
    results = make_results(("DPSGD",), seeds=3, axes={"privacy.epsilon.high": [1, 6]})
    for record in results.records.values():
        record.measured["round_seconds"] = (0.1, 0.2, 9.0)[record.config["seed"]]
    panels = time_chart(view(results)).panels
    assert [p.title for p in panels] == ["ε max 1", "ε max 6"]
    assert [p.series[0].x.tolist() for p in panels] == [[4.0], [4.0]]  # 20 rounds of 0.2 s


def test_errors_of_different_orders_get_a_logarithmic_axis():
    def utility(algorithm, seed, where):
        return {"DPSGD": 2.0e5, "WeiAvg": 20.0, "PFA": 19.0, "DPFL-BCS": 18.0}[algorithm]

    chart = rounds_chart(
        view(make_results(("DPSGD", "WeiAvg", "PFA", "DPFL-BCS"), seeds=1, utility=utility, metric=MSE))
    )
    assert chart.panels[0].y_log
    assert chart.panels[0].y_label == "mse ↓"
    (drawn,) = draw(chart, {}, 320)
    assert '>10<tspan dy="-4" font-size="7">5</tspan></text>' in drawn.body  # no raw TeX, no 1e+05
    assert not rounds_chart(view(make_results(seeds=1))).panels[0].y_log


# ---------------------------------------------------------------- looks


def test_looks_follow_the_suite_and_what_is_not_private_has_its_own():
    found = looks(view(make_results(("WeiAvg", "FedSGD", "Mine"), seeds=1)))
    assert list(found.items()) == [("WeiAvg", PALETTE[0]), ("FedSGD", NOT_PRIVATE), ("Mine", PALETTE[1])]
    assert looks(view(make_results(("WeiAvg", "FedSGD", "Mine", "New"), seeds=1)))["Mine"] == PALETTE[1]


def test_no_two_algorithms_of_a_report_look_alike():
    every = [NOT_PRIVATE, *(nth(i) for i in range(40))]
    assert len(set(every)) == len(every)


def test_colours_differ_in_grey_or_the_line_and_marker_do():
    def grey(colour: str) -> float:
        r, g, b = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return 0.299 * r + 0.587 * g + 0.114 * b

    every = [NOT_PRIVATE, *PALETTE]
    for i, a in enumerate(every):
        for b in every[:i]:
            assert abs(grey(a.light) - grey(b.light)) > 20 or a.dash != b.dash or a.marker != b.marker


def test_all_colours_have_a_contrast_of_three_to_one():
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    page = (Path(dpflbench.report.__file__).parent / "page.css").read_text()
    dark = max(
        re.findall(r"#[0-9a-f]{6}", re.search(r"dark.*?--bg: \S+ --card: \S+", page, re.DOTALL)[0]), key=luminance
    )
    assert dark == "#1c2026"
    for look in (NOT_PRIVATE, *PALETTE):
        assert 1.05 / (luminance(look.light) + 0.05) > 3, look
        assert (luminance(look.dark) + 0.05) / (luminance(dark) + 0.05) > 3, look
        assert look.marker in MARKERS
    style = (Path(dpflbench.report.__file__).parent / "charts" / "chart.css").read_text()
    for kind in ("l", "w", "m", "e"):  # lines, intervals, signs and the edges of bars are as dark as their colour
        assert "opacity" not in re.search(rf"^\.{kind} {{.*$", style, re.MULTILINE)[0]
    assert "stroke: currentColor" in re.search(r"^\.e {.*$", style, re.MULTILINE)[0]


# ---------------------------------------------------------------- drawing


def test_ticks_are_round_and_inside():
    assert ticks(0.0, 10.0) == [0, 2, 4, 6, 8, 10]
    assert ticks(61.3, 86.9) == [65, 70, 75, 80, 85]
    assert ticks(3.0, 3.0) == [3.0]
    assert ticks(math.nan, 1.0) == []


def test_ticks_of_a_logarithmic_axis_are_round_and_readable():
    assert log_ticks(0.5, 2e4) == [1, 10, 100, 1000, 10000]
    assert log_ticks(15, 900) == [20, 50, 100, 200, 500]
    assert log_ticks(21, 24) == [21, 21.5, 22, 22.5, 23, 23.5, 24]
    assert len(log_ticks(1e-12, 1e12)) <= 6
    assert [tick_text(v) for v in (0.0, 20.0, -2.5, 1e5, 2e38, 1e-4)] == ["0", "20", "−2.5", "10⁵", "2·10³⁸", "10⁻⁴"]


def test_a_long_title_is_wrapped_and_keeps_numbers_with_their_names():
    lines = wrapped("DPSGD, WeiAvg, PFA and PRIVATEFL: gaussian, ε max 1, alpha 0.5", 240)
    assert " ".join(lines).replace("\u00a0", " ") == "DPSGD, WeiAvg, PFA and PRIVATEFL: gaussian, ε max 1, alpha 0.5"
    assert [line.replace("\u00a0", " ") for line in lines] == [
        "DPSGD, WeiAvg, PFA and PRIVATEFL:",
        "gaussian, ε max 1, alpha 0.5",
    ]


def test_no_line_of_a_title_is_wider_than_its_panel():
    # in Arial "PRIVATEFL-BCS" is 667+722+278+667+667+611+667+611+556+333+667+722+667 = 7835 thousandths wide
    assert text_width("PRIVATEFL-BCS") == pytest.approx(78.35)
    title = "PRIVATEFL-BCS WITH MANY CAPITALS IN ITS NAME: gaussian, ε max 1, alpha 0.5"
    for wide in (60, 120, 200, 320):
        assert max(text_width(line, 11.0) for line in wrapped(title, wide)) <= wide


def test_powers_are_raised_digits_of_the_font_itself():
    assert words(1, 2, "10⁻⁵ s").endswith('>10<tspan dy="-4" font-size="7">−5</tspan><tspan dy="4"> s</tspan></text>')


def test_axes_of_one_name_have_one_range_in_a_figure():
    contents = Contents(view(make_results(ALGORITHMS, seeds=2, axes=AXES, utility=climbing)))
    for chart in contents.charts:
        for side, label in ((0, "x_label"), (1, "y_label")):
            found = {}
            for panel, both in zip(chart.panels, axes(chart), strict=True):
                found.setdefault(getattr(panel, label, ""), set()).add(both[side])
            assert all(len(ranges) == 1 for ranges in found.values()), chart.key


def test_a_logarithmic_panel_makes_its_neighbours_logarithmic():
    def utility(algorithm, seed, where):
        return 2.0e5 if algorithm == "DPSGD" and where["privacy.epsilon.high"] == 1 else 20.0

    chart = rounds_chart(view(make_results(axes={"privacy.epsilon.high": [1, 6]}, utility=utility, metric=MSE)))
    assert [p.y_log for p in chart.panels] == [True, False]
    assert [y.log for _, y in axes(chart)] == [True, True]


def test_what_is_drawn_stays_inside_its_panel():
    notes = [{"heterogeneity": np.arange(12.0)}]
    contents = Contents(view(make_results(ALGORITHMS, seeds=2, notes=notes, axes=AXES)))
    for chart in contents.charts:
        for drawn in draw(chart, contents.looks, 320):
            for x, y in re.findall(r'(?:<text x=|translate\()"?([-\d.]+)[" ](?: y=")?([-\d.]+)', drawn.body):
                assert 0 <= float(x) <= drawn.wide, (chart.key, x)
                assert 0 <= float(y) <= drawn.high, (chart.key, y)


# ---------------------------------------------------------------- the whole


def test_results_with_everything_have_every_chart():
    notes = [{"heterogeneity": np.arange(12.0)}]
    charts = Contents(view(make_results(ALGORITHMS, seeds=2, notes=notes, axes=AXES, report=BASELINES))).charts
    assert [c.key for c in charts] == [
        "rounds",
        "by-privacy.epsilon.high",
        "by-task.partition.alpha",
        "winners",
        "ranks",
        "who-pays",
        "who-takes-part",
        "participations",
        "selection",
        "time",
    ]


def test_a_first_column_without_a_result_is_no_obstacle(tmp_path):
    results = make_results(("DPSGD",), seeds=1, axes={"federation.lr.initial": [1e38, 2.0]})
    first = results.manifest.cells[0].run
    ended = make_record(first, "DPSGD", 0, {}, math.nan, status="diverged", reason="loss is inf")
    results = Results(results.manifest, {**results.records, first: ended})
    assert (tmp_path / "figures" / "participations.png") in write_report(results, tmp_path)


def test_each_kind_of_panel_is_drawn_on_the_page_and_in_every_kind_of_file(tmp_path):
    axes = {"privacy.epsilon.high": [1, 6], "task.partition.alpha": [0.5, 3.0]}
    contents = Contents(view(make_results(("FedSGD", "DPSGD", "WeiAvg", "DPFL-BCS"), seeds=1, axes=axes)))
    charts = [winner_chart(contents.view), rank_chart(contents.view), time_chart(contents.view)]
    charts.append(who_pays_charts(contents.view)[0])
    assert [type(c.panels[0]) for c in charts] == [Grid, Ranks, Plane, Lanes]
    for chart in charts:
        body = draw(chart, contents.looks, 320)[0].body
        assert body in chart_html(chart, contents.looks)
        paths = write_figure(chart, contents.looks, tmp_path, ["svg", "png", "pdf"])
        assert paths == [figure_path(chart, tmp_path, kind) for kind in ("svg", "png", "pdf")]
        first = [p.read_bytes() for p in paths]
        assert [content[:4] for content in first] == [b"<svg", b"\x89PNG", b"%PDF"]
        again = write_figure(chart, contents.looks, tmp_path, ["svg", "png", "pdf"])
        assert [p.read_bytes() for p in again] == first


def test_figures_are_as_wide_as_a_page_and_have_300_dots_an_inch(tmp_path):
    from PIL import Image

    contents = Contents(view(make_results(seeds=1, axes=AXES)))
    (path,) = write_figure(contents.charts[0], contents.looks, tmp_path, ["png"])
    with Image.open(path) as picture:
        assert picture.size[0] == pytest.approx(WIDTHS["text"] * DPI, abs=1) == 2100
        assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.1)
    (path,) = write_figure(contents.charts[0], contents.looks, tmp_path, ["png"], Format(WIDTHS["column"]))
    with Image.open(path) as picture:
        assert picture.size[0] == pytest.approx(3.4 * 300, abs=1)


def test_no_figure_is_wider_than_the_column_it_is_made_for():
    notes = [{"heterogeneity": np.arange(12.0)}]
    names = (*ALGORITHMS, "PFA", "PRIVATEFL", "PRIVATEFL-BCS")
    contents = Contents(view(make_results(names, seeds=2, notes=notes, axes=AXES, report=BASELINES)))
    looked = contents.looks
    for chart in contents.charts:
        for inches in (3.4, 7.0):
            for letters in (7.0, 9.0):
                found = re.search(
                    r'width="([\d.]+)".*?viewBox="0 0 ([\d.]+)', figure(chart, looked, Format(inches, letters))
                )
                width, units = float(found[1]), float(found[2])
                assert width == pytest.approx(inches * 72, abs=0.1), chart.key
                assert width / units * 10 == pytest.approx(letters, abs=0.01), chart.key  # letters are 10 units high


def test_what_does_not_fit_a_column_becomes_smaller():
    axes = {"privacy.epsilon.high": [1, 2, 3, 4, 5, 6], "task.partition.alpha": [0.5, 3.0]}
    v = view(make_results(("DPSGD", "WeiAvg", "PRIVATEFL-BCS"), seeds=1, axes=axes))
    assert 'width="244.8"' in figure(winner_chart(v), looks(v), Format(3.4))


def test_no_title_is_burnt_into_a_figure():
    contents = Contents(view(make_results(ALGORITHMS, seeds=2)))
    for chart in contents.charts:
        drawing = figure(chart, contents.looks)
        assert chart.title not in drawing
        assert "synthetic" not in drawing
    assert 'class="t"' not in figure(rounds_chart(contents.view), contents.looks)


def test_beside_one_another_panels_name_their_axes_once():
    contents = Contents(view(make_results(ALGORITHMS, seeds=2, axes=AXES)))
    drawing = figure(contents.charts[0], contents.looks)  # 8 panels in two rows of four
    assert drawing.count(">accuracy (%) ↑</text>") == 2
    assert drawing.count(">round</text>") == 4


def test_a_font_that_is_not_there_is_refused():
    check_font("Liberation Sans")
    for name in ("Nope Sans", "a'}</style>"):
        with pytest.raises(DpflbenchError, match=r"--font .*: not found; allowed: Liberation Sans"):
            check_font(name)


def test_pdf_fonts_are_the_kind_publishers_take(tmp_path):
    (path,) = write_figure(rounds_chart(view(make_results(seeds=1))), {}, tmp_path, ["pdf"])
    assert b"/Type3" not in path.read_bytes()
    assert b"/TrueType" in path.read_bytes() or b"/CIDFontType2" in path.read_bytes()


def test_names_are_no_markup_and_no_path(tmp_path):
    hostile = "</text><script>$\\frac{$"
    v = view(make_results((hostile, "DPSGD"), seeds=1, axes={"privacy.epsilon.high": [1, 2]}))
    chart = sweep_charts(v)[0]
    ElementTree.fromstring(figure(chart, looks(v)))
    assert "<script" not in figure(chart, looks(v))
    assert write_figure(chart, looks(v), tmp_path, ["png"])[0].parent == tmp_path
    empty = Chart(key="../../x y", title="", caption="", panels=())
    assert figure_path(empty, tmp_path, "png").name == "------x-y.png"
