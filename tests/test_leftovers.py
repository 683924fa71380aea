"""Client code leaves nothing behind: on made-up data in `check`, on a sample of rounds in a run."""

import re
from dataclasses import replace

import pytest
import torch
from harness import assembly_of, world_of
from hostile import keepers, spies
from places import place

from dpflbench.execution import prepare
from dpflbench.execution.attempt import execute
from dpflbench.federation import leftovers
from dpflbench.federation.leftovers import ClientCode, inventory, remembered, survivors
from dpflbench.planning import make_run
from dpflbench.testing import ConformanceError, check_model, check_transform


@pytest.fixture(autouse=True)
def forgotten():
    keepers.forget()
    spies.LEFT.clear()
    yield
    keepers.forget()


WHERE = {
    keepers.in_an_attribute: "attribute seen of KeepingTransform holds ",
    keepers.in_a_growing_attribute: "attribute bag of KeepingTransform holds ",
    keepers.in_the_class: "attribute last of class KeepingTransform holds ",
    keepers.in_a_global: "global GLOBAL of hostile.keepers holds ",
    keepers.in_a_changing_global: "global LAST of hostile.keepers holds ",
    keepers.in_a_closure: "closure of _closure.<locals>.hold holds ",
    keepers.in_a_default: "default argument of in_a_default holds ",
    keepers.in_an_attribute_of_a_function: "attribute of function in_a_default holds ",
    keepers.in_room_made_before: "global ROOM of hostile.keepers holds ",
}
OWN = [
    *((way, keepers.in_a_global) for way in keepers.WAYS),
    *((keepers.cloned, place) for place in WHERE),
    *((keepers.as_one_number, place) for place in WHERE if place is not keepers.in_room_made_before),
]


def named(thing):
    return getattr(thing, "__name__", "")


def applied(transform, seed=0):
    """Hand fresh inputs to a transform and let go of them; their values."""
    x = torch.randn(5, 10, generator=torch.Generator().manual_seed(seed))
    values = x.clone()
    transform.apply(torch.zeros(5, 1), x)
    return values


@pytest.mark.parametrize(("way", "place"), OWN, ids=named)
def test_whatever_is_kept_however_and_wherever_is_found_and_its_place_is_named(monkeypatch, way, place):
    monkeypatch.setattr(leftovers, "_holders", lambda: iter(()))  # the first net alone
    transform = keepers.KeepingTransform(way, place)
    code = ClientCode.of(transform)
    before = inventory(code)
    assert survivors(before, code) == ""
    applied(transform)
    assert survivors(before, code).startswith(WHERE[place])


def test_what_is_kept_in_code_of_others_is_found():
    code = ClientCode.of(keepers.KeepingTransform())
    before = inventory(code)
    for way, where, found in (
        (keepers.as_it_is, keepers.elsewhere, "a tensor (5, 10) is left in global kept_by_a_stranger of builtins"),
        (keepers.squared, keepers.elsewhere, "a tensor (5, 10) is left in global kept_by_a_stranger of builtins"),
        (keepers.as_node, keepers.elsewhere, "a tensor (5, 10) is left in global kept_by_a_stranger of builtins"),
        (keepers.as_lists, keepers.elsewhere, "a list of 10 is left in global kept_by_a_stranger of builtins"),
        (keepers.as_bytes, keepers.elsewhere, "a bytes of 200 is left in global kept_by_a_stranger of builtins"),
        (
            keepers.as_array,
            keepers.elsewhere_in_a_dict,
            "an array (5, 10) is left in global kept_by_a_stranger of numpy",
        ),
    ):
        applied(keepers.KeepingTransform(way, where))
        assert survivors(before, code) == found
        keepers.forget()
    assert survivors(before, code) == ""


def test_what_was_kept_only_once_is_found_by_its_values():
    code = ClientCode.of(keepers.KeepingTransform())
    for way in (keepers.cloned, keepers.as_array, keepers.as_lists, keepers.as_bytes, keepers.as_one_number):
        keepers.forget()
        values = applied(keepers.KeepingTransform(way, keepers.only_once))
        assert remembered(code, values) == "global GLOBAL of hostile.keepers holds values of the inputs"
    keepers.forget()
    assert remembered(code, values) == ""


def refused(check, part):
    with pytest.raises(ConformanceError) as caught:
        check(part)
    line = str(caught.value)
    assert len(line.splitlines()) == 1
    return line.partition("keeps something of its inputs: ")[2]


def test_check_refuses_a_transform_that_keeps_its_inputs():
    line = refused(check_transform, keepers.KeepingTransform(keepers.cloned, keepers.in_an_attribute))
    assert line.startswith("attribute seen of KeepingTransform holds a tensor (5, 3, 8, 8) that was not there before")
    line = refused(check_transform, keepers.KeepingTransform(keepers.as_lists, keepers.only_once))
    assert line.startswith("global GLOBAL of hostile.keepers holds values of the inputs")


def test_check_refuses_a_model_that_keeps_its_inputs():
    line = refused(check_model, keepers.KeepingModel(keepers.as_array, keepers.in_an_attribute))
    assert line.startswith("attribute seen of KeepingNet holds a array (3, 10) that was not there before")
    line = refused(check_model, keepers.KeepingModel(keepers.as_lists, keepers.elsewhere))
    assert line.startswith("a list of 10 is left in global kept_by_a_stranger of builtins")


def test_an_honest_transform_passes_with_its_constants():
    keepers._ones.clear()
    check_transform(keepers.HonestTransform())


def run_with(body, catalogue, transform=None, model=None):
    """A run of DPSGD with a stranger's client code."""
    made = assembly_of(body, catalogue, "DPSGD")
    if transform is not None:
        made = replace(made, algorithm=replace(made.algorithm, transform=transform))
    if model is not None:
        made = replace(made, task=replace(made.task, model=model))
    return replace(make_run(made.config, made, made.task.dataset.digest(None)), assembly=made)


def test_a_run_says_what_its_client_code_left_behind(tiny, catalogue):
    record = execute(run_with(tiny, catalogue, spies.Memorises()), catalogue, place())
    spies.LEFT.clear()
    assert record.status == "done"
    assert re.fullmatch(
        r"round [1-5]: global LEFT of hostile.spies holds a tensor \(1, \d+\) that was not there before the call",
        record.measured["leftovers"],
    )
    model = keepers.KeepingModel(keepers.as_it_is, keepers.in_a_growing_attribute)
    record = execute(run_with(tiny, catalogue, model=model), catalogue, place())
    assert "attribute bag of KeepingNet holds a tensor" in record.measured["leftovers"]


def test_honest_client_code_of_strangers_leaves_nothing_in_a_run_and_changes_no_number(tiny, catalogue, monkeypatch):
    looks = []
    monkeypatch.setattr(leftovers, "inventory", lambda code: looks.append(code) or inventory(code))
    run = run_with(tiny, catalogue, keepers.HonestTransform())
    looked = execute(run, catalogue, place())
    assert (looked.status, len(looks)) == ("done", 2)
    assert "leftovers" not in looked.measured
    monkeypatch.setattr(prepare, "SAMPLE", 0)
    assert execute(run, catalogue, place()).digest == looked.digest
    assert len(looks) == 2


def test_what_the_harness_keeps_of_a_stranger_s_noise_is_not_laid_at_client_code_s_door(tiny, catalogue):
    def strange(transform):
        run = run_with(tiny, catalogue, transform)
        parts = [replace(p, distribution="strange") if p.kind == "mechanisms" else p for p in run.assembly.parts]
        return execute(replace(run, assembly=replace(run.assembly, parts=tuple(parts))), catalogue, place())

    honest, keeping = strange(keepers.HonestTransform()), strange(spies.Memorises())
    spies.LEFT.clear()
    assert (honest.status, keeping.status) == ("done", "done")
    assert "leftovers" not in honest.measured
    assert "global LEFT of hostile.spies" in keeping.measured["leftovers"]


@pytest.mark.parametrize("use", ["DPSGD", "PRIVATEFL"])
def test_built_in_client_code_is_not_looked_at(tiny, catalogue, use):
    assert world_of(tiny, catalogue, use).world.inspection.rounds == frozenset()


def test_the_rounds_looked_at_hang_on_the_noise_key(tiny, catalogue):
    tiny["federation"]["rounds"] = 1000
    assembly = run_with(tiny, catalogue, keepers.HonestTransform()).assembly
    first, again, other = (
        prepare.prepare(assembly, prepare.Place(noise_key=key * 16)).world.inspection.rounds
        for key in (b"a", b"a", b"b")
    )
    assert first == again != other
    assert len(first) == 2
    assert 0 not in first
