"""Figures: what the charts hold, how algorithms look, and that one drawing serves the page and every file."""

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from record_factory import make_record, make_results

from dpflbench.report.charts.chart import Chart, Grid, Lanes, Plane
from dpflbench.report.charts.clients import participation_chart, selection_chart, who_pays_charts
from dpflbench.report.charts.curves import rounds_chart, sweep_charts, time_chart
from dpflbench.report.charts.draw import draw, y_ranges
from dpflbench.report.charts.files import DPI, TEXT_WIDTH, figure, figure_path, write_figure
from dpflbench.report.charts.looks import MARKERS, NOT_PRIVATE, PALETTE, looks, nth
from dpflbench.report.charts.svg import log_ticks, tick_text, ticks, wrapped
from dpflbench.report.charts.winners import rank_chart, winner_chart
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


def test_utility_against_an_axis_of_numbers():
    charts = sweep_charts(view(make_results(ALGORITHMS, seeds=2, axes=AXES, utility=climbing)))
    assert [c.key for c in charts] == ["by-privacy.epsilon.high", "by-task.partition.alpha"]
    panel = charts[0].panels[0]
    assert panel.title == "gaussian, alpha 0.5"
    weiavg = next(s for s in panel.series if s.name == "WeiAvg")
    assert (weiavg.x.tolist(), weiavg.y.tolist()) == ([1.0, 6.0], [85.5, 90.5])


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


def test_the_winner_map_of_errors_names_the_lowest():
    chart = winner_chart(view(make_results(ALGORITHMS, seeds=2, axes=AXES, metric=MSE)))
    assert {s.name for s in chart.panels[0].squares} == {"DPSGD"}


def test_without_two_kinds_of_skew_there_is_no_winner_map():
    assert winner_chart(view(make_results(axes={"privacy.epsilon.high": [1, 6]}))) is None


def test_mean_ranks_with_the_baselines_as_one():
    panel = rank_chart(view(make_results(ALGORITHMS, seeds=2, axes=AXES, report=BASELINES))).panels[0]
    assert isinstance(panel, Lanes)
    assert panel.names == ("DPFL-BCS", "WeiAvg", "DPSGD/DMLDP")
    assert [m.x for m in panel.marks] == [1.0, 2.0, 3.0]
    # 3 competitors over 8 settings: 3.314 / sqrt(2) * sqrt(3 * 4 / 48) = 1.172
    assert panel.marks[0].high - panel.marks[0].low == pytest.approx(1.172, abs=0.001)


def test_who_pays_has_three_signs_a_row():
    utility, share = who_pays_charts(view(make_results(ALGORITHMS, seeds=2)))
    panel = utility.panels[0]
    assert panel.names == ("FedSGD", "DPSGD", "WeiAvg", "DPFL-BCS")
    assert [m.marker for m in panel.marks if m.lane == 3] == ["down", "diamond", "up"]
    strict, _, loose = (m.x for m in share.panels[0].marks if m.lane == 3)
    assert strict < 33.3 < loose


def test_participations_are_one_panel_for_algorithms_that_choose_alike():
    chart = participation_chart(view(make_results(("DPSGD", "WeiAvg", "DPFL-BCS"), seeds=1)))
    assert [p.title for p in chart.panels] == ["DPSGD and WeiAvg: synthetic", "DPFL-BCS: synthetic"]
    assert set(chart.panels[0].series[0].y) == {5.0}


def test_selection_shows_the_last_estimate_and_the_uses():
    notes = [{"stage": 1, "uses": np.ones(12)}, {"stage": 2, "heterogeneity": np.arange(12.0)}]
    chart = selection_chart(view(make_results(("DPFL-BCS",), seeds=1, notes=notes)))
    assert [p.y_label for p in chart.panels] == ["estimated Γ", "participations"]
    assert chart.panels[0].series[0].y.tolist() == list(range(12))
    assert selection_chart(view(make_results(("DPSGD",), seeds=1))).panels == ()


def test_time_is_the_mean_of_what_was_measured():
    results = make_results(("DPSGD",), seeds=2)
    for record in results.records.values():
        record.measured["seconds"] = 1.0 + record.config["seed"]
    (panel,) = time_chart(view(results)).panels
    assert panel.series[0].x.tolist() == [1.5]


def test_errors_of_different_orders_get_a_logarithmic_axis():
    def utility(algorithm, seed, where):
        return {"DPSGD": 2.0e5, "WeiAvg": 20.0, "PFA": 19.0, "DPFL-BCS": 18.0}[algorithm]

    chart = rounds_chart(
        view(make_results(("DPSGD", "WeiAvg", "PFA", "DPFL-BCS"), seeds=1, utility=utility, metric=MSE))
    )
    assert chart.panels[0].y_log
    assert chart.panels[0].y_label == "mse ↓"
    (drawn,) = draw(chart, {}, 320)
    assert ">10⁵</text>" in drawn.body  # no raw TeX, no 1e+05
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

    for look in (NOT_PRIVATE, *PALETTE):
        assert 1.05 / (luminance(look.light) + 0.05) > 3, look
        assert (luminance(look.dark) + 0.05) / (luminance("#1c2026") + 0.05) > 3, look
        assert look.marker in MARKERS


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
    lines = wrapped("DPSGD, WeiAvg, PFA and PRIVATEFL: gaussian, ε max 1, alpha 0.5", 320)
    assert " ".join(lines).replace("\u00a0", " ") == "DPSGD, WeiAvg, PFA and PRIVATEFL: gaussian, ε max 1, alpha 0.5"
    assert lines[-1].endswith("alpha\u00a00.5")
    assert max(map(len, lines)) * 6.2 <= 320


def test_panels_with_the_same_label_share_their_range():
    chart = rounds_chart(view(make_results(seeds=1, axes=AXES, utility=climbing)))
    assert len(set(y_ranges(chart))) == 1


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
    assert (tmp_path / "figures" / "who-takes-part.png") in write_report(results, tmp_path)


def test_each_kind_of_panel_is_drawn_on_the_page_and_in_every_kind_of_file(tmp_path):
    axes = {"privacy.epsilon.high": [1, 6], "task.partition.alpha": [0.5, 3.0]}
    contents = Contents(view(make_results(("FedSGD", "DPSGD", "WeiAvg", "DPFL-BCS"), seeds=1, axes=axes)))
    charts = [winner_chart(contents.view), rank_chart(contents.view), time_chart(contents.view)]
    assert [type(c.panels[0]) for c in charts] == [Grid, Lanes, Plane]
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
        assert picture.size[0] == pytest.approx(TEXT_WIDTH / 72 * DPI, abs=1) == 2100
        assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.1)


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
