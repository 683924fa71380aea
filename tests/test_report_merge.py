"""Merging: folders become one table where only declared axes differ, and are refused with what differs elsewhere."""

import dataclasses
import time

import numpy as np
import pytest
from record_factory import SUITE, make_results, put
from typer.testing import CliRunner

from dpflbench.cli import app
from dpflbench.errors import DpflbenchError
from dpflbench.report.merge import Folder, merge
from dpflbench.report.tables.utility import utility_tables
from dpflbench.report.view import view
from dpflbench.report.write import summary_table
from dpflbench.results.cells import Results
from dpflbench.results.record import dumps
from dpflbench.results.store import Store


def folders(*results: Results) -> list[Folder]:
    return [Folder(name, r) for name, r in zip("ABC", results, strict=False)]


def refused(*results: Results) -> list[str]:
    with pytest.raises(DpflbenchError) as e:
        merge(folders(*results))
    return str(e.value).splitlines()


def keep(root, results: Results) -> None:
    store = Store(root)
    store.write_manifest(results.manifest)
    for record in results.records.values():
        store.write(record)


def test_seeds_of_two_machines_become_one_table():
    whole = make_results(seeds=6)

    def part(seeds):
        cells = [c for c in whole.manifest.cells if c.seed in seeds]
        return Results(dataclasses.replace(whole.manifest, cells=cells), {c.run: whole.records[c.run] for c in cells})

    merged = merge(folders(part({0, 1}), part({2, 3, 4, 5})))
    assert utility_tables(view(merged))[0].rows == utility_tables(view(whole))[0].rows


def test_values_of_a_declared_axis_come_together():
    one, two = (make_results(seeds=2, axes={"privacy.epsilon.high": [v]}) for v in (1, 6))
    v = view(merge(folders(one, two)))
    assert [s.coordinates for s in v.columns] == [{"privacy.epsilon.high": 1}, {"privacy.epsilon.high": 6}]


def test_an_axis_of_one_folder_is_a_fixed_value_of_the_other():
    fixed = make_results(seeds=1, suite=put(SUITE, "privacy.epsilon.high", 2.0))
    v = view(merge(folders(make_results(seeds=1, axes={"privacy.epsilon.high": [1, 6]}), fixed)))
    assert [s.coordinates["privacy.epsilon.high"] for s in v.columns] == [1, 6, 2.0]
    assert len(v.groups) == 12


def test_a_name_and_its_mapping_are_one_coordinate():
    fixed = make_results(seeds=1, suite=put(SUITE, "privacy.mechanism", {"name": "gaussian"}), algorithms=("WeiAvg",))
    other = make_results(seeds=1, axes={"privacy.mechanism": ["gaussian", "laplace"]}, algorithms=("DPFL-BCS",))
    assert len(view(merge(folders(other, fixed))).columns) == 2


def test_what_differs_without_being_an_axis_is_named_with_both_values():
    other = make_results(seeds=1, suite=put(put(SUITE, "federation.rounds", 50), "privacy.clip", 2.0))
    lines = refused(make_results(seeds=1), other)
    assert "2 differences that no axis declares" in lines[0]
    assert lines[1:] == ["federation.rounds: 20.0 in A, 50.0 in B", "privacy.clip: 1.0 in A, 2.0 in B"]


def test_an_undeclared_mechanism_is_refused():
    laplace = put(SUITE, "privacy.mechanism", "laplace")
    lines = refused(make_results(("WeiAvg",), seeds=1), make_results(("WeiAvg",), seeds=1, suite=laplace))
    assert lines[1] == 'privacy.mechanism: "gaussian" in A, "laplace" in B'


def test_a_default_written_out_is_no_difference():
    one, two = make_results(seeds=1), make_results(seeds=1, suite=put(SUITE, "task.holdout", 0.1))
    for record in one.records.values():
        record.config["task"] = {**record.config["task"], "holdout": 0.1}
    assert len(merge(folders(one, two)).records) == 4


def test_what_follows_from_an_axis_is_no_difference():
    def half(mechanism):
        suite = put(SUITE, "privacy.clip", {"gaussian": 1.0, "laplace": 2.0})
        results = make_results(("WeiAvg",), seeds=1, axes={"privacy.mechanism": [mechanism]}, suite=suite)
        for record in results.records.values():
            record.config["privacy"] = {
                **record.config["privacy"],
                "clip": {"gaussian": 1.0, "laplace": 2.0}[mechanism],
            }
        return results

    assert len(view(merge(folders(half("gaussian"), half("laplace")))).columns) == 2


def test_one_label_for_two_parameter_sets_is_refused():
    one, two = make_results(("PFA",), seeds=1), make_results(("PFA",), seeds=1)
    for results, rank in ((one, 1), (two, 2)):
        for record in results.records.values():
            record.config["algorithm"] = {"name": "PFA", "rank": rank}
    assert refused(one, two)[1] == "algorithm PFA, rank: 1.0 in A, 2.0 in B"


def test_other_code_or_data_is_refused():
    one, two = make_results(seeds=1), make_results(seeds=1)
    for record in two.records.values():
        record.plugins["dpflbench"] = "0.2.0"
        record.facts["data_digest"] = "e" * 64
    lines = refused(one, two)
    assert [line.split(":")[0] for line in lines[1:]] == ['data of "mnist"', "source of dpflbench"]


def test_pieces_are_compared_algorithm_by_algorithm():
    def pieces(algorithms, **sources):
        results = make_results(algorithms, seeds=1)
        for record in results.records.values():
            record.plugins["transform"] = sources.get(record.algorithm, "identity")
        return results

    both, one = pieces(("DPSGD", "PFA"), PFA="shifts"), pieces(("DPSGD", "WeiAvg"))
    assert {r.algorithm for r in merge(folders(both, one)).records.values()} == {"DPSGD", "PFA", "WeiAvg"}
    lines = refused(both, pieces(("PFA",), PFA="other shifts"))
    assert lines[1:] == ["source of transform of PFA: shifts in A, other shifts in B"]


def test_folders_without_a_record_are_compared_by_their_suites():
    empty = [Results(make_results(seeds=1, suite=s).manifest, {}) for s in (SUITE, put(SUITE, "federation.rounds", 7))]
    assert refused(*empty)[1].startswith("federation.rounds: 20.0 in A, 7.0 in B")


def test_a_done_run_beats_a_failed_one_and_two_outcomes_are_told():
    one, two = make_results(("WeiAvg",), seeds=1), make_results(("WeiAvg",), seeds=1)
    run = next(iter(one.records))
    failed = Results(one.manifest, {run: dataclasses.replace(one.records[run], status="failed", reason="no memory")})
    assert merge(folders(failed, two)).records[run].status == "done"
    other = Results(two.manifest, {run: dataclasses.replace(two.records[run], final={"utility_global": 1.0})})
    merged = merge(folders(one, other))
    assert merged.records[run].final["utility_global"] == 84.0
    assert "different outcomes" in merged.problems[0].text
    assert "unreadable" not in summary_table(merged)  # it can be read
    assert f"several outcomes: run {run}: done in several folders" in " ".join(summary_table(merged).split())


@pytest.mark.parametrize(("marked", "shown"), [("A", True), ("B", False)])
def test_a_record_that_is_not_shown_leaves_no_mark_on_the_one_that_is(marked, shown):
    one, two = make_results(("WeiAvg",), seeds=1), make_results(("WeiAvg",), seeds=1)
    run = next(iter(one.records))
    both = [
        Folder(f.name, dataclasses.replace(f.results, marks={run: "wrong"} if f.name == marked else {}))
        for f in folders(one, two)
    ]
    assert bool(merge(both).marks) == shown
    gone = Folder("C", dataclasses.replace(two, records={}, marks={run: "wrong"}))  # it cannot be read there
    assert merge([both[1], gone]).marks == both[1].results.marks
    assert merge([Folder("A", dataclasses.replace(one, records={})), gone]).marks == {run: "wrong"}


# ---------------------------------------------------------------- the command


def test_the_command_writes_a_report_and_names_its_page(tmp_path):
    keep(tmp_path / "run", make_results(seeds=2))
    answer = CliRunner().invoke(app, ["report", str(tmp_path / "run"), "--format", "html", "--format", "markdown"])
    assert answer.exit_code == 0, answer.output
    assert "(wrong)" in answer.output  # these records are made up, and verification says so
    assert (tmp_path / "run" / "report" / "index.html").exists()
    assert not (tmp_path / "run" / "report" / "figures").exists()


def test_the_command_merges_folders_or_says_what_differs(tmp_path):
    keep(tmp_path / "a", make_results(seeds=1, axes={"privacy.epsilon.high": [1]}))
    keep(tmp_path / "b", make_results(seeds=1, axes={"privacy.epsilon.high": [6]}))
    keep(
        tmp_path / "c",
        make_results(seeds=1, suite=put(SUITE, "federation.cohort", 4), axes={"privacy.epsilon.high": [6]}),
    )
    merged = CliRunner().invoke(
        app, ["report", *(str(tmp_path / n) for n in "ab"), "-o", str(tmp_path / "out"), "-f", "csv", "-q"]
    )
    assert merged.exit_code == 0, merged.output
    assert len((tmp_path / "out" / "summary.csv").read_text().splitlines()) == 1 + 2 * 4
    refusal = CliRunner().invoke(app, ["report", *(str(tmp_path / n) for n in "ac"), "-o", str(tmp_path / "out")])
    assert isinstance(refusal.exception, DpflbenchError)
    assert "federation.cohort: 3.0 in" in str(refusal.exception)


def test_the_command_refuses_what_is_no_results_folder_or_format(tmp_path):
    nowhere = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert isinstance(nowhere.exception, DpflbenchError)
    assert "not a results folder" in str(nowhere.exception)
    assert "--format docx" in str(CliRunner().invoke(app, ["report", str(tmp_path), "-f", "docx"]).exception)


def test_a_thousand_records_take_under_ten_seconds(tmp_path):
    results = make_results(
        ("FedSGD", "DPSGD", "WeiAvg", "PFA", "PRIVATEFL", "DPFL-BCS", "PRIVATEFL-BCS"),
        seeds=21,
        n_clients=100,
        axes={"privacy.epsilon.high": [1, 2, 4, 6], "task.partition.alpha": [0.5, 3.0]},
    )
    assert len(results.records) == 2 * 21 + 8 * 6 * 21 == 1050
    events = {
        "client": np.arange(4000) % 100,
        "round": np.repeat(np.arange(200), 20),
        "scale": np.ones(4000),
        "cost": np.ones((4000, 1)),
    }
    store = Store(tmp_path)
    store.write_manifest(results.manifest)
    (tmp_path / "records").mkdir()
    for record in results.records.values():
        record.events.update(events if record.private else {})
        store.path(record.id).write_text(dumps(record))  # without waiting for the disk a thousand times
    begun, own = time.perf_counter(), time.process_time()
    answer = CliRunner().invoke(app, ["report", str(tmp_path), "-q"])
    own = time.process_time() - own
    assert answer.exit_code == 0, answer.output
    # processor time, so that a busy machine does not fail the test
    assert own < 10, f"{own:.1f} s of the processor, {time.perf_counter() - begun:.1f} s on the clock"


def with_cases(**cases):
    """Results of a suite with those cases, each with its own model."""
    said = {name: {"task.model": model} for name, model in cases.items()}
    whole = make_results(seeds=1, axes={"case": list(cases)}, suite={**SUITE, "cases": said})
    models = {c.run: cases[c.coordinates["case"]] for c in whole.manifest.cells}
    records = {
        run: dataclasses.replace(r, config=put(r.config, "task.model", models[run])) for run, r in whole.records.items()
    }
    return dataclasses.replace(whole, records=records)


def test_cases_of_two_folders_become_one_table_and_must_mean_the_same():
    v = view(merge(folders(with_cases(small="linear", large="cnn"), with_cases(huge="resnet"))))
    assert [v.lookup(c, "task.model") for c in v.columns] == ["linear", "cnn", "resnet"]
    assert v.suite["axes"] == {}
    assert "case small: not the same in A and B" in refused(with_cases(small="linear"), with_cases(small="cnn"))
