"""Server code in a process of its own: equal to the bit where it is honest, blind where it is not."""

import pickle
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points

import numpy as np
import pytest
import torch
from harness import assembly_of, run_of
from hostile import spies
from places import KEY, place

from dpflbench.catalogue import GROUP, load
from dpflbench.errors import PluginError
from dpflbench.execution import apart as apart_module
from dpflbench.execution import sandbox
from dpflbench.execution.apart import possible
from dpflbench.execution.attempt import assembled, execute
from dpflbench.execution.wire import pack, unpack
from dpflbench.planning import make_run

pytestmark = pytest.mark.skipif(not possible(), reason="processes cannot be forked here")
APART = place(isolated=True)
shut_in = pytest.mark.skipif(not sandbox.abi(), reason="no Landlock in this kernel")


@pytest.fixture(scope="module")
def catalogue():
    """All that is installed, and the spies."""
    return load(points=[*entry_points(group=GROUP), EntryPoint("spies", "hostile.spies", GROUP)])


def run_with(body, catalogue, like=None, **parts):
    """A run composed of parts by name, with their parameters; with the noise of another run."""
    run = run_of(body, catalogue, "compose", **parts)
    return run if like is None else replace(run, id=like.id)


def ends(run, catalogue):
    """The final models of a run with its server code beside the data and apart."""
    return [execute(run, catalogue, where).facts["final_model"] for where in (place(), APART)]


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


@pytest.fixture
def plain(tiny, catalogue):
    """DPSGD, and where it ends."""
    run = run_of(tiny, catalogue, "DPSGD")
    return run, execute(run, catalogue, place()).facts["final_model"]


@pytest.mark.parametrize("spy", ["CollectsGarbage", "ReadsFrames"])
def test_an_aggregator_that_looks_around_finds_nothing_of_the_clients(tiny, catalogue, plain, spy):
    beside, apart = ends(run_with(tiny, catalogue, plain[0], aggregator=spy), catalogue)
    assert beside != plain[1]  # in one process it sees everything
    assert apart == plain[1]


@pytest.mark.parametrize("spy", ["Smuggles", "PacksAtOnce"])
def test_a_part_cannot_bring_data_along_from_where_it_was_made(tiny, catalogue, plain, spy):
    """Neither in its fields nor by how it is pickled: the other side makes its own."""
    execute(plain[0], catalogue, place())  # data is about
    run = assembled(run_with(tiny, catalogue, aggregator=spy), catalogue)
    assert pickle.loads(pickle.dumps(run.assembly.algorithm.aggregator)).taken  # it would have
    assert execute(replace(run, id=plain[0].id), catalogue, APART).facts["final_model"] == plain[1]


def test_a_noise_key_on_the_command_line_is_not_handed_on(tiny, catalogue, plain, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["dpflbench", "run", "--noise-key", KEY.hex()])
    apart_module._nursery.clear()  # one that is opened under that command line
    spy = run_with(tiny, catalogue, plain[0], aggregator={"name": "ReadsItsOrders", "key": KEY.hex()})
    beside, apart = ends(spy, catalogue)
    assert beside != plain[1]
    assert apart == plain[1]


def test_a_pinned_noise_key_is_not_handed_over(tiny, catalogue, monkeypatch):
    tiny["privacy"]["noise_key"] = KEY.hex()
    sent, real = [], apart_module.Link.ask_bytes
    monkeypatch.setattr(apart_module.Link, "ask_bytes", lambda self, asked: sent.append(asked) or real(self, asked))
    assert execute(run_of(tiny, catalogue, "DPSGD"), catalogue, APART).status == "done"
    assert len(sent) > 5
    assert not any(KEY.hex().encode() in asked or KEY in asked for asked in sent)


def test_what_a_transform_memorised_never_reaches_the_aggregator(tiny, catalogue):
    tiny["federation"]["rounds"] = 1
    spies.LEFT.clear()
    silent = run_with(tiny, catalogue, transform="Memorises")
    honest = execute(silent, catalogue, place()).facts["final_model"]
    assert len(spies.LEFT) > 0
    beside, apart = ends(run_with(tiny, catalogue, silent, transform="Memorises", aggregator="Remembers"), catalogue)
    spies.LEFT.clear()  # other tests look for what is left of samples
    assert beside != honest
    assert apart == honest


@shut_in
def test_the_noise_key_in_a_results_folder_cannot_be_read(tiny, catalogue, plain, tmp_path):
    (tmp_path / "noise-key.json").write_text("{}")
    spy = {"name": "ReadsTheKey", "folder": str(tmp_path)}
    beside, apart = ends(run_with(tiny, catalogue, plain[0], aggregator=spy), catalogue)
    assert beside != plain[1]
    assert apart == plain[1]


@shut_in
def test_nothing_can_be_written_and_no_other_process_looked_into(tiny, catalogue, plain, tmp_path):
    for spy in ({"name": "Writes", "path": str(tmp_path / "note")}, "ReadsItsParent"):
        run = run_with(tiny, catalogue, plain[0], aggregator=spy)
        assert execute(run, catalogue, APART).facts["final_model"] == plain[1], spy
    assert not (tmp_path / "note").exists()


def test_what_one_run_leaves_in_a_module_the_next_one_does_not_find(tiny, catalogue):
    run = run_with(tiny, catalogue, aggregator="Leaves")
    first, second = execute(run, catalogue, APART), execute(run, catalogue, APART)
    assert first.status == "done"
    assert first.digest == second.digest


def test_an_answer_that_would_run_code_is_refused(tiny, catalogue, tmp_path):
    record = execute(
        run_with(tiny, catalogue, aggregator={"name": "Forges", "path": str(tmp_path / "b")}), catalogue, APART
    )
    assert record.status == "failed"
    assert "Bomb cannot be handed over" in record.reason
    assert not (tmp_path / "b").exists()
    for forged in (pickle.dumps(spies.Bomb(str(tmp_path / "b"))), b"", b"\x80", pickle.dumps(np.float64)):
        with pytest.raises(PluginError, match="server code sent what is no plain data"):
            unpack(forged)
    assert not (tmp_path / "b").exists()


def test_server_code_that_ends_its_process_costs_its_run(tiny, catalogue):
    record = execute(run_with(tiny, catalogue, aggregator="Dies"), catalogue, APART)
    assert (record.status, "ended its own process" in record.reason) == ("failed", True)
    assert execute(run_of(tiny, catalogue, "DPSGD"), catalogue, APART).status == "done"


@pytest.mark.parametrize("where", [APART, place()], ids=["apart", "beside"])
def test_an_exception_of_server_code_keeps_its_text_file_and_line(tiny, catalogue, where):
    record = execute(run_with(tiny, catalogue, aggregator="Stumbles"), catalogue, where)
    assert record.status == "failed"
    assert "ZeroDivisionError: by hand (spies.py:" in record.reason
    assert "in aggregate)" in record.reason


@pytest.mark.parametrize("where", [APART, place()], ids=["apart", "beside"])
@pytest.mark.parametrize("what", ["setup.epsilon", "setup.budget", "setup.n_examples", "used", "left", "losses.client"])
def test_a_selector_that_writes_into_what_it_sees_is_stopped(tiny, catalogue, where, what):
    record = execute(run_with(tiny, catalogue, selector={"name": "WritesInto", "what": what}), catalogue, where)
    assert record.status == "failed"
    assert "read-only" in record.reason or "WRITEABLE" in record.reason
    assert "spies.py:" in record.reason


def test_weights_are_asked_for_without_the_rows(tiny, catalogue, plain):
    class Curious:
        def weights(self, cohort):
            return None if not hasattr(cohort, "values") else torch.zeros(len(cohort.clients))

    made = assembly_of(tiny, catalogue, "DPSGD")
    made = replace(made, algorithm=replace(made.algorithm, aggregator=Curious()))
    run = replace(make_run(made.config, made, made.task.dataset.digest(None)), assembly=made, id=plain[0].id)
    assert execute(run, catalogue, place()).facts["final_model"] == plain[1]


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
