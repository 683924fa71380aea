"""A run played again from its record ends at the same bits, and whatever was made up does not."""

from dataclasses import dataclass, replace

import pytest
import typer
from honest import exchanged, honest_suite, of, remade, results_of
from test_residuals import OneSeed, Smaller
from typer.testing import CliRunner

from dpflbench.cli.verify import verify as verify_command
from dpflbench.errors import DpflbenchError
from dpflbench.federation.local import FullStep
from dpflbench.judges.replay import replay, sample
from dpflbench.judges.verify import verify
from dpflbench.results.store import Store

app = typer.Typer()
app.command()(verify_command)


def test_every_honest_run_ends_at_the_same_bits(honest, catalogue):
    for record in honest.records.values():
        found = replay(record, catalogue)
        assert (found.differs, found.doubts) == ((), ())
        width = int(record.facts["dim"]) + int(record.facts["phi_dim"])
        assert found.residuals >= (24 * width if record.private else 0)


def better(record):
    """Two points more after the last round, told consistently in every place a recount looks at."""
    curve = record.rounds["utility_global"].copy()
    curve[-1] += 2.0
    best = int(curve.argmax())
    final = {
        **record.final,
        "utility_global": curve[-1],
        "utility_mean_phi": curve[-1],
        "best_utility_global": curve[best],
        "best_round": float(record.rounds["round"][best]),
    }
    return replace(record, rounds={**record.rounds, "utility_global": curve}, final=final)


def other_model(record):
    return replace(record, facts={**record.facts, "final_model": "0" * 64})


def called_failed(record):
    kept = {k: v for k, v in record.clients.items() if not k.startswith("utility")}
    return replace(record, status="failed", reason="RuntimeError: bad luck", final={}, clients=kept)


@pytest.mark.parametrize(
    ("change", "words"), [(better, "final, rounds differ"), (other_model, "facts differ"), (called_failed, "done")]
)
def test_what_a_recount_believes_a_replay_does_not(honest, catalogue, change, words):
    record = of(honest, "DPSGD")
    forged = remade(change(record))
    results = exchanged(honest, record.id, forged)
    found = {f.run: f for f in verify(results, catalogue, lambda r: replay(r, catalogue), {forged.id})}[forged.id]
    assert found.problems == ()
    assert found.ruling.verdict == "irreproducible"
    assert any(words in reason for reason in found.ruling.reasons)


def test_another_noise_key_than_the_one_that_was_used_ends_elsewhere(honest, catalogue):
    record = of(honest, "DPSGD")
    other = {**record.facts["noise"], "key": "ff" * 16}
    assert replay(remade(replace(record, facts={**record.facts, "noise": other})), catalogue).differs != ()


@pytest.mark.parametrize(
    ("measured", "words"), [({"numerics": "0" * 16}, "numerics differ"), ({"device": "cuda"}, "it ran on cuda")]
)
def test_a_machine_of_other_last_bits_leaves_a_difference_unverified(honest, catalogue, measured, words):
    record = of(honest, "DPSGD")
    there = replace(record, measured={**record.measured, **measured})
    assert replay(there, catalogue).doubts == ()  # it ends at the same bits all the same
    found = replay(other_model(there), catalogue)
    assert found.differs == ()
    assert any(words in doubt for doubt in found.doubts)


def test_data_that_is_not_here_or_not_the_same_leaves_a_run_unverified(honest, catalogue, tmp_path):
    record = of(honest, "DPSGD")
    missing = {**record.config["task"], "dataset": {"name": "npz", "path": str(tmp_path / "none.npz")}}
    found = replay(replace(record, config={**record.config, "task": missing}), catalogue)
    assert found.doubts[0].startswith("not played again: ")
    found = replay(replace(record, facts={**record.facts, "data_digest": "0" * 64}), catalogue)
    assert found.doubts == ("not played again: the data here is not the data it had",)


@pytest.mark.parametrize("hostile", [Smaller, OneSeed])
def test_noise_that_is_not_what_the_ledger_says_is_found_although_every_bit_is_reproduced(blobs, catalogue, hostile):
    """Enough rounds and clients for noise at 0.98 of its scale: 90,000 coordinates in all."""
    part = replace(catalogue.parts["mechanisms"]["gaussian"], factory=hostile)
    parts = {**catalogue.parts, "mechanisms": {**catalogue.parts["mechanisms"], "gaussian": part}}
    catalogue = replace(catalogue, parts=parts)
    raw = {**honest_suite(str(blobs)), "axes": {}, "algorithms": ["DPSGD"]}
    raw["federation"] = {**raw["federation"], "clients": 40, "cohort": 40, "rounds": 150}
    (record,) = results_of(raw, catalogue).records.values()
    found = replay(record, catalogue)
    assert found.residuals == 150 * 40 * 15
    assert any("its noise is not what its ledger says" in d for d in found.differs)


@dataclass(frozen=True)
class Bare(FullStep):
    """Forgets to protect its messages."""

    def compute(self, work, protect):
        return super().compute(work, lambda value: value)


def test_messages_that_never_met_the_mechanism_are_found(blobs, catalogue):
    part = replace(catalogue.parts["local_updates"]["full_step"], factory=Bare)
    parts = {**catalogue.parts, "local_updates": {**catalogue.parts["local_updates"], "full_step": part}}
    raw = {**honest_suite(str(blobs)), "axes": {}, "algorithms": ["DPSGD"]}
    (record,) = results_of(raw, replace(catalogue, parts=parts)).records.values()
    found = replay(record, replace(catalogue, parts=parts))
    assert found.differs == ("6 rounds were charged, and only 0 releases passed the mechanism",)


def test_a_sample_is_drawn_by_its_seed():
    runs = [f"run{i}" for i in range(50)]
    assert sample(runs, 5, 1) == sample(runs, 5, 1)
    assert sample(runs, 5, 1) != sample(runs, 5, 2)
    assert sample(runs, None, 1) == sample(runs, 50, 1) == runs
    assert sample(runs, 0, 1) == []


def test_the_command_plays_some_runs_again_and_says_which(honest, tmp_path):
    store = Store(tmp_path)
    store.write_manifest(honest.manifest)
    for record in honest.records.values():
        store.write(record)
    shown = CliRunner().invoke(app, [str(tmp_path), "--replay", "2", "--seed", "3", "-q"])
    assert shown.exit_code == 0, shown.output
    assert f"Played again: 2 of {len(honest.records)} runs (--seed 3)" in shown.output
    record = of(honest, "DPSGD")
    store.write(better(record))
    shown = CliRunner().invoke(app, [str(tmp_path), "--replay", "all", "-q"])
    assert shown.exit_code == 1
    assert f"irreproducible  {record.id}" in shown.output
    shown = CliRunner().invoke(app, [str(tmp_path), "--replay", "some"])
    assert isinstance(shown.exception, DpflbenchError)
