"""Noise hangs on a key of a results folder: secret, kept, replayed to the bit, never shared between runs."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from harness import record_of, run_of, world_of
from places import KEY, place
from suite_runs import carry_out, planned_of

from dpflbench.errors import DpflbenchError, SuiteError
from dpflbench.execution.attempt import execute
from dpflbench.execution.prepare import Place
from dpflbench.federation.simulate import initial_state, rounds
from dpflbench.randomness import Streams
from dpflbench.report.noise import noise_notes, predictable, strangers
from dpflbench.report.view import view
from dpflbench.results.cells import Cell, Manifest, Results
from dpflbench.results.store import Store
from dpflbench_algorithms.mechanisms import Gaussian


@dataclass(frozen=True)
class Listening:
    """The mean, and every row it saw."""

    def init(self, setup):
        return []

    def aggregate(self, updates, state):
        return updates.values.mean(0), [*state, updates.values.clone()]


def messages(body, catalogue, use="DPSGD", **changes):
    """The rows of every round."""
    prepared = world_of(body, catalogue, use, algorithm={"aggregator": Listening()}, **changes)
    *_, last = rounds(prepared.world, initial_state(prepared.world, prepared.theta, prepared.phi), prepared.ledger)
    return torch.stack(last.aggregator).double().numpy()


@dataclass(frozen=True)
class Guesses:
    """The attack of old: redraw the noise from every small seed, and subtract it where that leaves less than half: by
    chance one of so many guesses leaves a little less, the right one would leave next to nothing.
    """

    def init(self, setup):
        return None

    def aggregate(self, updates, state):
        values, scale = updates.values.double(), updates.variance.double().sqrt()[:, None]
        best, half = values, values.norm() / 2
        for seed in range(100):
            for rng in (Streams(seed).torch("noise", updates.round), torch.Generator().manual_seed(seed)):
                cleaned = values - scale * torch.randn(values.shape, generator=rng, dtype=torch.float32)
                best = cleaned if cleaned.norm() < half else best
            for secret in (bytes(16), seed.to_bytes(16, "big")):
                draws = Streams(seed, secret).draws("noise", updates.round)
                noise = draws.noised(np.zeros(values.shape), scale[:, 0].numpy(), Gaussian.law)
                cleaned = values - torch.from_numpy(noise)
                best = cleaned if cleaned.norm() < half else best
        return best.mean(0).float(), state


def test_an_aggregator_that_tries_every_small_seed_is_the_plain_mean(tiny, catalogue):
    tiny["privacy"]["epsilon"] = 0.1  # noise far longer than any gradient: a right guess would show
    end = {}
    for name, algorithm in (("mean", {}), ("guesses", {"aggregator": Guesses()})):
        prepared = world_of(tiny, catalogue, "DPSGD", algorithm=algorithm)
        *_, last = rounds(prepared.world, initial_state(prepared.world, prepared.theta, prepared.phi), prepared.ledger)
        end[name] = last.theta
    torch.testing.assert_close(end["mean"], end["guesses"], rtol=1e-5, atol=1e-5)


def test_two_runs_of_a_seed_share_no_noise_unless_it_is_asked_for(tiny, catalogue):
    """Round 0 starts from one model, so equal noise would leave the difference of two gradients that are equal."""
    prepared = world_of(tiny, catalogue, "DPSGD")
    assert prepared.world.streams.run != ""
    apart = messages(tiny, catalogue, "DPSGD")[0] - messages(tiny, catalogue, "WeiAvg")[0]
    tiny["privacy"]["paired_noise"] = True
    shared = messages(tiny, catalogue, "DPSGD")[0] - messages(tiny, catalogue, "WeiAvg")[0]
    assert np.abs(shared).max() == 0.0
    assert (apart != 0.0).mean() > 0.9  # on one grid two draws are equal now and then
    assert record_of(tiny, catalogue, "DPSGD").facts["noise"]["run"] == ""


def test_another_column_of_a_seed_has_other_noise(tiny, catalogue):
    one = messages(tiny, catalogue)[0]
    tiny["federation"]["lr"] = {"initial": 0.05}  # known to everybody, and without influence on the first messages
    other = messages(tiny, catalogue)[0]
    assert (one != other).mean() > 0.9  # on one grid two draws are equal now and then


def test_a_results_folder_draws_a_key_once_and_its_records_replay_to_the_bit(tiny, tmp_path, catalogue):
    tiny["algorithms"] = ["DPSGD"]
    stores = [Store(tmp_path / name) for name in ("a", "b")]
    keys = [store.noise_key() for store in stores]
    assert keys[0] != keys[1]
    assert [origin for _, origin in keys] == ["drawn", "drawn"]
    assert stores[0].noise_key() == keys[0]  # kept
    assert (stores[0].root / "noise-key.json").stat().st_mode & 0o077 == 0
    run = run_of(tiny, catalogue, "DPSGD")
    records = [execute(run, catalogue, Place(noise_key=key)) for key, _ in keys]
    assert records[0].facts["final_model"] != records[1].facts["final_model"]
    noise = records[0].facts["noise"]
    assert noise == {"key": keys[0][0].hex(), "run": run.id, "origin": "drawn"}
    again = execute(run, catalogue, Place(noise_key=bytes.fromhex(noise["key"])))
    assert again.digest == records[0].digest


def test_a_folder_refuses_another_key_and_says_what_to_do(tmp_path):
    store = Store(tmp_path / "r")
    assert store.noise_key(KEY) == (KEY, "given")
    assert store.noise_key() == (KEY, "given")
    with pytest.raises(DpflbenchError, match=r"^--noise-key: .* has another key already; choose another folder by"):
        store.noise_key(bytes(16))
    for damaged in ("", "{}", '{"key": "00"}', json.dumps({"key": KEY.hex(), "origin": "found"})):
        (store.root / "noise-key.json").write_text(damaged)
        with pytest.raises(DpflbenchError, match=r"noise-key.json"):
            store.noise_key()


def test_a_run_without_privacy_has_no_key_in_its_record(tiny, catalogue):
    assert record_of(tiny, catalogue, "FedSGD").facts["noise"] == {}


def test_a_pinned_key_makes_equal_records_everywhere_and_is_called_predictable(tiny, catalogue):
    tiny["privacy"]["noise_key"] = KEY.hex()
    run = run_of(tiny, catalogue, "DPSGD")
    one, two = (execute(run, catalogue, Place()) for _ in range(2))
    assert one.digest == two.digest
    assert one.facts["noise"]["origin"] == "pinned"
    assert predictable(one)
    assert one.facts["noise"]["run"] != run.id  # numbers can be compared across versions


def report_of(record):
    manifest = Manifest("m", {"axes": {}, "algorithms": [], "report": {}}, (Cell({}, "A", 0, record.id),))
    return view(Results(manifest, {record.id: record}))


def test_a_report_says_what_pairing_is_left_and_which_noise_could_be_known(tiny, catalogue):
    run = run_of(tiny, catalogue, "DPSGD")
    drawn = report_of(execute(run, catalogue, Place()))
    assert [line.split(":")[0] for line in noise_notes(drawn)] == ["Paired by seed"]
    given = report_of(execute(run, catalogue, place(noise_origin="given")))
    assert [line.split(":")[0] for line in noise_notes(given)] == ["Paired by seed", "Predictable noise"]
    tiny["privacy"] |= {"noise_key": KEY.hex(), "paired_noise": True}
    shared = report_of(record_of(tiny, catalogue, "DPSGD"))
    assert [line.split(":")[0] for line in noise_notes(shared)] == ["Paired noise", "Predictable noise"]


def test_server_code_that_is_not_built_in_is_known_by_its_distribution(tiny, catalogue):
    record = record_of(tiny, catalogue, "DPSGD")
    assert strangers(record) == []
    record.plugins["aggregator median"] = "their-package 1.2 0123456789abcdef"
    assert strangers(record) == ["their-package 1.2"]


def test_a_key_that_is_none_is_refused_at_plan_time(tiny, tmp_path, catalogue):
    tiny["privacy"]["noise_key"] = "1234"
    with pytest.raises(SuiteError, match=r"privacy.*noise_key: '1234' is no noise key; allowed: 32 to 128"):
        planned_of(tiny, tmp_path, catalogue)


def test_a_delta_that_a_key_cannot_hold_is_refused_at_plan_time(tiny, tmp_path, catalogue):
    tiny["privacy"]["delta"] = 1e-20
    with pytest.raises(SuiteError, match=r"delta: from 1e-20 on; allowed: from 2\^-64 = 5.4e-20 on"):
        planned_of(tiny, tmp_path, catalogue)
    tiny["privacy"]["delta"] = 6e-20
    planned_of(tiny, tmp_path, catalogue)


def test_a_file_that_changes_between_plan_and_run_costs_its_runs_and_lends_no_record_old_data(
    tiny, tmp_path, catalogue
):
    """One process, one path, two contents: each record has the digest and the data of one of them."""
    path = tmp_path / "mine.npz"
    given = np.load(tiny["task"]["dataset"]["path"])
    arrays = {name: given[name] for name in given.files}
    np.savez(path, **arrays)
    tiny["task"]["dataset"] = {"name": "npz", "path": str(path)}
    before = run_of(tiny, catalogue, "FedSGD")
    old = execute(before, catalogue, place())
    np.savez(path, **{**arrays, "y_train": arrays["y_train"][::-1].copy()})
    late = execute(before, catalogue, place())
    assert (late.status, late.reason) == (
        "failed",
        "the data set has changed since this run was planned; start the suite again",
    )
    new = execute(run_of(tiny, catalogue, "FedSGD"), catalogue, place())
    assert new.status == "done"
    assert new.facts["data_digest"] != old.facts["data_digest"]
    assert new.facts["split_digest"] != old.facts["split_digest"]
    assert new.facts["final_model"] != old.facts["final_model"]


def test_a_run_stopped_under_one_key_is_not_resumed_under_another(tiny, catalogue, tmp_path):
    from test_resume import StopAfter

    from dpflbench.execution.attempt import Interrupted

    run, watch = run_of(tiny, catalogue, "DPSGD"), StopAfter(3)
    with pytest.raises(Interrupted):
        execute(run, catalogue, place(), watch)
    other, watch.rounds = Place(noise_key=bytes(16)), 1_000_000
    record = execute(run, catalogue, other, watch)
    assert "was made with noise" in watch.lines[0]
    assert "resumed_at" not in record.measured
    assert record.digest == execute(run, catalogue, other).digest


def test_a_suite_carried_out_twice_in_two_folders_with_one_key_has_equal_records(tiny, tmp_path, catalogue):
    tiny["algorithms"] = ["DPSGD"]
    planned = planned_of(tiny, tmp_path, catalogue)
    digests = []
    for name in ("a", "b"):
        store = Store(tmp_path / name)
        carry_out(planned, store, catalogue)
        digests.append({run: store.read(run).digest for run in planned.runs})
    assert digests[0] == digests[1]
