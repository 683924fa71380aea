"""The headline and what it rests on: who is crowned, who is not, what is left out, and that all forms agree."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
from record_factory import make_record, make_results

from dpflbench.report.chance import RULE, chance, learnt
from dpflbench.report.comparison import across, rank_matrix, ranked
from dpflbench.report.export import summary_csv
from dpflbench.report.headline import headline
from dpflbench.report.tables.differences import difference_table
from dpflbench.report.tables.utility import utility_tables
from dpflbench.report.tables.who_pays import who_pays_table
from dpflbench.report.view import AT_CHANCE, INCOMPLETE, view
from dpflbench.report.write import Contents, markdown_report, summary_table, write_report
from dpflbench.results.cells import Results
from dpflbench.results.record import ACCURACY, MSE

MECHANISMS = {"privacy.mechanism": ["gaussian", "laplace"]}
NOISE = {"DPSGD": 3.0, "DMLDP": 3.0, "WeiAvg": -2.0, "DPFL-BCS": 1.0}


def half_dead(seeds: int = 8, **options) -> Results:
    """DPFL-BCS leads by 2 points under Gaussian noise; under Laplace noise all are around a chance of 10 %."""

    def utility(algorithm, seed, where):
        if where["privacy.mechanism"] == "gaussian" or algorithm == "FedSGD":
            return {"FedSGD": 92.0, "DPSGD": 74.0, "WeiAvg": 84.0, "DPFL-BCS": 86.0}[algorithm] + seed / 10
        return 10.0 + NOISE[algorithm] * (-1) ** seed

    results = make_results(
        ("FedSGD", "DPSGD", "DMLDP", "WeiAvg", "DPFL-BCS"), seeds, MECHANISMS, utility=utility, **options
    )
    for record in results.records.values():
        record.facts["n_classes"] = 10
    return results


def ended_otherwise(results: Results, algorithm: str, seed: int, **change: object) -> Results:
    """The results with one record ended otherwise, or without it if nothing is said."""
    run = next(c.run for c in results.manifest.cells if c.algorithm == algorithm and c.seed == seed and c.run)
    rest = {k: r for k, r in results.records.items() if k != run}
    if change:
        rest[run] = make_record(run, algorithm, seed, results.records[run].config, np.nan, **change)
    return Results(results.manifest, rest)


# ---------------------------------------------------------------- one line a mechanism


def test_each_mechanism_has_its_line_and_dead_columns_dilute_nothing():
    gaussian, laplace = headline(view(half_dead()))
    assert (gaussian.mechanism, gaussian.winner) == ("gaussian", "DPFL-BCS")
    assert gaussian.sentences[:2] == (
        "DPFL-BCS is the best private algorithm, 2.00 points better than WeiAvg, the next one.",
        "Exact paired test over 8 seeds: p = 0.0078, Holm-corrected over 2 comparisons 0.016: significant at 0.05.",
    )
    assert laplace.winner == ""
    assert laplace.text == "laplace: No private algorithm beats chance, so nobody is ahead."


def test_the_mean_over_columns_and_the_wins_are_those_of_columns_that_are_compared():
    def utility(algorithm, seed, where):
        dead = where["privacy.epsilon.high"] == 1
        return (
            10.0 if dead else {"DPSGD": 70.0, "WeiAvg": 80.0, "DPFL-BCS": 82.0}[algorithm] + seed / 10 * len(algorithm)
        )

    axes = {"privacy.epsilon.high": [1, 3, 6]}
    results = make_results(("DPSGD", "WeiAvg", "DPFL-BCS"), 8, axes, utility=utility)
    for record in results.records.values():
        record.facts["n_classes"] = 10
    (line,) = headline(view(results))
    # over seeds 0 to 7 the lead is 2 + 0.1 * 2 * 3.5 = 2.70 in both live columns
    assert "on average over 2 columns, 2.70 points better than WeiAvg" in line.text
    assert "DPFL-BCS is best in 2 of 2 columns." in line.text
    assert line.sentences[-1] == "1 of 3 columns is left out: nobody beats chance there (ε max 1)."
    names, means, _ = rank_matrix(view(results))
    assert (names, means.shape) == (["DPSGD", "WeiAvg", "DPFL-BCS"], (2, 3))


def test_a_lead_that_the_seeds_do_not_bear_out_is_a_lead_and_no_crown():
    (line,) = headline(view(make_results(seeds=3)))
    assert line.winner == ""
    assert line.text.startswith("gaussian: DPFL-BCS leads, 2.00 points better than WeiAvg, the next one. With 3 seeds")
    assert "With 3 seeds nothing can be significant at 0.05." in line.text


def test_seeds_that_are_too_few_only_for_several_comparisons_are_said_to_be():
    (line,) = headline(view(make_results(seeds=6)))  # 2 / 64 for one comparison, 4 / 64 for two
    assert "With 6 seeds nothing can be significant at 0.05 after Holm's correction." in line.text


def test_a_lead_of_nothing_is_no_lead():
    (line,) = headline(view(make_results(("DPSGD", "WeiAvg"), seeds=2, utility=lambda a, s, w: 80.0 + s)))
    assert line.text.startswith(
        "gaussian: DPSGD and WeiAvg are level. With 2 seeds nothing can be significant at 0.05."
    )
    assert "0.00 points" not in line.text


def test_a_tiny_p_is_smaller_and_not_equal():
    def utility(algorithm, seed, where):
        return {"DPSGD": 70.0, "WeiAvg": 80.0 + seed / 10}[algorithm]

    (line,) = headline(view(make_results(("DPSGD", "WeiAvg"), seeds=16, utility=utility)))
    assert "p < 0.0001: significant" in line.text


def test_an_algorithm_alone_has_beaten_nobody():
    (line,) = headline(view(make_results(("FedSGD", "DPSGD"), seeds=2)))
    assert (line.winner, line.text) == ("", "gaussian: DPSGD is the only private algorithm that can be ranked.")


def test_the_headline_says_for_whom():
    results = make_results(("DPSGD", "WeiAvg"), seeds=8, n_clients=3, utility=lambda a, s, w: 80.0 + s + len(a))
    for record in results.records.values():
        better = {"DPSGD": [60.0, 70.0, 80.0], "WeiAvg": [60.5, 71.0, 83.0]}[record.algorithm]
        record.clients.update(
            epsilon=np.array([1.0, 2.0, 3.0]), utility_shared=np.array(better), uses=np.array([1, 3, 6])
        )
    (line,) = headline(view(results))
    assert line.sentences[2] == (
        "For whom: the third of clients with the strictest budgets gains 0.50 points against DPSGD on its data, "
        "the middle third 1.00, the loosest 3.00; of all participations the strictest third has 10 %, the loosest 60 %."
    )
    for record in results.records.values():
        record.clients["utility_shared"][1] -= 2 * (record.algorithm == "WeiAvg")
    (line,) = headline(view(results))
    assert "gains 0.50 points against DPSGD on its data, the middle third loses 1.00, the loosest 3.00;" in line.text


def test_a_gain_in_an_error_is_a_fall():
    results = make_results(("DPSGD", "WeiAvg"), seeds=2, metric=MSE, utility=lambda a, s, w: 20.0 - len(a) + s)
    (line,) = headline(view(results))
    assert "WeiAvg leads, 1.00 in mse better than DPSGD" in line.text
    assert "gains 1.00 in mse against DPSGD" in line.text


# ---------------------------------------------------------------- chance


def test_chance_is_the_best_model_without_features():
    record = next(iter(make_results(("DPSGD",), seeds=1).records.values()))
    assert chance([record]) == {}
    record.facts["n_classes"] = 4
    assert chance([record]) == {0: 25.0}
    record.facts["references"] = {"predict_the_majority": 31.0, "least_squares": 80.0}
    assert chance([record]) == {0: 31.0}
    record = next(iter(make_results(("DPSGD",), seeds=1, metric=MSE).records.values()))
    record.facts["references"] = {"predict_the_mean": 13.5, "least_squares": 10.0}
    assert chance([record]) == {0: 13.5}


@pytest.mark.parametrize(
    ("values", "alive"),
    [
        ([18.9], False),  # one seed has no interval: a tenth of the way from 10 to 100 is 9
        ([19.1], True),
        ([12.0, 12.0, 12.0], False),  # equal seeds have none either
        ([11.0, 12.0, 13.0], False),  # 2 ± 4.30 / √3 = 2 ± 2.48
        ([11.9, 12.0, 12.1], True),  # 2 ± 0.25
        ([45.0, 55.0], True),  # 40 ± 63, but more than a tenth of the way
        ([8.0, 7.9, 8.1], False),
    ],
)
def test_better_than_chance_is_more_than_the_spread_of_the_seeds(values, alive):
    assert learnt([dict(enumerate(values))], dict.fromkeys(range(3), 10.0), ACCURACY) == alive


def test_the_level_is_shared_by_the_algorithms_of_a_column():
    lucky, flat = {0: 11.0, 1: 12.0, 2: 13.0, 3: 12.0}, dict.fromkeys(range(4), 10.0)  # 2 ± 3.18 * 0.816 / 2 = 2 ± 1.30
    assert learnt([lucky], flat, ACCURACY)
    assert not learnt([lucky, *[{0: 9.0, 1: 9.5}] * 5], flat, ACCURACY)  # 0.05 / 6: 2 ± 6.23 * 0.41 = 2 ± 2.54


def test_an_error_is_better_than_chance_below_it_and_seeds_are_paired():
    mean = {0: 13.0, 1: 15.0}
    assert learnt([{0: 12.9, 1: 14.8}], mean, MSE) is False  # 0.15 ± 0.64
    assert learnt([{0: 12.0, 1: 14.01}], mean, MSE)  # 0.995 ± 0.064, although 12 to 14 is a wide spread
    assert learnt([{0: 15.0}], {}, MSE)  # nobody is doubted where nothing is known of chance


def test_a_dead_column_is_grey_named_and_without_a_winner_in_every_form(tmp_path):
    results = half_dead()
    v = view(results)
    assert list(v.left_out.values()) == [AT_CHANCE]
    table = utility_tables(v)[0]
    assert table.header[1:] == ("gaussian", "laplace\n(at chance)")
    by_name = {row[0].text: row[1:] for row in table.rows}
    assert [item.bold for item in by_name["DPFL-BCS"]] == [True, False]
    assert [item.grey for item in by_name["DPFL-BCS"]] == [False, True]
    assert RULE in table.notes
    assert not any(item.bold for row in difference_table(v).rows if "laplace" in row[0].text for item in row)
    rows = list(csv.DictReader(io.StringIO(summary_csv(v))))
    assert {r["left_out"] for r in rows if r["privacy.mechanism"] == "laplace"} == {AT_CHANCE}
    assert [r["algorithm"] for r in rows if r["best"] == "True"] == ["DPFL-BCS"]
    text, marked = summary_table(results), markdown_report(Contents(v))
    assert text.count(" *") - text.count("(or *)") == 1
    (setting, *_) = [p for p in write_report(results, tmp_path, ["latex"]) if "at chance" in p.read_text()]
    for form in (text, marked, setting.read_text()):
        assert "at chance" in form
    for line in headline(v):
        assert line.text in " ".join(text.split())  # wrapped at words


# ---------------------------------------------------------------- partial results


@pytest.mark.parametrize("change", [{}, {"status": "failed", "reason": "ValueError"}])
def test_nobody_is_crowned_while_a_run_is_missing_or_failed(change):
    results = ended_otherwise(make_results(seeds=8), "DPSGD", 3, **change)
    v = view(results)
    assert list(v.left_out.values()) == [INCOMPLETE]
    (line,) = headline(v)
    assert (line.winner, line.text) == ("", "gaussian: Nobody is ahead yet: 1 of 24 runs are missing or failed.")
    table = utility_tables(v)[0]
    assert not any(item.bold for row in table.rows for item in row)
    assert "not complete" in table.header[1]
    assert across(v) == {}


def test_a_run_that_diverged_is_an_outcome_and_others_may_win():
    v = view(ended_otherwise(make_results(seeds=8), "WeiAvg", 3, status="diverged", reason="loss is inf"))
    (line,) = headline(v)
    assert v.left_out == {}
    assert "DPFL-BCS is the best private algorithm, 12.00 points better than DPSGD" in line.text


# ---------------------------------------------------------------- marks


def test_what_is_marked_is_shown_with_its_mark_and_never_ranked_bold_or_crowned():
    plain = make_results(seeds=8)
    run = next(c.run for c in plain.manifest.cells if c.algorithm == "DPFL-BCS" and c.seed == 2)
    v = view(replace(plain, marks={run: "unverified"}))
    assert v.marks == {(v.columns[0].key, "DPFL-BCS"): "unverified"}
    assert [g.algorithm for g in ranked(v, v.columns[0])] == ["WeiAvg", "DPSGD"]
    table = utility_tables(v)[0]
    rows = {row[0].text: row[1] for row in table.rows}
    assert (rows["DPFL-BCS"].text, rows["DPFL-BCS"].mark, rows["DPFL-BCS"].bold) == (
        "86.35 ± 0.24",
        "(unverified)",
        False,
    )
    assert rows["WeiAvg"].bold
    (line,) = headline(v)
    assert line.winner == "WeiAvg"
    assert line.sentences[-1] == "Not ranked: DPFL-BCS (unverified)."
    found = {row[1].text: row for row in difference_table(v).rows}
    assert (found["DPFL-BCS"][1].mark, found["DPFL-BCS"][3].bold) == ("(unverified)", False)
    assert found["WeiAvg"][3].bold
    assert {row[1].text: row[1].mark for row in who_pays_table(v).rows}["DPFL-BCS"] == "(unverified)"
    marks = {r["algorithm"]: r["mark"] for r in csv.DictReader(io.StringIO(summary_csv(v)))}
    assert marks == {"FedSGD": "", "DPSGD": "", "WeiAvg": "", "DPFL-BCS": "unverified"}
    assert view(plain).marks == {}


def test_where_all_that_has_a_result_is_marked_none_can_be_ranked():
    plain = make_results(("FedSGD", "DPSGD"), seeds=2)
    (line,) = headline(view(replace(plain, marks={run: "wrong" for run, r in plain.records.items() if r.private})))
    assert line.sentences == (
        "No private algorithm can be ranked, so there is nothing to compare.",
        "Not ranked: DPSGD (wrong).",
    )


def test_why_stands_in_the_headline_where_every_run_has_its_two_numbers():
    results = make_results(seeds=2)
    assert not any("Why:" in line.text for line in headline(view(results)))
    numbers = {"DPFL-BCS": (0.97, 0.6), "WeiAvg": (0.34, 0.66)}
    for record in results.records.values():
        efficiency, coverage = numbers.get(record.algorithm, (0.1, 0.1))
        record.facts.update({"noise_efficiency": efficiency, "data_coverage": coverage})
    texts = [line.text for line in headline(view(results))]
    assert any("Why: noise efficiency 0.97 against 0.34, data coverage 0.60 against 0.66." in text for text in texts)
    for record in results.records.values():
        if record.algorithm == "DPFL-BCS":
            record.facts.update({"noise_efficiency": 0.0497, "data_coverage": 0.6604})
    (text,) = (line.text for line in headline(view(results)))
    said = "Why is not in the two numbers: noise efficiency 0.0497 against 0.34, data coverage 0.66 against 0.66."
    assert said in text  # less of both, as far as one sees
