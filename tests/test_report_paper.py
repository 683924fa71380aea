"""The paper's section: printed figures are the paper's, claims fall when the results say so."""

from dataclasses import replace

import pytest
import yaml
from record_factory import SUITE, make_results, put

from dpflbench import suite_reading as suites
from dpflbench.errors import SuiteError
from dpflbench.planning import plan_suite
from dpflbench.report.sections import section_contents
from dpflbench.report.view import view
from dpflbench.report.write import Contents
from dpflbench.results.record import MSE
from dpflbench_ma2024.claims import claim_table
from dpflbench_ma2024.claims import verdicts as verdicts_of
from dpflbench_ma2024.printed import deviations, printed, table_1, table_2

ALGORITHMS = ("FedSGD", "DPSGD", "DMLDP", "WeiAvg", "PFA", "PRIVATEFL", "DPFL-BCS", "PRIVATEFL-BCS")
MECHANISMS = {"privacy.mechanism": ["gaussian", "laplace"]}
BOTH = {**MECHANISMS, "privacy.epsilon.high": [1, 6], "task.partition.alpha": [0.5, 3.0]}


def as_claimed(algorithm, seed, where):
    """A world in which every claim of the paper that can be tested holds."""
    laplace = where.get("privacy.mechanism") == "laplace"
    high, alpha = where.get("privacy.epsilon.high", 3), where.get("task.partition.alpha", 3.0)
    skew = 5.0 if alpha < 1 else 0.0
    gain = high / 2 if algorithm in ("DPFL-BCS", "WeiAvg", "PFA") else 0.0
    level = {
        "FedSGD": 92.0,
        "DPSGD": 40.0,
        "DMLDP": 35.0,
        "WeiAvg": 60.0,
        "PFA": 55.0,
        "PRIVATEFL": 41.0,
        "DPFL-BCS": 75.0,
        "PRIVATEFL-BCS": 70.0,
    }[algorithm]
    if algorithm in ("WeiAvg", "PFA") and alpha < 1:
        level -= 24.0
    if laplace:
        level -= {"FedSGD": 0.0, "DMLDP": 0.0, "PRIVATEFL": 8.0}.get(algorithm, 6.0)
    return level + gain - skew + seed / 10


def verdicts(**options):
    return [v.word for v in verdicts_of(view(make_results(**options)))]


def test_the_printed_tables_are_complete_and_spot_checks_agree():
    paper = printed()
    assert len(paper["claims"]) == 8
    assert {m: {a: len(v) for a, v in rows.items()} for m, rows in paper["table1"].items()} == {
        m: {"PRIVATEFL": 5, "PRIVATEFL-BCS": 5} for m in ("gaussian", "laplace")
    }
    assert paper["table1"]["gaussian"]["PRIVATEFL-BCS"]["mnist"] == [91.84, 0.53]
    assert paper["table1"]["laplace"]["PRIVATEFL"]["femnist"] == [5.08, 0.47]
    assert paper["table2"]["fashion_mnist"]["laplace"] == {
        "rho_min": 0.962,
        "gamma": 144.688,
        "smoothness": 406.756,
        "strong_convexity": 200.645,
    }
    assert len(paper["table2"]) == 5


def test_nothing_of_the_paper_is_shown_unless_asked_for():
    assert section_contents(view(make_results())) == []
    assert not any("paper" in t.title for t in Contents(view(make_results())).tables)


def test_table_1_stands_beside_ours():
    asked = {"sections": [{"name": "ma2024", "show": "table1"}]}
    tables = section_contents(view(make_results(("PRIVATEFL", "PRIVATEFL-BCS"), seeds=2, report=asked)))
    assert [t.key for t in tables] == ["ma2024-table1", "ma2024-claims"]
    assert [[e.text for e in row[1:]] for row in tables[0].rows] == [
        ["PRIVATEFL", "accuracy (%) ↑", "22.95 ± 0.77", "78.05 ± 0.07", "+55.10"],
        ["PRIVATEFL-BCS", "accuracy (%) ↑", "91.84 ± 0.53", "85.05 ± 0.07", "−6.79"],
    ]
    assert "Differs from the paper: task.model: softmax, the paper has mnist_cnn." in tables[0].notes


def test_printed_values_stand_only_beside_the_heterogeneity_they_are_for():
    results = make_results(("PRIVATEFL",), seeds=1, axes={"task.partition.alpha": [0.5, 3.0]})
    assert [row[0].text for row in table_1(view(results)).rows] == ["alpha 3"]


def test_table_2_takes_the_constants_from_the_notes():
    notes = [{"stage": 1}, {"stage": 2, "rho_min": 1.0, "gamma": 200.0, "smoothness": 5.0, "strong_convexity": 0.2}]
    table = table_2(view(make_results(("DPFL-BCS",), seeds=2, notes=notes)))
    (row,) = table.rows
    assert [e.text for e in row[2:]] == ["1.063", "1.000", "1.960", "200.000", "5.514", "5.000", "4.986", "0.200"]


def test_a_setting_as_printed_has_no_deviation():
    suite = SUITE
    for path, value in {**printed()["settings"]["common"], **printed()["settings"]["mnist"]}.items():
        suite = put(suite, path, value)
    v = view(make_results(suite=put(suite, "privacy.clip", {"gaussian": 20, "laplace": 20.0})))
    assert deviations(v, v.columns[0]) == {}
    assert any("as printed" in note for note in claim_table(v).notes)


def test_a_report_of_version_0_1_still_gets_its_paper():
    (table,) = section_contents(view(make_results(report={"paper": "claims"})))
    assert (table.key, len(table.rows)) == ("ma2024-claims", 8)
    assert view(make_results(report={"paper": None})).report.sections == []


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"name": "ma2024", "show": "claim"}, "show: found 'claim'; did you mean 'claims'?"),
        ("ma2042", "unknown section 'ma2042'; did you mean 'ma2024'?"),
    ],
)
def test_a_section_that_cannot_be_made_stops_a_plan_and_is_a_note_in_a_report(asked, why, tmp_path, tiny, catalogue):
    (note,) = section_contents(view(make_results(report={"sections": [asked]})), catalogue)
    assert note.rows == ()
    assert note.notes[0].startswith("not shown: report.sections[0]")
    assert note.notes[0].endswith(why)
    (tmp_path / "s.yaml").write_text(yaml.safe_dump({**tiny, "report": {"sections": [asked]}}))
    with pytest.raises(SuiteError) as caught:
        plan_suite(suites.load(tmp_path / "s.yaml"), catalogue, None)
    assert why in str(caught.value)


def test_in_a_world_as_claimed_every_testable_claim_is_held():
    found = verdicts_of(view(make_results(ALGORITHMS, seeds=3, axes=BOTH, utility=as_claimed)))
    assert [v.word for v in found] == ["held"] * 7 + ["not testable"], [v.evidence for v in found]


def test_each_claim_falls_when_its_own_results_turn_round():
    def turned(which):
        def utility(algorithm, seed, where):
            value = as_claimed(algorithm, seed, where)
            laplace = where["privacy.mechanism"] == "laplace"
            change = {
                1: 30.0 if algorithm == "WeiAvg" else 0,
                2: 20.0 if laplace and algorithm != "FedSGD" else 0,
                3: -60.0 if algorithm == "PFA" else 0,
                4: 20.0 if algorithm == "PRIVATEFL" and laplace else 0,
                5: -50.0 if algorithm == "PRIVATEFL-BCS" else 0,
                6: 3.0 * where["privacy.epsilon.high"] if algorithm == "DPSGD" else 0,
                7: 12.0 if where["task.partition.alpha"] < 1 else 0,
            }
            return value + change[which]

        return verdicts(algorithms=ALGORITHMS, seeds=3, axes=BOTH, utility=utility)

    for which in range(1, 8):
        assert turned(which)[which - 1] == "not held", which


def test_without_the_axis_a_claim_about_it_is_not_testable():
    found = verdicts(algorithms=ALGORITHMS, seeds=3)
    assert [found[i] for i in (1, 5, 6, 7)] == ["not testable"] * 4


def test_pfa_on_resnet_refutes_the_last_claim():
    suite = put(SUITE, "task.model", {"name": "resnet20"})
    assert verdicts(algorithms=("PFA",), seeds=1, suite=suite)[7] == "not held"


def test_what_is_wrong_carries_no_claim_and_is_marked_beside_what_is_printed():
    def seen(axes):
        results = make_results(ALGORITHMS, seeds=3, axes=axes, utility=as_claimed)
        wrong = {c.run: "wrong" for c in results.manifest.cells if c.algorithm in ("DPFL-BCS", "PRIVATEFL")}
        return view(replace(results, marks=wrong))

    v = seen(BOTH)
    found = verdicts_of(v)
    assert [found[i].word for i in (0, 3, 4)] == ["not testable"] * 3
    assert not any("DPFL-BCS against" in one.evidence or "DPFL-BCS," in one.evidence for one in found)
    assert any("DPFL-BCS (wrong)" in note and "PRIVATEFL (wrong)" in note for note in claim_table(v).notes)
    assert {row[1].text: row[1].mark for row in table_1(seen({})).rows} == {"PRIVATEFL": "(wrong)", "PRIVATEFL-BCS": ""}


def test_claims_about_errors_go_the_other_way():
    def utility(algorithm, seed, where):
        return {"DPSGD": 30.0, "DPFL-BCS": 20.0}[algorithm] + seed

    better = verdicts(algorithms=("DPSGD", "DPFL-BCS"), seeds=2, utility=utility, metric=MSE)
    assert better[0] == "held"
    assert verdicts(algorithms=("DPSGD", "DPFL-BCS"), seeds=2, utility=utility)[0] == "not held"


def test_the_evidence_says_what_broke_a_claim_and_how_surely():
    def utility(algorithm, seed, where):
        ours = 0.02 * (seed - 1)  # differences of −1.02, −1.00 and −0.98: Student's half width is 4.303 * 0.02 / √3
        return {"DPSGD": 70.0, "WeiAvg": 80.0, "DPFL-BCS": 79.0 + ours}[algorithm] + seed / 10

    claim = verdicts_of(view(make_results(("DPSGD", "WeiAvg", "DPFL-BCS"), seeds=3, utility=utility)))[0]
    assert claim.evidence.startswith(
        "1 of 2 comparisons go the claimed way (1 with an interval off zero; of the others 1): "
        "DPFL-BCS against WeiAvg, all: −1.00 (−1.05 to −0.95)"
    )
    assert "9 of the ten panels" in claim.evidence


def test_sweeps_over_several_tasks_decide_claims_6_and_7():
    cases = {"Lending Club": {"task.dataset": "lending_club"}, "convex MNIST": {"task.dataset": "mnist"}}
    base = {**SUITE, "cases": cases}

    def flat(algorithm, seed, where):
        return 50.0 + seed / 10

    for axis, values, claim in (
        ("privacy.epsilon.high", [1, 2, 3, 4, 5, 6], 6),
        ("task.partition.alpha", [0.5, 1, 2, 3, 5, 8], 7),
    ):
        axes = {"case": list(cases), **MECHANISMS, axis: values}
        for utility, word in ((as_claimed, "held"), (flat, "not held")):
            v = view(make_results(ALGORITHMS, seeds=2, axes=axes, suite=base, utility=utility))
            verdict = verdicts_of(v)[claim - 1]
            assert verdict.word == word, verdict.evidence
        assert "convex MNIST" in verdict.evidence or "Lending Club" in verdict.evidence
        assert [deviations(v, c)["task.model"][1] for c in v.columns[:1]] == ["linear"]
