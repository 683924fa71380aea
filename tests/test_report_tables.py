"""Tables: what stands where, what is marked, what is missing and why; text is inert wherever it goes."""

import csv
import io
import math
from dataclasses import replace

import numpy as np
import pytest
from record_factory import make_record, make_results

from dpflbench.errors import DpflbenchError
from dpflbench.report import labels
from dpflbench.report.comparison import across, best, indistinguishable, ranked, role, seed_warnings
from dpflbench.report.headline import headline
from dpflbench.report.tables.costs import cost_table, epsilon_table
from dpflbench.report.tables.differences import best_round_table, difference_table
from dpflbench.report.tables.gaps import gap_table
from dpflbench.report.tables.table import Item, Table, as_markdown, as_text
from dpflbench.report.tables.utility import utility_tables
from dpflbench.report.tables.who_pays import payments, tiers, who_pays_table, worst_decile
from dpflbench.report.view import view
from dpflbench.report.write import FORMATS, Contents, markdown_report, summary_table, write_report
from dpflbench.results.cells import Cell, Manifest, Problem, Results
from dpflbench.results.record import MSE

MECHANISMS = {"privacy.mechanism": ["gaussian", "laplace"]}
HOSTILE = "<script>alert(1)</script>|*_`$\\\x1b[2J\u202e\n=1+1"


def cell_texts(table: Table) -> dict[str, list[str]]:
    return {row[0].text: [e.text for e in row[1:]] for row in table.rows}


def replace_record(results: Results, algorithm: str, seed: int, **change: object) -> Results:
    """The results with one record ended otherwise."""
    cell = next(c for c in results.manifest.cells if c.algorithm == algorithm and c.seed == seed)
    old = results.records[cell.run]
    new = make_record(cell.run, algorithm, seed, old.config, math.nan, **change)
    return Results(results.manifest, {**results.records, cell.run: new})


# ---------------------------------------------------------------- utility


def test_mean_and_standard_deviation_by_hand():
    # seeds 0, 1, 2 add 0.0, 0.1, 0.2: mean 84.1, sample standard deviation 0.1
    table = utility_tables(view(make_results(seeds=3)))[0]
    assert cell_texts(table)["WeiAvg"] == ["84.10 ± 0.10"]


def test_the_best_private_algorithm_is_bold_and_fedsgd_never_is():
    table = utility_tables(view(make_results()))[0]
    assert [row[0].text for row in table.rows if row[1].bold] == ["DPFL-BCS"]
    assert [row[0].mark for row in table.rows] == ["(not private)", "", "", ""]


@pytest.mark.parametrize(("kind", "said"), [("pca", True), ("standardise", True), ("flatten", False), (None, False)])
def test_features_that_nobody_paid_for_are_named(kind, said):
    axes = {"task.dataset.features.kind": [kind]} if kind else {}
    notes = " ".join(utility_tables(view(make_results(axes=axes)))[0].notes)
    assert (f"Features ({kind}) are fitted on training data as public preprocessing" in notes) == said


def test_features_that_are_not_fitted_are_no_preprocessing():
    found = make_results(axes={"task.dataset.features.kind": ["hog"]})
    records = {r.id: replace(r, facts={**r.facts, "features_fitted": False}) for r in found.records.values()}
    said, unsaid = (" ".join(utility_tables(view(each))[0].notes) for each in (found, replace(found, records=records)))
    assert "Features (hog) are fitted on training data as public preprocessing" in said
    assert "preprocessing" not in unsaid


def test_lower_is_better_turns_best_and_arrow_round():
    v = view(make_results(metric=MSE))
    table = utility_tables(v)[0]
    assert [row[0].text for row in table.rows if row[1].bold] == ["DPSGD"]
    assert "mse ↓" in table.title
    assert "lower is better" in table.caption
    assert "↑" in utility_tables(view(make_results()))[0].title


def test_algorithms_not_told_apart_from_the_best_are_marked_once_the_seeds_allow_it():
    def utility(algorithm, seed, where):
        wobble = (-1) ** seed * 0.5  # WeiAvg and DPFL-BCS change places from seed to seed
        return {"DPSGD": 70.0, "WeiAvg": 84.0 + wobble, "DPFL-BCS": 84.1 - wobble}.get(algorithm, 92.0) + seed / 10

    v = view(make_results(seeds=8, utility=utility))
    assert indistinguishable(v, v.columns[0]) == {"WeiAvg"}
    marks = {row[0].text: row[1].mark for row in utility_tables(v)[0].rows}
    assert marks == {"FedSGD": "", "DPSGD": "", "WeiAvg": "≈", "DPFL-BCS": ""}


def test_too_few_seeds_mark_nothing_and_say_how_many_are_needed():
    v = view(make_results(seeds=5))
    assert indistinguishable(v, v.columns[0]) == set()
    (line,) = seed_warnings(v)
    assert "5 seeds" in line
    assert "p = 0.062" in line
    assert "one comparison needs 6 seeds, 2 need 7" in line
    assert seed_warnings(view(make_results(seeds=7))) == []


def test_columns_follow_the_suite_and_other_axes_become_tables():
    axes = {**MECHANISMS, "privacy.epsilon.high": [1, 6], "task.partition.alpha": [0.5, 3.0]}
    v = view(make_results(axes=axes, report={"columns": ["privacy.mechanism", "privacy.epsilon.high"]}))
    tables = utility_tables(v)
    assert [t.key for t in tables] == ["utility", "utility-2"]
    assert tables[0].header == (
        "algorithm",
        "gaussian\nε max 1",
        "gaussian\nε max 6",
        "laplace\nε max 1",
        "laplace\nε max 6",
    )
    assert "alpha 0.5" in tables[0].title
    assert "alpha 3" in tables[1].title


def test_without_columns_all_axes_are_columns():
    table = utility_tables(view(make_results(axes={**MECHANISMS, "privacy.epsilon.high": [1, 6]})))[0]
    assert len(table.header) == 5


def test_levels_of_the_header_stand_in_the_order_the_suite_names_them():
    axes = {"task.partition.alpha": [3.0, 0.5], **MECHANISMS}
    results = make_results(axes=axes)
    forgetful = [
        Cell(dict(sorted(c.coordinates.items())), c.algorithm, c.seed, c.run, c.reason) for c in results.manifest.cells
    ]
    sorted_by_json = Results(Manifest("s", results.manifest.suite, forgetful), results.records)
    heads = ("algorithm", "alpha 3\ngaussian", "alpha 3\nlaplace", "alpha 0.5\ngaussian", "alpha 0.5\nlaplace")
    assert utility_tables(view(sorted_by_json))[0].header == heads
    other = make_results(axes=axes, report={"columns": ["privacy.mechanism", "task.partition.alpha"]})
    heads = ("algorithm", "gaussian\nalpha 3", "gaussian\nalpha 0.5", "laplace\nalpha 3", "laplace\nalpha 0.5")
    assert utility_tables(view(other))[0].header == heads


def test_a_report_section_that_is_none_is_one_clear_line():
    with pytest.raises(DpflbenchError, match=r"recorded with the results: report.value: found 'f1'; allowed: utility"):
        view(make_results(report={"value": "f1"}))


def test_fedsgd_is_one_record_shown_in_every_column():
    results = make_results(axes=MECHANISMS, seeds=2)
    runs = {c.run for c in results.manifest.cells if c.algorithm == "FedSGD"}
    assert len(runs) == 2
    assert cell_texts(utility_tables(view(results))[0])["FedSGD"] == ["92.05 ± 0.07", "92.05 ± 0.07"]


def test_personal_utility_is_shown_when_asked_for():
    table = utility_tables(view(make_results(seeds=2, report={"value": "utility_personal"})))[0]
    assert cell_texts(table)["WeiAvg"] == ["84.55 ± 0.07"]
    assert "own held-out examples" in table.caption


def test_trivial_models_stand_below_the_algorithms():
    results = make_results(seeds=2, metric=MSE)
    for record in results.records.values():
        record.facts["references"] = {"predict_the_mean": 19.0 + record.config["seed"]}
    row = utility_tables(view(results))[0].rows[-1]
    assert (row[0].text, row[0].mark, row[1].text) == ("predict the mean", "(trivial model)", "19.50 ± 0.71")


# ---------------------------------------------------------------- gaps


def test_an_impossible_cell_says_why():
    table = utility_tables(view(make_results(axes=MECHANISMS)))[0]
    row = next(r for r in table.rows if r[0].text == "DPSGD")
    assert row[2].text == "impossible"
    assert row[2].mark == "[1]"
    assert "[1] impossible: DPSGD is defined for gaussian, not for laplace" in table.notes


def test_a_diverged_seed_is_shown_counted_and_keeps_its_algorithm_out_of_the_ranking():
    results = replace_record(make_results(seeds=3), "DPFL-BCS", 1, status="diverged", reason="loss is inf in round 7")
    v = view(results)
    assert best(v, v.columns[0]).algorithm == "WeiAvg"
    table = utility_tables(v)[0]
    row = next(r for r in table.rows if r[0].text == "DPFL-BCS")
    assert row[1].text == "86.10 ± 0.14 (2/3)"
    assert any("diverged in seed 1: loss is inf in round 7" in note for note in table.notes)
    assert any("four of six" in note for note in table.notes)


def test_disqualified_failed_and_missing_runs_are_three_different_things():
    results = replace_record(
        make_results(seeds=3), "WeiAvg", 0, status="disqualified", reason="client 4 spent 1.2 of 1.0"
    )
    results = replace_record(results, "WeiAvg", 1, status="failed", reason="ValueError: shape")
    gone = next(c.run for c in results.manifest.cells if c.algorithm == "WeiAvg" and c.seed == 2)
    results = Results(
        results.manifest,
        {k: r for k, r in results.records.items() if k != gone},
        (Problem("x", "records/x.json: truncated"),),
    )
    table = gap_table(view(results))
    assert [(row[0].text, row[2].text, row[3].text, row[4].text) for row in table.rows] == [
        ("WeiAvg", "0", "disqualified", "client 4 spent 1.2 of 1.0"),
        ("WeiAvg", "1", "failed", "ValueError: shape"),
        ("WeiAvg", "2", "not run", "there is no record yet"),
    ]
    assert table.notes == ("unreadable record: records/x.json: truncated",)
    assert "disqualified / failed / not run" in summary_table(results)


def test_an_unreadable_record_is_not_a_run_still_to_come():
    results = make_results(("WeiAvg",), seeds=1)
    (run,) = results.records
    v = view(Results(results.manifest, {}, (Problem(run, f"somewhere/records/{run}.json: truncated"),)))
    assert [(row[3].text, row[4].text) for row in gap_table(v).rows] == [
        ("unreadable", f"somewhere/records/{run}.json: truncated")
    ]


def test_a_complete_suite_has_no_gap_table():
    assert gap_table(view(make_results())) is None


def test_nothing_has_run_yet_is_a_report_too():
    results = make_results(seeds=2)
    v = view(Results(results.manifest, {}))
    assert [line.text for line in headline(v)] == [
        "No private algorithm has a result yet, so there is nothing to compare."
    ]
    assert "not run" in markdown_report(Contents(v))


def test_no_cells_at_all_is_a_report_too(tmp_path):
    empty = Results(Manifest("empty", {"name": "empty"}, ()), {})
    assert "nothing to compare" in summary_table(empty)
    assert (tmp_path / "index.html") in write_report(empty, tmp_path)


def test_a_value_that_was_not_measured_is_a_gap():
    results = make_results(seeds=1, report={"value": "utility_mean_phi"})
    for record in results.records.values():
        record.final.pop("utility_mean_phi")
    assert "not measured" in {row[3].text for row in gap_table(view(results)).rows}


# ---------------------------------------------------------------- comparisons


def test_the_paired_difference_to_the_baseline_by_hand():
    def utility(algorithm, seed, where):
        return {"DPSGD": 70.0, "WeiAvg": 71.0 + seed}.get(algorithm, 60.0)

    v = view(make_results(("DPSGD", "WeiAvg"), seeds=3, utility=utility))
    (row,) = difference_table(v).rows
    assert [e.text for e in row[1:]] == ["WeiAvg", "DPSGD", "+2.00", "−0.48 to +4.48", "0.25", "0.25", "+2.00", "3/3"]


def test_the_baseline_is_the_first_that_has_a_value_in_the_column():
    v = view(make_results(("DPSGD", "DMLDP", "WeiAvg"), axes=MECHANISMS, report={"baseline": ["DPSGD", "DMLDP"]}))
    assert [v.baseline(s) for s in v.columns] == ["DPSGD", "DMLDP"]
    assert {row[2].text for row in difference_table(v).rows} == {"DPSGD", "DMLDP"}


def test_the_first_private_algorithm_is_the_baseline_unless_the_suite_names_one():
    v = view(make_results(("FedSGD", "WeiAvg", "DPSGD"), seeds=1))
    assert v.baselines == ("WeiAvg",)
    assert {row[2].text for row in difference_table(v).rows} == {"WeiAvg"}
    assert view(make_results(report={"baseline": "DPFL-BCS"})).baselines == ("DPFL-BCS",)


def test_without_a_baseline_there_is_no_difference_table():
    assert difference_table(view(make_results(report={"baseline": "Nobody"}))) is None


def test_seeds_better_counts_falls_for_errors():
    def utility(algorithm, seed, where):
        return {"DPSGD": 20.0, "WeiAvg": 19.0 if seed else 20.0}[algorithm]

    v = view(make_results(("DPSGD", "WeiAvg"), seeds=3, utility=utility, metric=MSE))
    (row,) = difference_table(v).rows
    assert row[-1].text == "2/3"
    assert "negative is better" in difference_table(v).caption


def test_baselines_that_never_meet_are_one_competitor_across_columns():
    both = {"baseline": ["DPSGD", "DMLDP"]}
    v = view(make_results(("DPSGD", "DMLDP", "WeiAvg"), axes=MECHANISMS, report=both))
    assert role(v, "DPSGD") == role(v, "DMLDP") == "DPSGD/DMLDP"
    assert set(across(v)) == {"DPSGD/DMLDP", "WeiAvg"}
    assert across(v)["DPSGD/DMLDP"][0] == pytest.approx((74 + 70) / 2)


def test_accuracies_and_errors_are_not_averaged():
    one, two = (
        make_results(axes={"task.dataset.name": ["mnist"]}),
        make_results(axes={"task.dataset.name": ["lending_club"]}, metric=MSE),
    )
    both = Results(
        Manifest("both", one.manifest.suite, (*one.manifest.cells, *two.manifest.cells)), {**one.records, **two.records}
    )
    v = view(both)
    assert v.common_metric is None
    assert across(v) == {}
    (line,) = headline(v)
    assert line.winner == ""
    assert line.sentences == ("DPFL-BCS is best in 1 of 2 columns; DPSGD in 1.",)
    heads = utility_tables(v)[0].header
    assert heads[1:] == ("MNIST\naccuracy (%) ↑", "Lending Club\nmse ↓")


def test_two_equal_seeds_give_no_interval():
    def utility(algorithm, seed, where):
        return {"DPSGD": 70.0, "WeiAvg": 71.0}[algorithm] + seed

    v = view(make_results(("DPSGD", "WeiAvg"), seeds=2, utility=utility))
    (row,) = difference_table(v).rows
    assert [e.text for e in row[3:5]] == ["+1.00", "–"]
    assert "confidence interval" not in headline(v)[0].text


def test_ranking_is_by_mean_in_the_metrics_direction():
    v = view(make_results())
    assert [g.algorithm for g in ranked(v, v.columns[0])] == ["DPFL-BCS", "WeiAvg", "DPSGD"]


# ---------------------------------------------------------------- privacy, time, best round


def test_epsilon_spent_over_allowed_has_minimum_median_and_maximum():
    table = epsilon_table(view(make_results(seeds=2)))
    rows = {row[1].text: [e.text for e in row[2:]] for row in table.rows}
    assert rows["FedSGD"][0] == "∞"
    assert rows["WeiAvg"][1:] == ["1.000", "1.000", "1.000", "100 %", "0 %"]
    assert float(rows["DPFL-BCS"][1]) <= float(rows["DPFL-BCS"][2])


def test_what_a_run_says_it_spent_is_called_a_claim_where_it_does_not_stand():
    results = make_results(("DPSGD", "WeiAvg"), seeds=1)
    run = next(run for run, record in results.records.items() if record.algorithm == "WeiAvg")
    table = epsilon_table(view(replace(results, marks={run: "not private as claimed"})))
    assert {row[1].text: row[1].mark for row in table.rows} == {"DPSGD": "", "WeiAvg": "(not private as claimed)"}
    assert table.caption.endswith("the figures of such a row are claims.")
    assert "claims" not in epsilon_table(view(results)).caption


def test_time_is_the_median_without_the_first_round_and_has_the_whole_run_beside_it():
    results = make_results(("DPSGD",), seeds=3)
    for record in results.records.values():
        seed = record.config["seed"]
        record.measured["seconds"] = (1.5, 1.0, 30.0)[seed]  # the last was alone in its process and imported everything
        record.measured["round_seconds"] = (0.05, 0.04, 0.06)[seed]
    (row,) = cost_table(view(results)).rows
    assert row[2].text == "1.00 (0.80 to 1.20)"  # 20 rounds
    assert row[3].text == "1.50"
    assert row[4].text == "60 000"
    assert row[5].text == "60 %"  # 0.03 of 0.05
    assert row[6].text == "cpu"


def test_a_time_that_was_not_measured_is_a_dash():
    results = make_results(("DPSGD",), seeds=1)
    for record in results.records.values():
        del record.measured["round_seconds"], record.measured["samples_per_second"]
    (row,) = cost_table(view(results)).rows
    assert [item.text for item in row[2:6]] == ["–", labels.number(row[3].value), "–", "–"]


def test_best_over_rounds_is_flagged():
    table = best_round_table(view(make_results(seeds=2)))
    assert all(row[3].mark == "†" for row in table.rows)
    assert "†" in table.header[3]
    assert "never ranks" in table.caption


# ---------------------------------------------------------------- who pays


def test_thirds_go_by_epsilon_then_delta():
    parts = tiers(np.array([3.0, 1.0, 2.0, 1.0, 9.0, 5.0]), np.array([0, 2e-5, 0, 1e-5, 0, 0.0]))
    assert [p.tolist() for p in parts] == [[3, 1], [2, 0], [5, 4]]


def test_the_worst_decile_is_the_worst_tenth_in_either_direction():
    utility = np.arange(20.0)
    assert worst_decile(utility, True) == 0.5
    assert worst_decile(utility, False) == 18.5
    assert worst_decile(np.array([math.nan, 4.0]), True) == 4.0
    assert math.isnan(worst_decile(np.array([math.nan]), True))


def test_who_pays_by_hand():
    results = make_results(("DPSGD", "WeiAvg"), seeds=1, n_clients=3)
    for record in results.records.values():
        record.clients.update(
            epsilon=np.array([3.0, 1.0, 2.0]),
            utility_shared=np.array([90.0, 60.0, 80.0]),
            uses=np.array([6, 1, 3]),
            n_holdout=np.array([5, 5, 5]),
        )
    paid = payments(view(results))[0]
    assert paid.utility == (60.0, 80.0, 90.0)
    assert paid.share == (10.0, 30.0, 60.0)
    assert paid.worst_decile == 60.0


def test_larger_clients_weigh_more_in_their_third_and_clients_without_holdout_nothing():
    results = make_results(("DPSGD",), seeds=1, n_clients=6)
    for record in results.records.values():
        record.clients.update(
            epsilon=np.arange(1.0, 7.0),
            utility_shared=np.array([60.0, 90.0, math.nan, 70.0, 50.0, 50.0]),
            n_holdout=np.array([10, 20, 0, 5, 1, 1]),
        )
    assert payments(view(results))[0].utility == (80.0, 70.0, 50.0)


def test_thirds_of_fedsgd_are_those_of_the_private_runs_of_its_column_and_seed():
    results = make_results(("FedSGD", "DPSGD"), seeds=1, n_clients=3)
    for record in results.records.values():
        record.clients["utility_shared"] = np.array([90.0, 60.0, 80.0])
        if record.private:
            record.clients["epsilon"] = np.array([3.0, 1.0, 2.0])
    by_name = {p.group.algorithm: p for p in payments(view(results))}
    assert np.all(np.isinf(next(r for r in results.records.values() if not r.private).clients["epsilon"]))
    assert by_name["FedSGD"].utility == (60.0, 80.0, 90.0)


def test_fedsgd_alone_has_no_thirds():
    assert who_pays_table(view(make_results(("FedSGD",), seeds=1))) is None


# ---------------------------------------------------------------- forms


def hostile_results() -> Results:
    results = make_results(("DPSGD", HOSTILE), seeds=2)
    cells = [
        Cell(c.coordinates, c.algorithm, c.seed, c.run if c.seed else None, HOSTILE) for c in results.manifest.cells
    ]
    return Results(
        Manifest(HOSTILE, {**results.manifest.suite, "description": HOSTILE}, cells),
        results.records,
        (Problem("x", HOSTILE),),
    )


def test_no_control_character_reaches_the_terminal():
    text = summary_table(hostile_results())
    assert [c for c in text if not c.isprintable() and c != "\n"] == []
    assert "\\u001b" in text


def test_names_are_inert_in_markdown():
    text = markdown_report(Contents(view(hostile_results())))
    assert "<script>" not in text
    assert "\\<script\\>alert(1)\\</script\\>\\|\\*\\_\\`\\$\\\\" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    pipes = {line.replace("\\\\", "").replace("\\|", "").count("|") for line in lines[:4]}
    assert len(pipes) == 1


def test_csv_has_full_numbers_and_no_formula(tmp_path):
    write_report(make_results(("DPSGD", "=HYPERLINK(1)"), seeds=2), tmp_path, ["csv"])
    rows = list(csv.DictReader(io.StringIO((tmp_path / "summary.csv").read_text())))
    assert [row["algorithm"] for row in rows] == ["DPSGD", "'=HYPERLINK(1)"]
    assert float(rows[0]["mean"]) == pytest.approx(74.05)
    cells = list(csv.DictReader(io.StringIO((tmp_path / "cells.csv").read_text())))
    assert [float(row["utility_global"]) for row in cells] == [74.0, 74.1, 80.0, 80.1]


def test_markdown_has_bold_marks_and_notes():
    rows = ((Item("x"), Item("1", 1.0, bold=True, mark="≈")),)
    table = Table(key="k", title="T", header=("a", "b\nc"), rows=rows, notes=("n",))
    assert as_markdown(table).splitlines() == [
        "## T",
        "",
        "| a | b, c |",
        "| --- | ---: |",
        "| x | **1** ≈ |",
        "",
        "- n",
    ]


def test_markdown_shows_the_figures_that_lie_beside_it(tmp_path):
    v = view(make_results(seeds=1))
    assert "![Utility by round](figures/rounds.png)" in markdown_report(Contents(v, pictures=True))
    assert "figures/" not in markdown_report(Contents(v))


def test_long_captions_are_whole_in_every_form():
    table = who_pays_table(view(make_results(seeds=1)))
    for text in (as_text(table), as_markdown(table)):
        assert "of the private runs with the same seed." in text


def test_figures_stand_level_in_the_terminal_whatever_signs_follow():
    column = [
        Item("81.62", 81.62, bold=True),
        Item("9.50", 9.5, mark="≈"),
        Item("impossible", mark="[1]"),
        Item("69.14", 69.14),
    ]
    table = Table(key="k", title="T", header=("name", "b"), rows=tuple((Item("row"), item) for item in column))
    lines = as_text(table).splitlines()[-4:]
    assert len({line.index(".") for line in lines if "." in line}) == 1
    assert lines[2].endswith("impossible [1]")
    assert lines[3].endswith("69.14")


def test_a_wide_table_is_split_for_the_terminal_with_its_row_names():
    row = (Item("row"), *(Item(digit * 20) for digit in "123"))
    table = Table(key="k", title="T", header=("name", *"bcd"), rows=(row,))
    text = as_text(table, 60)
    assert max(len(line) for line in text.splitlines()) <= 60
    assert text.count("row") == 2
    assert as_text(table).count("row") == 1


def test_a_wide_table_is_split_between_mechanisms_and_then_evenly():
    heads = [f"{mechanism}\nε max {high}" for mechanism in ("gaussian", "laplace") for high in (1, 2, 3, 4)]
    table = Table(
        key="t",
        title="a title of some words that is longer than forty letters are",
        header=("algorithm", *heads),
        rows=((Item("DPSGD"), *[Item("12.34 ± 5.67")] * 8),),
        notes=("a note of some words that is longer than forty letters",),
    )

    def blocks(width):
        lines = [line.split() for line in as_text(table, width).splitlines()]
        return [words[1:] for words in lines if words[:1] == ["algorithm"]]

    assert blocks(200) == [["gaussian"] * 4 + ["laplace"] * 4]
    assert blocks(80) == [["gaussian"] * 4, ["laplace"] * 4]  # six would fit
    assert blocks(60) == [["gaussian"] * 2] * 2 + [["laplace"] * 2] * 2  # three would fit
    assert blocks(10) == [["gaussian"]] * 4 + [["laplace"]] * 4
    text = as_text(table, 40)
    assert text.splitlines()[:2] == ["a title of some words that is longer", "than forty letters are"]
    assert text.splitlines()[-2:] == ["a note of some words that is longer than", "forty letters"]


def test_numbers_for_reading():
    assert [labels.number(v) for v in (84.521, 0.5, 0.01234, 0.0, 123456.0, math.inf, math.nan)] == [
        "84.52",
        "0.50",
        "0.0123",
        "0.00",
        "1.23·10⁵",
        "∞",
        "–",
    ]
    assert [labels.number(v) for v in (-0.0, -1.5, -123456.0)] == ["0.00", "−1.50", "−1.23·10⁵"]
    assert [labels.signed(v) for v in (1.0, -1.0, 0.0, -math.inf)] == ["+1.00", "−1.00", "0.00", "−∞"]
    assert [labels.signed(v, 2) for v in (0.0012, -0.0012, 0.0748)] == ["0.00", "0.00", "+0.07"]
    assert [labels.p_value(p) for p in (0.03125, 0.00001, math.nan)] == ["0.031", "<0.0001", "–"]


def test_coordinates_in_words():
    assert labels.coordinates({"privacy.mechanism": "gaussian", "privacy.epsilon.high": 3.0}) == "gaussian, ε max 3"
    assert labels.axis_value({"name": "gaussian", "composition": "linear"}) == "gaussian (composition linear)"
    assert labels.axis_value({"kind": "pca", "components": 50}) == "pca (components 50)"
    assert labels.coordinate("federation.rounds", 50) == "rounds 50"
    assert labels.coordinate("privacy.epsilon.high", 1) == labels.coordinate("privacy.epsilon.high", 1.0) == "ε max 1"
    assert labels.coordinate("privacy.epsilon", {"low": 0.5, "high": 3}) == "epsilon low 0.5, high 3"
    assert [labels.axis_value(v) for v in (-0.5, 1e-5, 1e38, 2.5e-7)] == ["−0.5", "10⁻⁵", "10³⁸", "2.5·10⁻⁷"]


def test_figures_that_stand_together_have_the_same_decimals():
    assert labels.span(-0.41, 0.0748) == "−0.41 to +0.07"
    assert labels.mean_std(0.0123, 0.5) == "0.0123 ± 0.5000"
    assert labels.mean_std(84.5, 0.0012) == "84.50 ± 0.00"
    small = view(make_results(("DPSGD", "WeiAvg"), seeds=2, metric=MSE, utility=lambda a, s, w: 0.05 + s / 1000))
    assert cell_texts(utility_tables(small)[0])["WeiAvg"] == ["0.0505 ± 0.0007"]
    assert [item.text for item in difference_table(small).rows[0][3:5]] == ["0.0000", "–"]


def test_a_power_of_ten_is_set_as_one_in_latex():
    assert labels.latex(labels.plain(1e-5)) == r"10\textsuperscript{$-$}\textsuperscript{5}"


def test_the_same_records_give_the_same_files(tmp_path):
    for name in ("one", "two"):
        write_report(make_results(seeds=2), tmp_path / name, ["html", "markdown", "csv", "latex", "parquet"])
    one, two = (
        sorted(p.relative_to(tmp_path / n) for p in (tmp_path / n).rglob("*") if p.is_file()) for n in ("one", "two")
    )
    assert one == two
    assert [p for p in one if (tmp_path / "one" / p).read_bytes() != (tmp_path / "two" / p).read_bytes()] == []


def test_an_unknown_format_is_one_clear_line(tmp_path):
    with pytest.raises(DpflbenchError, match=f"--format docx: unknown; allowed: {', '.join(FORMATS)}"):
        write_report(make_results(seeds=1), tmp_path, ["docx"])
