"""Cells of a table: what they are called, and what is wrong with the record of which."""

from record_factory import make_record

from dpflbench.catalogue import load
from dpflbench.judges.verify import verify
from dpflbench.report.view import view
from dpflbench.results.cells import Cell, Manifest
from dpflbench.results.store import Store
from dpflbench.results.titles import title

CELLS = [
    Cell({"privacy.mechanism": {"name": "gaussian"}, "privacy.epsilon.high": 6}, "DPSGD", 0, "a"),
    Cell({"privacy.mechanism": {"name": "laplace"}, "privacy.epsilon.high": 6}, "WeiAvg", 1, "b"),
    Cell({}, "DMLDP", 0, None, "impossible"),
    Cell({}, "FedSGD", 2, "c"),
    Cell({}, "FedSGD again", 2, "c"),
]


def test_runs_are_called_by_their_first_place_in_the_table():
    assert Manifest("suite", {}, CELLS).titles == {
        "a": "DPSGD (gaussian, ε max 6), seed 0",
        "b": "WeiAvg (laplace, ε max 6), seed 1",
        "c": "FedSGD, seed 2",
    }


def test_a_title_cannot_move_the_cursor_nor_go_on_for_ever():
    assert title("up\x1b[A", {"task.x": "a\nb"}) == "up\\u001b[A (a b)"
    assert len(title("x" * 1000, {}, 7)) == 60 + len(", seed 7")


def test_a_damaged_record_is_not_blamed_on_a_run_whose_id_is_a_part_of_its_name(tmp_path):
    store = Store(tmp_path)
    cells = [Cell({}, "DPSGD", seed, run) for seed, run in enumerate(("1", "11", "21"))]
    store.write_manifest(Manifest("suite", {}, cells))
    store.write(make_record("11", "DPSGD", 1, {}, 50.0))
    store.path("21").write_text("damaged")
    results = store.results()
    (group,) = view(results).groups.values()
    assert {o.run: o.status for o in group.endings} == {"1": "not run", "11": "done", "21": "unreadable"}
    findings = {f.run: f for f in verify(results, load())}
    assert findings["1"].missing
    assert "truncated or not JSON" in findings["21"].problems[0]
