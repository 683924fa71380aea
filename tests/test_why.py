"""Why: the two numbers from the loop to records, plans, tables and figures."""

import csv
import io
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from harness import assembly_of, record_of, run_of
from places import place
from record_factory import make_results

from dpflbench.execution.apart import possible
from dpflbench.execution.attempt import execute
from dpflbench.forecast import forecast
from dpflbench.judges.explanation import check_explanation
from dpflbench.judges.recount import rules_of
from dpflbench.planning import make_run
from dpflbench.report.charts.draw import axes, legend
from dpflbench.report.charts.looks import looks
from dpflbench.report.charts.why import why_chart
from dpflbench.report.export import cells_csv, summary_csv
from dpflbench.report.tables.why import EFFICIENCY, why_table
from dpflbench.report.view import view
from dpflbench.report.write import summary_table, write_report
from dpflbench.results.cells import Results
from dpflbench.testing import ConformanceError, check_aggregator


@dataclass(frozen=True)
class FirstRow:
    """Follows the first row alone, and says so."""

    wrong: str = ""

    def init(self, setup):
        """No state."""

    def aggregate(self, updates, state):
        """Return the first row."""
        return updates.values[0].clone(), state

    def effective_weights(self, updates, state):
        """Return what it did."""
        told = torch.zeros_like(updates.epsilon)
        told[0] = 1.0
        return told[1:] if self.wrong == "shape" else told.flip(0) if self.wrong == "row" else told


def with_aggregator(tiny, catalogue, aggregator):
    """The record of uniform selection with that aggregator."""
    made = assembly_of(tiny, catalogue, "DPSGD")
    made = replace(made, algorithm=replace(made.algorithm, aggregator=aggregator))
    run = replace(make_run(made.config, made, made.task.dataset.digest(None)), assembly=made)
    return execute(run, catalogue, place())


def test_a_record_has_weights_and_both_numbers_and_how_they_were_had(tiny, catalogue):
    record = record_of(tiny, catalogue, "DPSGD")
    uses, weight = record.clients["uses"], record.clients["weight"]
    cohort = record.config["federation"]["cohort"]
    assert weight == pytest.approx(uses / cohort)
    how, facts = record.facts["why"], record.facts
    assert how["weights"] == "linear"
    assert facts["noise_efficiency"] == pytest.approx(how["limit"] / how["variance"])
    assert 0 < facts["noise_efficiency"] <= 1
    # by hand from the ledger: a mean of K has a K²-th of the sum of its variances
    gradients = record.events["kind"] == 0
    by_hand = np.sum(record.events["scale"][gradients] ** 2) / cohort**2 / record.config["federation"]["rounds"]
    assert how["variance"] == pytest.approx(by_hand, rel=1e-5)


def test_a_run_without_privacy_has_coverage_alone(tiny, catalogue):
    facts = record_of(tiny, catalogue, "FedSGD").facts
    assert "noise_efficiency" not in facts
    assert 0 < facts["data_coverage"] <= 1


def test_rows_of_unknown_weight_are_taken_for_a_plain_mean_and_said_to_be(tiny, catalogue):
    mean, rows = (record_of(tiny, catalogue, use).facts for use in ("DPSGD", "PFA"))
    assert rows["why"]["weights"] == "plain mean"
    assert rows["noise_efficiency"] == mean["noise_efficiency"]


def test_an_aggregator_of_rows_may_report_its_weights(tiny, catalogue):
    record = with_aggregator(tiny, catalogue, FirstRow())
    assert record.status == "done", record.reason
    assert record.facts["why"]["weights"] == "reported"
    rounds = record.config["federation"]["rounds"]
    assert record.clients["weight"].sum() == pytest.approx(rounds)  # one row a round
    assert sorted(set(record.clients["weight"] % 1)) == [0.0]


@pytest.mark.parametrize(("wrong", "said"), [("shape", "one a client"), ("row", "is not its direction")])
def test_reported_weights_that_do_not_give_the_direction_fail_the_run_and_the_check(tiny, catalogue, wrong, said):
    record = with_aggregator(tiny, catalogue, FirstRow(wrong))
    assert record.status == "failed"
    assert said in record.reason
    with pytest.raises(ConformanceError, match=said):
        check_aggregator(FirstRow(wrong))


@pytest.mark.skipif(not possible(), reason="no process of its own for server code here")
def test_weights_are_reported_from_a_process_of_its_own_too(tiny, catalogue):
    run = run_of(tiny, catalogue, "Robust-HDP")
    beside, apart = (execute(run, catalogue, place(isolated=isolated)) for isolated in (False, True))
    assert apart.facts["why"] == beside.facts["why"]
    assert apart.facts["why"]["weights"] == "reported"


def test_robust_hdp_reports_its_weights_and_is_more_efficient_than_a_plain_mean(tiny, catalogue):
    tiny["federation"] |= {"rounds": 30}
    mean, aware = (record_of(tiny, catalogue, use).facts for use in ("DPSGD", "Robust-HDP"))
    assert aware["why"]["weights"] == "reported"
    assert aware["noise_efficiency"] > mean["noise_efficiency"]


def test_the_plan_foresees_what_the_record_says(tiny, catalogue):
    for use in ("DPSGD", "WeiAvg", "PFA"):
        told, found = forecast(assembly_of(tiny, catalogue, use), place()), record_of(tiny, catalogue, use).facts
        assert told.efficiency == pytest.approx(found["noise_efficiency"], rel=1e-6)
        assert told.coverage == pytest.approx(found["data_coverage"], rel=1e-6)
        assert told.weights == found["why"]["weights"]


def explained(laplace=False):
    """Synthetic results whose records have the two numbers."""
    results = make_results(("FedSGD", "DPSGD", "WeiAvg", "PFA"), seeds=2)
    numbers = {"DPSGD": 0.14, "WeiAvg": 0.83, "PFA": 0.14}
    records = {}
    for run, record in results.records.items():
        how = {"weights": "plain mean" if record.algorithm == "PFA" else "linear", "rounds": 20}
        facts = {**record.facts, "data_coverage": 0.5, "why": how}
        if record.private:
            efficiency = numbers[record.algorithm]
            how |= {"limit": 1e-4, "mean_limit": 2e-3 if laplace else 1e-4, "variance": 1e-4 / efficiency}
            facts["noise_efficiency"] = efficiency
        records[run] = replace(record, facts=facts)
    return Results(results.manifest, records)


def test_the_table_names_both_numbers_and_marks_what_stands_in_for_unknown_weights():
    table = why_table(view(explained()))
    rows = {row[1].text: row for row in table.rows}
    assert list(rows) == ["DPSGD", "WeiAvg", "PFA"]  # nothing limits a run without noise
    assert rows["WeiAvg"][2].text == "0.83"
    assert rows["PFA"][2].mark == "≈"
    assert table.notes[0].startswith("≈ weights are not linear")
    assert len(table.notes) == 1
    assert any("no plain mean exceeds 0.05" in n for n in why_table(view(explained(laplace=True))).notes)


def test_the_table_marks_what_does_not_stand():
    results = explained()
    run = next(run for run, record in results.records.items() if record.algorithm == "WeiAvg")
    table = why_table(view(replace(results, marks={run: "not private as claimed"})))
    marks = {row[1].text: row[1].mark for row in table.rows}
    assert marks == {"DPSGD": "", "WeiAvg": "(not private as claimed)", "PFA": ""}


def test_records_without_the_numbers_have_no_table_and_no_panel():
    v = view(make_results(("FedSGD", "DPSGD"), seeds=2))
    assert why_table(v) is None
    assert why_chart(v).panels == ()


def test_the_terminal_shows_the_table_on_request_only():
    results = explained()
    assert EFFICIENCY not in summary_table(results)
    assert EFFICIENCY in summary_table(results, why=True)


def test_the_figure_draws_the_limit_and_the_best_algorithm_largest():
    (panel,) = why_chart(view(explained())).panels
    assert panel.limits == ((1.0, False),)
    assert max(panel.series, key=lambda s: s.size).name == "WeiAvg"
    (panel,) = why_chart(view(explained(laplace=True))).panels
    assert panel.limits == ((1.0, False), (pytest.approx(0.05), True))


def test_large_signs_stay_inside_the_frame_and_the_legend_has_signs_without_lines():
    chart = why_chart(view(explained()))
    ((x, y),) = axes(chart)
    (panel,) = chart.panels
    across, up = x.scale(0, 100), y.scale(100, 0)
    for series in panel.series:
        assert 9 < across(series.x[0]) < 91
        assert 9 < up(series.y[0]) < 91
    below = {s.name: (s.below, s.size) for s in panel.series}
    assert below["WeiAvg"][0] == 0.0
    (top, one), (bottom, two) = below["PFA"], below["DPSGD"]  # the same two numbers, so below one another
    assert bottom - top == pytest.approx(one + two)
    assert top == 0.0  # the larger at its place
    keys = legend(chart, looks(view(explained())))
    assert [name for _, name, _ in keys] == ["DPSGD", "WeiAvg", "PFA"]
    assert not any('class="l"' in key for key, _, _ in keys)


def test_the_figure_says_for_whom_a_plain_mean_stands_in():
    assert " PFA: weights are not known" in why_chart(view(explained())).caption


def test_every_format_of_a_report_has_the_numbers(tmp_path):
    results = explained()
    write_report(results, tmp_path)
    assert "0.83" in (tmp_path / "tables" / "why.tex").read_text()
    for name in ("index.html", "report.md"):
        assert "noise efficiency" in (tmp_path / name).read_text()
    assert (tmp_path / "figures" / "why.png").is_file()
    summary = {row["algorithm"]: row for row in csv.DictReader(io.StringIO(summary_csv(view(results))))}
    assert float(summary["WeiAvg"]["noise_efficiency"]) == pytest.approx(0.83)
    cells = list(csv.DictReader(io.StringIO(cells_csv(view(results)))))
    assert {c["weights"] for c in cells if c["algorithm"] == "PFA"} == {"plain mean"}
    import pyarrow.parquet as pq

    assert {"noise_efficiency", "data_coverage"} <= set(pq.read_table(tmp_path / "cells.parquet").column_names)
    assert "weight" in pq.read_table(tmp_path / "clients.parquet").column_names


def test_a_record_with_better_numbers_than_its_ledger_allows_is_found_out(tiny, catalogue):
    rules = {use: record_of(tiny, catalogue, use) for use in ("DPSGD", "WeiAvg", "PFA", "DPFL-BCS")}
    for record in rules.values():
        made = rules_of(record.config, catalogue)
        assert list(check_explanation(record, made)) == []
    record, made = rules["WeiAvg"], rules_of(rules["WeiAvg"].config, catalogue)

    def found(**facts):
        how = {**record.facts["why"], **facts.pop("why", {})}
        changed = replace(record, facts={**record.facts, **facts, "why": how})
        return " ".join(check_explanation(changed, made))

    assert "noise efficiency is not" in found(noise_efficiency=0.99)
    assert "data coverage" in found(data_coverage=0.99)
    limit, variance = record.facts["why"]["limit"], record.facts["why"]["variance"]
    assert "the least noise at its budgets" in found(noise_efficiency=1.0, why={"limit": variance})
    assert "no weights come below" in found(noise_efficiency=5.0, why={"variance": limit / 5})
    assert "a plain mean of its releases" in found(why={"weights": "plain mean"})
