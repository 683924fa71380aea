"""Figures: what the charts hold, that the same name always looks the same, and that files are drawn."""

import math

import numpy as np
import pytest
from record_factory import make_record, make_results

from dpflbench.report.chart import Grid, Plane, Rows
from dpflbench.report.charts import all_charts, rounds_chart, sweep_charts, time_chart
from dpflbench.report.charts_clients import participation_chart, selection_chart, who_pays_charts
from dpflbench.report.charts_winners import rank_chart, winner_chart
from dpflbench.report.drawing import Drawing
from dpflbench.report.figures import draw, figure_path
from dpflbench.report.styles import KNOWN, MARKERS, styles
from dpflbench.report.svg import chart_svg, ticks, y_ranges
from dpflbench.report.view import view
from dpflbench.results.cells import Results
from dpflbench.results.record import MSE

AXES = {
    "privacy.mechanism": ["gaussian", "laplace"],
    "privacy.epsilon.high": [1, 6],
    "task.partition.alpha": [0.5, 3.0],
}
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
    panel = rank_chart(view(make_results(ALGORITHMS, seeds=2, axes=AXES))).panels[0]
    assert isinstance(panel, Rows)
    assert panel.names == ("DPFL-BCS", "WeiAvg", "DPSGD/DMLDP")
    assert [m.x for m in panel.marks] == [1.0, 2.0, 3.0]
    # 3 competitors over 8 settings: 3.314 / sqrt(2) * sqrt(3 * 4 / 48) = 1.172
    assert panel.marks[0].high - panel.marks[0].low == pytest.approx(1.172, abs=0.001)


def test_who_pays_has_three_signs_a_row():
    utility, share = who_pays_charts(view(make_results(ALGORITHMS, seeds=2)))
    panel = utility.panels[0]
    assert panel.names == ("FedSGD", "DPSGD", "WeiAvg", "DPFL-BCS")
    assert [m.marker for m in panel.marks if m.row == 3] == ["down", "diamond", "up"]
    strict, _, loose = (m.x for m in share.panels[0].marks if m.row == 3)
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
    assert selection_chart(view(make_results(("DPSGD",), seeds=1))) is None


def test_time_is_the_mean_of_what_was_measured():
    results = make_results(("DPSGD",), seeds=2)
    for record in results.records.values():
        record.measured["seconds"] = 1.0 + record.config["seed"]
    (panel,) = time_chart(view(results)).panels
    assert panel.series[0].x.tolist() == [1.5]


def test_errors_of_different_orders_get_a_logarithmic_axis():
    def utility(algorithm, seed, where):
        return {"DPSGD": 2.0e4, "WeiAvg": 20.0, "PFA": 19.0, "DPFL-BCS": 18.0}[algorithm]

    chart = rounds_chart(
        view(make_results(("DPSGD", "WeiAvg", "PFA", "DPFL-BCS"), seeds=1, utility=utility, metric=MSE))
    )
    assert chart.panels[0].y_log
    assert chart.panels[0].y_label == "mse ↓"
    assert "<svg" in chart_svg(chart, ["DPSGD"])
    assert not rounds_chart(view(make_results(seeds=1))).panels[0].y_log


# ---------------------------------------------------------------- looks


def test_an_algorithm_looks_the_same_whoever_stands_beside_it():
    alone, among = styles(["WeiAvg"]), styles([*KNOWN, "Mine"])
    assert alone["WeiAvg"] == among["WeiAvg"]
    assert styles(["Mine"])["Mine"] == among["Mine"]
    assert styles(["DPSGD/DMLDP"])["DPSGD/DMLDP"] == KNOWN["DPSGD"]


def test_no_two_algorithms_of_a_report_look_alike():
    names = [*KNOWN, *(f"algorithm {i}" for i in range(20))]
    assert len(set(styles(names).values())) == len(names)


def test_colours_differ_in_grey_or_the_line_and_marker_do():
    def grey(colour: str) -> float:
        r, g, b = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return 0.299 * r + 0.587 * g + 0.114 * b

    looks = list(KNOWN.values())
    for i, a in enumerate(looks):
        for b in looks[:i]:
            assert abs(grey(a.light) - grey(b.light)) > 20 or a.dash != b.dash or a.marker != b.marker


def test_all_colours_can_be_told_from_their_background():
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    for style in KNOWN.values():
        assert 1.05 / (luminance(style.light) + 0.05) > 1.9, style
        assert (luminance(style.dark) + 0.05) / (luminance("#1c2026") + 0.05) > 3, style


def test_ticks_are_round_and_inside():
    assert ticks(0.0, 10.0) == [0, 2, 4, 6, 8, 10]
    assert ticks(61.3, 86.9) == [65, 70, 75, 80, 85]
    assert ticks(3.0, 3.0) == [3.0]
    assert ticks(math.nan, 1.0) == []


def test_panels_with_the_same_label_share_their_range():
    chart = rounds_chart(view(make_results(seeds=1, axes=AXES, utility=climbing)))
    assert len(set(y_ranges(chart))) == 1


# ---------------------------------------------------------------- files


def test_results_with_everything_have_every_chart():
    notes = [{"heterogeneity": np.arange(12.0)}]
    charts = all_charts(view(make_results(ALGORITHMS, seeds=2, notes=notes, axes=AXES)))
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


def test_each_kind_of_panel_is_drawn_as_png_and_pdf_here_or_in_a_second_process(tmp_path, monkeypatch):
    v = view(
        make_results(
            ("FedSGD", "DPSGD", "WeiAvg", "DPFL-BCS"),
            seeds=1,
            axes={"privacy.epsilon.high": [1, 6], "task.partition.alpha": [0.5, 3.0]},
        )
    )
    charts = [winner_chart(v), rank_chart(v), time_chart(v)]
    assert [type(c.panels[0]) for c in charts] == [Grid, Rows, Plane]
    files = {}
    for name, least in (("here", 10**6), ("both", 0)):
        monkeypatch.setattr("dpflbench.report.drawing.WORTH_A_PROCESS", least)
        paths = Drawing(charts, v.algorithms, tmp_path / name, ["png", "pdf"]).finish()
        assert [p.name for p in paths] == [figure_path(c, tmp_path, k).name for c in charts for k in ("png", "pdf")]
        files[name] = [p.read_bytes() for p in paths]
    assert [content[:4] for content in files["here"]] == [b"\x89PNG", b"%PDF"] * 3
    assert files["here"] == files["both"]


def test_a_second_process_that_fails_is_not_hidden(tmp_path, monkeypatch):
    monkeypatch.setattr("dpflbench.report.drawing.WORTH_A_PROCESS", 0)
    monkeypatch.setattr("dpflbench.report.drawing.os.cpu_count", lambda: 2)
    v = view(make_results(("DPSGD", "WeiAvg", "DPFL-BCS"), seeds=1))
    drawing = Drawing([time_chart(v), rounds_chart(v)], v.algorithms, tmp_path / "figures", ["no-such-format"])
    drawing._mine = []
    with pytest.raises(RuntimeError, match="drawing figures failed"):
        drawing.finish()


def test_pdf_fonts_are_the_kind_publishers_take(tmp_path):
    (path,) = draw(rounds_chart(view(make_results(seeds=1))), [], tmp_path, ["pdf"])
    assert b"/Type3" not in path.read_bytes()
    assert b"/TrueType" in path.read_bytes() or b"/CIDFontType2" in path.read_bytes()


def test_names_are_no_mathematics_and_no_path(tmp_path):
    v = view(make_results(("$\\frac{$", "DPSGD"), seeds=1, axes={"privacy.epsilon.high": [1, 2]}))
    chart = sweep_charts(v)[0]
    assert draw(chart, v.algorithms, tmp_path, ["png"])[0].parent == tmp_path
    assert figure_path(type(chart)("../../x y", "", "", ()), tmp_path, "png").name == "------x-y.png"


def test_every_marker_can_be_drawn_both_ways():
    from matplotlib.markers import MarkerStyle

    for sign, polygon in MARKERS.values():
        assert MarkerStyle(sign).is_filled()
        assert len(polygon) in (0, 3, 4, 12)
