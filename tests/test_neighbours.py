"""`privacy.neighbours`: one relation a table, one place that says what it means, and accountants that know theirs."""

import numpy as np
import pytest
from harness import assembly_of, record_of, run_of

from dpflbench.errors import SuiteError
from dpflbench.judges.recount import recount
from dpflbench.planning import plan_suite
from dpflbench.privacy.sensitivity import gradient_sensitivity, joint_sensitivity, loss_sensitivity
from dpflbench.suite_reading import check, normalise


def under(tiny, neighbours=None, accountant=None):
    privacy = dict(tiny["privacy"])
    if accountant:
        privacy["mechanism"] = {"name": "gaussian", "accountant": accountant}
    if neighbours:
        privacy["neighbours"] = neighbours
    return {**tiny, "privacy": privacy}


def test_the_bounds_in_numbers():
    """Clip 20, 500 examples: 2 * 20 / 500 and 20 / 500; a loss of at most 2.5 moves by 2.5 / 500 under both."""
    assert float(gradient_sensitivity(20.0, 500, "replace")) == 0.08
    assert float(gradient_sensitivity(20.0, 500, "zero_out")) == 0.04
    assert float(joint_sensitivity(20.0, 2.5, 500, "zero_out")) == pytest.approx(0.04 + 2 * 0.005)
    assert float(loss_sensitivity(2.5, 500)) == 0.005


def test_a_full_step_replaces_one_example_unless_a_suite_says_otherwise(tiny, catalogue):
    plain, said, other = (run_of(under(tiny, n), catalogue, "WeiAvg") for n in (None, "replace", "zero_out"))
    assert plain.id == said.id != other.id
    assert "neighbours" not in plain.config["privacy"]
    assert other.config["privacy"]["neighbours"] == "zero_out"
    whole, half = (record_of(under(tiny, n), catalogue, "WeiAvg") for n in ("replace", "zero_out"))
    np.testing.assert_allclose(whole.events["sensitivity"], 2 * half.events["sensitivity"])
    np.testing.assert_allclose(whole.events["scale"], 2 * half.events["scale"], rtol=1e-6)
    np.testing.assert_array_equal(whole.clients["epsilon_spent"] <= whole.clients["epsilon"], True)


def test_a_table_never_mixes_two_relations(tiny, catalogue):
    tiny |= {"axes": {"privacy.neighbours": ["replace", "zero_out"]}}
    problems = []
    suite = check(normalise(tiny), "tiny.yaml", problems)
    with pytest.raises(SuiteError, match="replace and zero_out in one table, whose epsilons are not comparable"):
        plan_suite(suite, catalogue, None)


@pytest.mark.parametrize(
    ("use", "given"),
    [("DPSGD", {}), ("DPFL-BCS", {"probe_rounds": 2}), ("Power-of-choice", {}), ("Uniform-minimum", {})],
)
def test_plans_made_on_the_way_keep_every_budget_under_rdp(tiny, catalogue, use, given):
    record = record_of(under(tiny, "zero_out", "rdp"), catalogue, use, **given)
    assert (record.status, record.reason) == ("done", "")
    assert (record.clients["epsilon_spent"] <= record.clients["epsilon"]).all()
    assert (record.clients["epsilon_spent"][record.clients["uses"] > 0] > 0).all()
    found = recount(record, catalogue)
    assert [p for p in found.problems if "run id" not in p] == []
    assert found.accountants[0] == "rdp"
    assert found.accountants[1].startswith("dp-accounting ")


def test_plans_made_on_the_way_are_refused_by_pld_and_fixed_ones_are_not(tiny, catalogue):
    record = record_of(under(tiny, "zero_out", "pld"), catalogue, "DPSGD")
    assert record.status == "done"
    np.testing.assert_array_equal(record.clients["epsilon_spent"], record.clients["epsilon"])
    found = recount(record, catalogue)
    assert [p for p in found.problems if "run id" not in p] == []
    assert found.accountants == ("pld",)
    for use, given in (("DPFL-BCS", {"probe_rounds": 2}), ("Power-of-choice", {})):
        record = record_of(under(tiny, "zero_out", "pld"), catalogue, use, **given)
        assert record.status == "failed"
        assert "plans with losses; allowed: accountant rdp" in record.reason
    record = record_of(under(tiny, "zero_out", "pld"), catalogue, "Uniform-minimum")
    assert "counts shares of a client's own budget" in record.reason


def test_an_unequal_release_or_a_second_plan_under_pld_is_a_finding(tiny, catalogue):
    from dataclasses import replace

    record = record_of(under(tiny, "zero_out", "pld"), catalogue, "DPSGD")
    scale = record.events["scale"].copy()
    scale[-1] *= 2
    found = recount(replace(record, events={**record.events, "scale": scale}), catalogue)
    assert any("releases that differ" in p for p in found.problems)
    found = recount(replace(record, notes=[*record.notes, {**record.notes[0], "round": 3}]), catalogue)
    assert any("2 plans; accountant pld" in p for p in found.problems)


def test_the_accountant_of_a_record_is_asked_of_its_configuration(tiny, catalogue):
    made = assembly_of(under(tiny, "zero_out", "rdp"), catalogue, "DPSGD")
    assert (made.neighbours, made.noise[1].name) == ("zero_out", "rdp")
