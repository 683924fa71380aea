"""Configurations to parts: once a run, parts wherever an interface stands, and stages that cannot be mixed up."""

import os
import pickle
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import assembly_of, record_of, run_of
from hostile.populations import ForgetsTheLast, OneTooMany
from places import place
from suite_runs import carry_out, planned_of

from dpflbench import assembly as assembling
from dpflbench.assembly import assemble
from dpflbench.catalogue import Catalogue, Part
from dpflbench.execution.workers import Briefing, _outcome
from dpflbench.execution.worklist import by_task
from dpflbench.interfaces import Algorithm, Selector
from dpflbench.results.store import Store
from dpflbench.suite_reading import normalise
from dpflbench_algorithms.parts import Mean


@pytest.fixture
def assembled(monkeypatch):
    """How often each algorithm was assembled."""
    counts = Counter()
    original = assembling.Assembler.algorithm

    def counting(self, given, path):
        counts[given["name"]] += 1
        return original(self, given, path)

    monkeypatch.setattr(assembling.Assembler, "algorithm", counting)
    return counts


def test_a_run_of_a_suite_assembles_each_point_and_algorithm_once(tiny, tmp_path, catalogue, assembled):
    tiny |= {"axes": {"privacy.epsilon.high": [4.0, 8.0, 9.0], "task.holdout": [0.1, 0.2]}, "seeds": 2}
    planned = planned_of(tiny, tmp_path, catalogue)
    assert len(planned.runs) == (2 + 6 + 6) * 2  # FedSGD knows no epsilon
    carry_out(planned, Store(tmp_path / "results"), catalogue)
    assert len(list((tmp_path / "results" / "records").glob("*.json"))) == 28
    assert assembled == {"FedSGD": 6, "DPSGD": 6, "WeiAvg": 6}


def test_a_worker_assembles_a_run_once(tiny, tmp_path, catalogue, assembled):
    class Pipe:
        def send(self, what):
            pass

        def poll(self):
            return False

    run = pickle.loads(pickle.dumps(run_of(tiny, catalogue, "DPSGD")))
    assembled.clear()
    kind, record = _outcome(run, catalogue, Briefing(place(), tmp_path), Pipe())
    assert (kind, record.status) == ("record", "done")
    assert assembled == {"DPSGD": 1}


def test_parts_stay_in_the_process_that_made_them(tiny, tmp_path, catalogue):
    for run in planned_of(tiny, tmp_path, catalogue).runs.values():
        assert run.assembly.config == run.config
        sent = pickle.loads(pickle.dumps(run))
        assert sent.assembly is None
        assert sent == run  # parts are no part of what a run is


def test_runs_on_the_same_data_stand_side_by_side(tiny, tmp_path, catalogue):
    tiny |= {
        "axes": {"privacy.epsilon.high": [4.0, 8.0], "task.holdout": [0.1, 0.2]},
        "algorithms": ["DPSGD"],
        "seeds": 2,
    }
    runs = by_task(planned_of(tiny, tmp_path, catalogue).runs, catalogue).values()
    tasks = [(r.config["task"]["holdout"], r.config["seed"]) for r in runs]
    assert tasks == [(0.1, 0)] * 2 + [(0.1, 1)] * 2 + [(0.2, 0)] * 2 + [(0.2, 1)] * 2


@pytest.mark.parametrize("use", ["FedSGD", "DPSGD", "DMLDP", "DPFL-BCS", "compose"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_a_canonical_configuration_is_input_that_gives_itself(tiny, catalogue, use, mechanism):
    tiny["task"]["dataset"]["features"] = "flatten"
    tiny["privacy"] |= {"mechanism": mechanism, "clip": {"gaussian": 1, "laplace": 2}, "epsilon": 2}
    first = assembly_of(tiny, catalogue, use)
    problems = []
    again = assemble(first.config, catalogue, problems)
    assert problems == []
    assert again == first
    if use == "FedSGD":
        assert "privacy" not in first.config
        assert first.privacy is None
        return
    noise = {"gaussian": {"clip": 1.0}, "laplace": {"clip": 2.0}}[mechanism]
    assert first.config["privacy"].items() >= {**noise, "epsilon": {"kind": "constant", "value": 2.0}}.items()
    assert ("delta" in first.config["privacy"]) == (mechanism == "gaussian")


def test_an_algorithm_that_clips_without_privacy_needs_no_budgets(tiny, catalogue):
    del tiny["privacy"]["epsilon"], tiny["privacy"]["delta"]
    made = assembly_of(tiny, catalogue, "FedSGD", clip=True)
    assert made.config["privacy"] == {"mechanism": made.config["privacy"]["mechanism"], "clip": 1.0, "trust": "local"}
    assert (made.privacy.epsilon, made.privacy.delta) == (None, None)


def problems_of(body, catalogue, use="DPSGD", **given):
    problems = []
    config = normalise(body | {"algorithm": {"name": use, **given}, "seed": 0})
    assert assemble(config, catalogue, problems) is None
    return problems


def test_parts_by_name_and_by_kind_are_refused_in_the_same_words(tiny, catalogue):
    tiny["task"] |= {"model": "sofmax", "partition": "dirichlte"}
    tiny["task"]["dataset"]["features"] = {"kind": "pcaa"}
    tiny["privacy"] |= {"mechanism": 3, "epsilon": {"kind": "unifrom"}, "delta": {"value": 1e-5}}
    assert problems_of(tiny, catalogue) == [
        "task.dataset.features: unknown feature 'pcaa'; did you mean 'pca'?",
        "task.model: unknown model 'sofmax'; did you mean 'softmax'?",
        "task.partition: unknown partition 'dirichlte'; did you mean 'dirichlet'?",
        "privacy.mechanism: expected one of the mechanisms by name or as a mapping with 'name', found 3",
        "privacy.epsilon: unknown budget 'unifrom'; did you mean 'uniform'?",
        "privacy.delta: expected one of the budgets by name or as a mapping with 'kind', found {'value': 1e-05}",
    ]


def test_every_problem_of_a_section_is_listed(tiny, catalogue):
    tiny["federation"] |= {"cohort": 9, "rounds": 0, "momentum": 2}
    tiny["privacy"] |= {"clip": {"laplace": 1}, "epsilon": 0, "delta": None}
    assert problems_of(tiny, catalogue) == [
        "federation.cohort: 9 of 8 clients; allowed: 1 to 8",
        "federation.rounds: 0; allowed: 1 or more",
        "federation.momentum: 2.0; allowed: 0 to below 1",
        "privacy.clip: no bound for mechanism 'gaussian'; found laplace",
        "privacy.epsilon: ranges over 0; allowed: above 0 and finite",
        "privacy.delta: missing; accountant 'gdp' needs one",
    ]


def test_without_a_privacy_section_a_private_algorithm_is_told_all_it_lacks(tiny, catalogue):
    del tiny["privacy"]
    assert problems_of(tiny, catalogue) == [f"privacy.{key}: missing" for key in ("epsilon", "mechanism", "clip")]


# ---------------------------------------------------------------- a stranger's factories


@dataclass(frozen=True)
class InTurn:
    """Asks one of two selectors."""

    first: Selector
    second: Selector

    def plan(self, view, rng):
        return self.first.plan(view, rng)


def in_turn(first: Selector, second: Selector, *, share: float = 0.5) -> Algorithm:
    """An algorithm that takes parts."""
    return Algorithm("InTurn", InTurn(first, second), Mean())


def with_a_part(catalogue, kind, name, factory):
    part = Part(kind, name, factory, "own", "own", "1", __name__)
    return Catalogue({**catalogue.parts, kind: {**catalogue.parts[kind], name: part}})


def test_a_factory_whose_parameter_is_an_interface_takes_a_part(tiny, catalogue):
    own = with_a_part(catalogue, "algorithms", "InTurn", in_turn)
    made = assembly_of(tiny, own, "InTurn", first="uniform", second={"name": "bcs", "probe_rounds": 3})
    assert made.algorithm.selector.second.probe_rounds == 3
    assert made.config["algorithm"].items() >= {"name": "InTurn", "first": {"name": "uniform"}, "share": 0.5}.items()
    assert {p.name for p in made.parts} >= {"InTurn", "uniform", "bcs"}
    assert problems_of(tiny, own, "InTurn", first="unifrom", second={"name": "bcs", "probe_rouds": 3}) == [
        "algorithm.first: unknown selector 'unifrom'; did you mean 'uniform'?",
        "algorithm.second.probe_rouds: unknown; did you mean 'probe_rounds'?",
    ]


def test_a_part_as_a_default_has_to_be_named_for_nothing_else_could_be_recorded(tiny, catalogue):
    def defaulted(aggregator: Mean = Mean(), selector: Selector = InTurn(None, None)) -> Algorithm:  # noqa: B008
        """An algorithm with a part by default."""

    own = with_a_part(catalogue, "algorithms", "Defaulted", defaulted)
    assert problems_of(tiny, own, "Defaulted") == ["algorithm.selector: missing; one of the selectors has to be named"]


def test_a_factory_that_makes_something_else_is_refused_with_its_supplier(tiny, catalogue):
    own = with_a_part(catalogue, "partitions", "odd", Mean)
    tiny["task"]["partition"] = "odd"
    assert problems_of(tiny, own) == [
        "task.partition: plugin 'own' of own: partition 'odd' made Mean, which is no Partition"
    ]


@pytest.mark.parametrize(
    ("partition", "reason"),
    [
        (OneTooMany, "task.partition: owners range from 1 to 8; allowed: 0 to 7, or -1"),
        (ForgetsTheLast, "task.partition: client 7 has no examples; allowed: at least one a client"),
    ],
)
def test_what_a_strangers_partition_returns_is_looked_at_in_every_run(tiny, catalogue, partition, reason):
    own = with_a_part(catalogue, "partitions", "own", partition)
    tiny["task"]["partition"] = "own"
    record = record_of(tiny, own, "DPSGD")
    assert (record.status, record.reason) == ("failed", reason)


def test_two_installations_of_one_name_do_not_share_a_task(tiny, catalogue):
    @dataclass(frozen=True)
    class Lopsided:
        """Nearly everything goes to the last client."""

        def assign(self, classes, groups, n_clients, rng):
            return rng.permutation([*range(n_clients)] * 10 + [n_clients - 1] * (len(classes) - 10 * n_clients))

    tiny["task"]["partition"] = "iid"
    plain = record_of(tiny, catalogue, "FedSGD")
    other = record_of(tiny, with_a_part(catalogue, "partitions", "iid", Lopsided), "FedSGD")
    assert plain.clients["n_examples"].max() == 60
    assert other.clients["n_examples"].max() == 424  # 530 less a fifth


# ---------------------------------------------------------------- stages


STAGES = """
from dpflbench.suite_schema import Canonical, Normalised, Raw

def reads(config: Raw) -> None: ...
def assembles(config: Normalised) -> None: ...
def records(config: Canonical) -> None: ...

raw = Raw({})
normalised = Normalised(raw)
canonical = Canonical(normalised)
reads(canonical)
assembles(canonical)
reads(normalised)
assembles(raw)
records(normalised)
reads({})
"""


def test_a_configuration_of_an_earlier_stage_does_not_type_check_where_a_later_one_is_needed(tmp_path):
    (tmp_path / "stages.py").write_text(STAGES)
    settings = "[mypy]\nfollow_imports = silent\n[mypy-dpflbench.interfaces]\nfollow_imports = skip\n"
    (tmp_path / "mypy.ini").write_text(settings)
    here = {**os.environ, "MYPYPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--no-error-summary", "stages.py"]
    out = subprocess.run(command, cwd=tmp_path, env=here, capture_output=True, text=True, check=False).stdout
    refused = re.findall(r"stages.py:(\d+): error: .* incompatible type \"([\w\[, \]]+)\"; expected \"(\w+)\"", out)
    assert refused == [
        ("14", "Raw", "Normalised"),
        ("15", "Normalised", "Canonical"),
        ("16", "dict[Never, Never]", "Raw"),
    ]
    assert len(out.splitlines()) == 3


def test_an_accountant_is_named_inside_its_mechanism_and_must_have_a_proof_for_it(tiny, catalogue):
    tiny["privacy"]["mechanism"] = {"name": "gaussian", "accountant": "gdp"}
    assert assembly_of(tiny, catalogue, "DPSGD").config["privacy"]["mechanism"] == {
        "name": "gaussian",
        "accountant": {"name": "gdp", "composition": "exact"},
    }
    tiny["privacy"]["mechanism"] = {"name": "gaussian", "accountant": "pure"}
    assert problems_of(tiny, catalogue) == [
        "privacy.mechanism.accountant: 'pure' has no proof for this: gaussian noise; allowed: laplace"
    ]
    tiny["privacy"] |= {"mechanism": "gaussian", "accountant": "gdp"}
    assert problems_of(tiny, catalogue) == [
        "privacy.accountant: unknown; an accountant is named inside privacy.mechanism"
    ]
