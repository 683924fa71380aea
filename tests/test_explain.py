"""`dpflbench run --explain`: reused, repeated, stale or new, each with its reason; nothing is changed."""

from dataclasses import replace

import pytest
from places import place
from record_factory import make_record
from suite_runs import carry_out, planned_of

from dpflbench.assembly import assemble
from dpflbench.execution.checkpoint import pack
from dpflbench.execution.explain import explain, flat
from dpflbench.execution.prepare import prepare
from dpflbench.federation.simulate import Clock, initial_state
from dpflbench.planning import make_run
from dpflbench.results.record import dumps
from dpflbench.results.store import Store, write_atomically


@pytest.fixture
def done(tiny, tmp_path, catalogue):
    """FedSGD, DPSGD and WeiAvg, done."""
    planned = planned_of(tiny, tmp_path, catalogue)
    store = Store(tmp_path / "results")
    carry_out(planned, store, catalogue)
    return planned.runs, store


def explained(runs, store):
    return [(e.verdict, e.reason) for e in explain(runs, store)]


def changed(run, catalogue, plugins=None, data_digest=None):
    """The same run under another id, as make_run gives it when plugins or data change."""
    made = assemble(run.config, catalogue, [])
    fresh = make_run(run.config, made, data_digest or run.data_digest)
    return replace(fresh, id=("f" * 20), plugins=plugins or fresh.plugins)


def test_what_is_done_is_reused(done):
    assert explained(*done) == [("reused", "done")] * 3


def test_failed_and_damaged_runs_are_repeated_and_missing_ones_are_new(done):
    runs, store = done
    a, b, c = runs
    store.path(a).write_text(dumps(make_record(a, "FedSGD", 0, {}, 0.0, status="failed", reason="no luck")))
    damaged = store.path(b).read_text()[:-30]
    store.path(b).write_text(damaged)
    store.path(c).unlink()
    (first, second, third) = explained(runs, store)
    assert first == ("repeated", "it failed: no luck")
    assert second[0] == "repeated"
    assert "truncated or not JSON" in second[1]
    assert third == ("new", "no record")
    assert store.path(b).read_text() == damaged  # explaining changes nothing


def test_an_edited_part_makes_a_run_stale_and_its_module_is_named(done, catalogue):
    runs, store = done
    run = list(runs.values())[1]
    edited = changed(run, catalogue, plugins={**run.plugins, "algorithm DPSGD": "dpflbench 0123456789abcdef"})
    record = store.read(run.id)
    assert explained({edited.id: edited}, store) == [
        (
            "stale",
            f"record {run.id}: algorithm DPSGD was {run.plugins['algorithm DPSGD']}, is dpflbench 0123456789abcdef",
        )
    ]
    modules = record.measured["modules"] | {"dpflbench_algorithms.dpsgd": "another"}
    assert "dpflbench.federation.simulate" in modules
    assert "dpflbench.tasks.lending" not in modules
    store.path(run.id).write_text(dumps(replace(record, measured={**record.measured, "modules": modules})))
    assert explained({edited.id: edited}, store) == [
        ("stale", f"record {run.id}: dpflbench_algorithms.dpsgd changed, and with it the sources of algorithm DPSGD")
    ]


def test_changed_data_makes_a_run_stale_and_a_plugin_no_longer_in_use_is_named(done, catalogue):
    runs, store = done
    run = list(runs.values())[1]
    ((verdict, reason),) = explained({"f" * 20: changed(run, catalogue, data_digest="0" * 64)}, store)
    assert verdict == "stale"
    assert f"the data changed (digest was {run.data_digest[:12]}, is 000000000000)" in reason
    fewer = changed(run, catalogue, plugins={"dpflbench": run.plugins["dpflbench"]})
    ((verdict, reason),) = explained({fewer.id: fewer}, store)
    assert "is not in use" in reason


def test_a_changed_setting_makes_a_new_run_and_the_nearest_record_is_named(done, tiny, tmp_path, catalogue):
    runs, store = done
    tiny["federation"]["rounds"] = 7
    again = planned_of(tiny, tmp_path, catalogue).runs
    assert explained(again, store) == [("new", f"like record {run} but federation.rounds was 6, is 7") for run in runs]
    tiny["federation"] |= {"cohort": 3, "clients": 7}
    assert explained(planned_of(tiny, tmp_path, catalogue).runs, store) == [("new", "no record")] * 3


def test_a_checkpoint_says_from_where_a_run_goes_on(done, catalogue):
    runs, store = done
    run = list(runs.values())[1]
    store.path(run.id).unlink()
    prepared = prepare(assemble(run.config, catalogue, []), place())
    state = replace(initial_state(prepared.world, prepared.theta, prepared.phi), round=4)
    write_atomically(
        store.checkpoint(run.id), pack(run.id, "cpu", prepared.world.streams, state, prepared.ledger, Clock())
    )
    assert explained({run.id: run}, store) == [("new", "no record; goes on from round 4 of 6")]
    write_atomically(store.checkpoint(run.id), b"damaged")
    assert explained({run.id: run}, store) == [("new", "no record")]


def test_nested_settings_become_paths():
    assert flat({"a": {"b": 1, "c": {"d": 2}}, "e": [3]}) == {"a.b": 1, "a.c.d": 2, "e": [3]}
