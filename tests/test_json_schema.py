"""The JSON Schema of suites: every shipped suite keeps to it, and what a typing hand gets wrong does not."""

import copy
import json
import math
from types import SimpleNamespace

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from dpflbench import shipped
from dpflbench.cli import app
from dpflbench.errors import SuiteError
from dpflbench.suite_file import parse_file
from dpflbench.suite_json_schema import BOUNDS, CHECKED, PLAIN, json_schema
from dpflbench.suite_schema import SECTIONS


@pytest.fixture(scope="module")
def schema(catalogue):
    return json_schema(catalogue)


@pytest.fixture(scope="module")
def validator(schema):
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("name", shipped.names())
def test_every_suite_that_comes_along_keeps_to_it(name, validator):
    assert [e.message for e in validator.iter_errors(parse_file(shipped.by_name(name)))] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("task.modle", "softmax"),
        ("task.model", "sofmax"),
        ("task.partition", {"kind": "dirichlet", "alhpa": 1.0}),
        ("task.partition", {"alpha": 1.0}),  # of which kind?
        ("task.dataset", {"name": "npz"}),  # which file?
        ("task.dataset", {"name": "mnist", "features": {"kind": "pac"}}),
        ("federation.rounds", "many"),
        ("federation.rounds", 0),
        ("federation.lr", {"decay": 3}),
        ("federation.server", "adams"),
        ("privacy.trust", {"kind": "secure_sum", "honst": 0.5}),
        ("privacy.accountant", "gdp"),  # is named inside the mechanism
        ("privacy.mechanism", {"name": "gaussian", "accountant": "gpd"}),
        ("privacy.epsilon", {"kind": "uniform", "low": 1}),
        ("privacy.trust", "nobody"),
        ("axes", {"seeds": [1, 2]}),
        ("cases", {"one": {"federation.rounds": "many"}}),
        ("cases", {"one": {"seeds": 3}}),
        ("axes", {"federation.rounds": 5}),
        ("tune", {"federation.rounds": [5]}),
        ("seeds", 0),
        ("algorithms", ["DPGSD"]),
        ("algorithms", [{"use": "PFA", "with": {"rnak": 1}}]),
        ("algorithms", [{"use": "compose", "with": {"selector": "bsc"}}]),
        ("report", {"columns": "all"}),
        ("algoritms", ["DPSGD"]),
        ("name", "no/folder"),
    ],
)
def test_what_is_misspelt_or_out_of_place_is_underlined(tiny, validator, path, value):
    assert validator.is_valid(tiny)
    *parents, last = path.split(".")
    spot = tiny
    for key in parents:
        spot = spot[key]
    spot[last] = value
    assert not validator.is_valid(tiny)


@pytest.mark.parametrize(
    "extra",
    [
        {"privacy": {"epsilon": 2.0, "mechanism": {"name": "gaussian", "accountant": {"name": "gdp"}}}},
        {"privacy": {"clip": {"gaussian": 1.0, "laplace": 2.0}}},
        {"federation": {"server": "adam", "cohorts": "poisson"}, "privacy": {"trust": "central"}},
        {"privacy": {"trust": {"kind": "secure_sum", "honest": 0.5}, "unit": "client"}},
        {"federation": {"server": {"kind": "momentum", "beta": 0.5}, "lr": {"initial": 1, "decay": math.inf}}},
        {"task": {"dataset": "mnist"}},
        {"task": {"dataset": {"name": "mnist", "features": "flatten"}}},
        {
            "axes": {
                "task.partition.alpha": [0.5, 3],
                "task.dataset.features.components": [10],
                "privacy.epsilon": [1, 2],
            }
        },
        {"cases": {"MNIST": {"task.dataset": "mnist", "task.model.width": 3}, "other": {"federation.lr.initial": 2}}},
        {"tune": {"federation.lr.initial": [1, 2], "privacy.clip": [1.0], "seeds": 2}},
        {"algorithms": ["DPSGD", {"use": "compose", "as": "x", "with": {"aggregator": {"name": "pfa", "rank": 1}}}]},
        {"report": {"sections": ["ma2024", {"name": "ma2024", "show": "claims"}], "baseline": ["DPSGD"]}},
    ],
)
def test_what_is_allowed_is_allowed(tiny, validator, extra):
    for section, keys in extra.items():
        tiny[section] = {**tiny.get(section, {}), **keys} if isinstance(keys, dict) else keys
    assert [e.message for e in validator.iter_errors(tiny)] == []


def test_a_suite_that_extends_another_may_leave_out_what_that_one_says(tiny, validator):
    for key in ("name", "algorithms", "task"):
        body = copy.deepcopy(tiny)
        del body[key]
        assert not validator.is_valid(body), key
    assert validator.is_valid({"extends": "smoke", "task": {"partition": {"alpha": 1.0}}, "seeds": 2})
    assert not validator.is_valid({"extends": "smoke", "task": {"partition": {"alhpa": 1.0}}})


def test_every_section_is_there_and_every_key_says_what_it_means(schema):
    assert set(schema["properties"]) == set(SECTIONS)
    for name in (*CHECKED, *PLAIN):
        section = schema["properties"][name] if name in PLAIN else schema["else"]["properties"][name]
        missing = [key for key, each in section["properties"].items() if "description" not in each]
        assert missing == ([] if name != "resources" else ["cpu", "gpu"]), name


@pytest.mark.parametrize("path", BOUNDS)
def test_bounds_are_those_of_the_sections(path):
    """What is just beyond is refused by the section itself, and the bound, where it is allowed, is not."""
    section, key = path.split(".")
    shape = {**CHECKED, **PLAIN}[section]
    others = {"clients": 8, "cohort": 1, "rounds": 1, "holdout": 0.1, "limit": None, "momentum": 0.0, "server": None}

    def problems(value):
        made = SimpleNamespace(weight_decay=0.0, split="official", every=1, cpu=1, gpu=0, **others)
        made.lr = SimpleNamespace(initial=1, decay=1)
        setattr(made, key, value)
        try:
            shape.__post_init__(made)
        except SuiteError as e:
            return [p for p in e.problems if p.startswith(f"{key}: ")]
        return []

    low, high = BOUNDS[path]["minimum"], BOUNDS[path].get("exclusiveMaximum")
    assert problems(low - 1)
    assert not problems(low)
    assert high is None or problems(high)


def test_the_command_prints_it_and_writes_it_for_an_editor(tmp_path, schema):
    printed = CliRunner().invoke(app, ["suites", "schema"])
    assert json.loads(printed.output) == json.loads(json.dumps(schema))
    file = tmp_path / "suite.schema.json"
    written = CliRunner().invoke(app, ["suites", "schema", str(file)])
    assert written.exit_code == 0
    assert f"# yaml-language-server: $schema={file}" in written.output.replace("\n", " ")
    assert json.loads(file.read_text())["title"] == "dpflbench suite"
