"""Server code in a process of its own: equal to the bit where it is honest, blind where it is not."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from harness import assembly_of, record_of, run_of
from hostile import spies
from places import place

from dpflbench.errors import PluginError
from dpflbench.execution import sandbox
from dpflbench.execution.apart import possible
from dpflbench.execution.attempt import execute
from dpflbench.execution.wire import pack, unpack
from dpflbench.planning import make_run

pytestmark = pytest.mark.skipif(not possible(), reason="processes cannot be forked here")
APART = place(isolated=True)
shut_in = pytest.mark.skipif(not sandbox.abi(), reason="no Landlock in this kernel")


def run_with(body, catalogue, **parts):
    """A run of DPSGD with other parts."""
    made = assembly_of(body, catalogue, "DPSGD")
    made = replace(made, algorithm=replace(made.algorithm, **parts))
    return replace(make_run(made.config, made, made.task.dataset.digest(None)), assembly=made)


@pytest.mark.parametrize(
    ("use", "given"),
    [
        ("FedSGD", {}),
        ("DPSGD", {}),
        ("WeiAvg", {}),
        ("PFA", {}),
        ("PRIVATEFL", {}),
        ("DPFL-BCS", {"probe_rounds": 2}),
        ("Robust-HDP", {}),
        ("Power-of-choice", {}),
        ("Uniform-minimum", {}),
        ("IDP-clipping", {}),
    ],
)
def test_every_algorithm_has_the_same_record_to_the_bit_with_its_server_code_apart(tiny, catalogue, use, given):
    run = run_of(tiny, catalogue, use, **given)
    beside, apart = execute(run, catalogue, place()), execute(run, catalogue, APART)
    assert beside.status == "done", beside.reason
    assert apart.digest == beside.digest
    assert beside.measured["isolation"] == "none"
    assert apart.measured["isolation"].startswith("process")


@pytest.mark.parametrize("spy", [spies.CollectsGarbage(), spies.ReadsFrames()], ids=lambda s: type(s).__name__)
def test_an_aggregator_that_looks_around_finds_nothing_of_the_clients(tiny, catalogue, spy):
    honest = record_of(tiny, catalogue, "DPSGD")
    run = replace(run_with(tiny, catalogue, aggregator=spy), id=run_of(tiny, catalogue, "DPSGD").id)  # the same noise
    beside, apart = execute(run, catalogue, place()), execute(run, catalogue, APART)
    assert beside.facts["final_model"] != honest.facts["final_model"]  # in one process it sees everything
    assert apart.facts["final_model"] == honest.facts["final_model"]


def test_what_a_transform_memorised_never_reaches_the_aggregator(tiny, catalogue):
    spies.LEFT.clear()
    silent = run_with(tiny, catalogue, transform=spies.Memorises())
    run = replace(run_with(tiny, catalogue, transform=spies.Memorises(), aggregator=spies.Remembers()), id=silent.id)
    honest = execute(silent, catalogue, place())
    assert len(spies.LEFT) > 0
    assert execute(run, catalogue, place()).facts["final_model"] != honest.facts["final_model"]
    assert execute(run, catalogue, APART).facts["final_model"] == honest.facts["final_model"]


@shut_in
def test_the_noise_key_in_a_results_folder_cannot_be_read(tiny, catalogue, tmp_path):
    (tmp_path / "noise-key.json").write_text("{}")
    honest = record_of(tiny, catalogue, "DPSGD")
    run = run_with(tiny, catalogue, aggregator=spies.ReadsTheKey(str(tmp_path)))
    run = replace(run, id=run_of(tiny, catalogue, "DPSGD").id)
    assert execute(run, catalogue, place()).facts["final_model"] != honest.facts["final_model"]
    assert execute(run, catalogue, APART).facts["final_model"] == honest.facts["final_model"]


@shut_in
def test_nothing_can_be_written_and_no_other_process_looked_into(tiny, catalogue, tmp_path):
    honest = record_of(tiny, catalogue, "DPSGD")
    for spy in (spies.Writes(str(tmp_path / "note")), spies.ReadsItsParent()):
        run = replace(run_with(tiny, catalogue, aggregator=spy), id=run_of(tiny, catalogue, "DPSGD").id)
        assert execute(run, catalogue, APART).facts["final_model"] == honest.facts["final_model"], spy
    assert not (tmp_path / "note").exists()


def test_what_one_run_leaves_in_a_module_the_next_one_does_not_find(tiny, catalogue):
    run = run_with(tiny, catalogue, aggregator=spies.Leaves())
    first, second = execute(run, catalogue, APART), execute(run, catalogue, APART)
    assert first.status == "done"
    assert first.digest == second.digest


def test_an_answer_that_would_run_code_is_refused(tiny, catalogue, tmp_path):
    record = execute(run_with(tiny, catalogue, aggregator=spies.Forges(str(tmp_path / "b"))), catalogue, APART)
    assert record.status == "failed"
    assert "Bomb cannot be handed over" in record.reason
    assert not (tmp_path / "b").exists()
    for forged in (pickle.dumps(spies.Bomb(str(tmp_path / "b"))), b"", b"\x80", pickle.dumps(np.float64)):
        with pytest.raises(PluginError, match="server code sent what is no plain data"):
            unpack(forged)
    assert not (tmp_path / "b").exists()


def test_server_code_that_ends_its_process_costs_its_run(tiny, catalogue):
    record = execute(run_with(tiny, catalogue, aggregator=spies.Dies()), catalogue, APART)
    assert (record.status, "ended its own process" in record.reason) == ("failed", True)
    assert execute(run_of(tiny, catalogue, "DPSGD"), catalogue, APART).status == "done"


@pytest.mark.parametrize("where", [APART, place()], ids=["apart", "beside"])
def test_an_exception_of_server_code_keeps_its_text_file_and_line(tiny, catalogue, where):
    record = execute(run_with(tiny, catalogue, aggregator=spies.Stumbles()), catalogue, where)
    assert record.status == "failed"
    assert "ZeroDivisionError: by hand (spies.py:" in record.reason
    assert "in aggregate)" in record.reason


@pytest.mark.parametrize("where", [APART, place()], ids=["apart", "beside"])
@pytest.mark.parametrize("name", ["setup.epsilon", "setup.budget", "setup.n_examples", "used", "left", "losses.client"])
def test_a_selector_that_writes_into_what_it_sees_is_stopped(tiny, catalogue, where, name):
    record = execute(run_with(tiny, catalogue, selector=spies.WritesInto(name)), catalogue, where)
    assert record.status == "failed"
    assert "read-only" in record.reason or "WRITEABLE" in record.reason
    assert "spies.py:" in record.reason


def test_weights_are_asked_for_without_the_rows(tiny, catalogue):
    class Curious:
        def weights(self, cohort):
            return None if not hasattr(cohort, "values") else torch.zeros(len(cohort.clients))

    run = replace(run_with(tiny, catalogue, aggregator=Curious()), id=run_of(tiny, catalogue, "DPSGD").id)
    assert (
        execute(run, catalogue, place()).facts["final_model"]
        == record_of(tiny, catalogue, "DPSGD").facts["final_model"]
    )


def test_plain_data_travels_and_comes_back_as_it_was():
    sent = {
        "a": [1, 2.5, None, "x", True],
        1: (np.arange(6).reshape(2, 3), torch.ones(2, dtype=torch.float64)),
        "empty": np.zeros((0, 4)),
        "scalar": np.float32(0.5),
    }
    got = unpack(pack(sent))
    assert got["a"] == sent["a"]
    np.testing.assert_array_equal(got[1][0], sent[1][0])
    assert torch.equal(got[1][1], sent[1][1])
    assert got["empty"].shape == (0, 4)
    assert got["scalar"] == 0.5
    with pytest.raises(PluginError, match=r"state.x\[0\]: set cannot be handed over; allowed: None, numbers"):
        pack({"x": [{1, 2}]})
    with pytest.raises(PluginError, match="an array of object cannot be handed over"):
        pack(np.array([object()]))
