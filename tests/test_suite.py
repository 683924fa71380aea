"""YAML to Suite: what is allowed, and every problem at once with its path."""

from pathlib import Path

import pytest
import yaml

from dpflbench import suite_reading as suites
from dpflbench.errors import DpflbenchError, SuiteError
from dpflbench.planning import columns_of


def write(folder: Path, body: dict | str, name: str = "s.yaml") -> Path:
    path = folder / name
    path.write_text(body if isinstance(body, str) else yaml.safe_dump(body))
    return path


def problems_of(folder: Path, body: dict | str, *overrides: str) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        suites.load(write(folder, body), overrides)
    return [p.removeprefix(f"{folder / 's.yaml'}: ") for p in caught.value.problems]


def test_a_suite_is_read_with_defaults(tmp_path, tiny):
    suite = suites.load(write(tmp_path, tiny))
    assert (suite.name, list(suite.seeds), suite.axes) == ("tiny", [0], {})
    assert [e.label for e in suite.entries] == ["FedSGD", "DPSGD", "WeiAvg"]
    assert suite.base["privacy"]["mechanism"] == {"name": "gaussian"}
    assert (suite.report.baseline, suite.report.sections) == (None, [])


def test_all_problems_are_listed_at_once_each_with_its_path(tmp_path, tiny):
    tiny |= {
        "alogrithms": 1,
        "seeds": 0,
        "axes": {"privacy.epsilon.high": [], "report.rows": [1]},
        "report": {"colums": ["x"], "value": "speed"},
        "algorithms": ["A", {"use": "B", "wiht": {}}, {"with": {}}, "A"],
    }
    assert problems_of(tmp_path, tiny) == [
        "alogrithms: unknown; did you mean 'algorithms'?",
        "axes.privacy.epsilon.high: empty; expected a list of at least one value",
        "axes.report.rows: an axis varies task, federation or privacy; allowed: federation, privacy, task",
        "report.colums: unknown; did you mean 'columns'?",
        "report.value: found 'speed'; allowed: utility, utility_global, utility_mean_phi, utility_personal",
        "algorithms[1].wiht: unknown; did you mean 'with'?",
        "algorithms[2]: expected a name or a mapping with 'use', found {'with': {}}",
        "algorithms[3]: 'A' stands there twice; tell them apart by 'as'",
        "seeds: found 0; expected how many (1 or more) or a list of different integers",
    ]


@pytest.mark.parametrize("key", ["name", "task", "federation", "algorithms"])
def test_a_missing_section_is_named(tmp_path, tiny, key):
    del tiny[key]
    assert problems_of(tmp_path, tiny) == [f"{key}: missing"]


@pytest.mark.parametrize("name", ["../up", "a/b", "", "x\x1b[2J", ".hidden", 7, "a" * 101])
def test_a_name_that_is_no_folder_name_is_refused(tmp_path, tiny, name):
    tiny["name"] = name
    assert any(p.startswith("name: found") for p in problems_of(tmp_path, tiny))


def test_a_name_with_other_letters_is_told_which_letters_may_be(tmp_path, tiny):
    tiny["name"] = "größe"
    assert problems_of(tmp_path, tiny) == [
        "name: found 'größe'; allowed: up to 100 of the letters a to z and A to Z, digits, space, '.', '_' and '-', "
        "a letter or digit first (it names a folder)"
    ]


def test_interpolation_is_refused_in_files_and_on_the_command_line(tmp_path, tiny):
    tiny["description"] = "${oc.env:HOME}"
    assert problems_of(tmp_path, tiny) == ["description: interpolation '${...}' is not available in a suite"]
    tiny["description"] = ""
    assert problems_of(tmp_path, tiny, "task.model=${oc.env:HOME}") == [
        "task.model.name: interpolation '${...}' is not available in a suite"
    ]


def test_a_tag_that_would_construct_an_object_is_refused(tmp_path):
    assert "not a YAML suite" in problems_of(tmp_path, "name: !!python/object/apply:os.system ['true']\n")[0]


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "a: 1\na: 2\n", "just a word", ""])
def test_what_is_no_suite_is_refused_in_lines_that_name_the_file(tmp_path, text):
    with pytest.raises(DpflbenchError) as caught:
        suites.load(write(tmp_path, text))
    assert all(line.startswith(f"{tmp_path / 's.yaml'}: ") for line in str(caught.value).splitlines())


def test_a_misspelt_file_is_answered_with_the_nearest_one(tmp_path, tiny):
    write(tmp_path, tiny, "heterogeneity.yaml")
    with pytest.raises(DpflbenchError) as caught:
        suites.load(tmp_path / "heterogenity.yaml")
    there = tmp_path / "heterogeneity.yaml"
    assert str(caught.value) == f"{tmp_path / 'heterogenity.yaml'}: no such file; did you mean '{there}'?"


def test_a_misspelt_name_is_answered_with_the_suite_below_or_with_the_one_that_comes_along(tmp_path, tiny, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DpflbenchError) as caught:
        suites.load(Path("smoek"))
    assert str(caught.value) == "smoek: no such file; did you mean 'smoke', a suite that comes with dpflbench?"
    with pytest.raises(DpflbenchError) as caught:
        suites.load(Path("zzz"))
    assert str(caught.value) == (
        "zzz: no such file; give the path of a suite, a YAML file, or a name that `dpflbench suites` lists, "
        "such as smoke"
    )
    (tmp_path / "suites").mkdir()
    write(tmp_path / "suites", tiny, "smoke.yaml")
    with pytest.raises(DpflbenchError) as caught:
        suites.load(Path("smok.yaml"))
    assert str(caught.value) == "smok.yaml: no such file; did you mean 'suites/smoke.yaml'?"


def test_overrides_reach_into_mappings_lists_and_axes(tmp_path, tiny):
    tiny["algorithms"] = ["FedSGD", {"use": "PFA", "with": {"rank": 1}}]
    path = write(tmp_path, tiny)
    suite = suites.load(
        path,
        [
            "federation.rounds=50",
            "algorithms[1].with.rank=3",
            "axes.privacy.epsilon.high=[1, 6]",
            "privacy.mechanism.name=laplace",
            "privacy.delta.value=1e-6",
        ],
    )
    assert suite.base["federation"]["rounds"] == 50
    assert suite.entries[1].label == "PFA(rank=3)"
    assert suite.axes == {"privacy.epsilon.high": [1, 6]}
    assert suite.base["privacy"]["mechanism"] == {"name": "laplace"}
    assert suite.base["privacy"]["delta"]["value"] == 1e-6


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("federation.rounds", "--set federation.rounds: expected key=value"),
        ("algorithms[9]=X", "--set algorithms[9]: '9' is no index of a list of 3"),
        ("name.x=1", "--set name.x: 'name' is 'tiny', nothing can be set below it"),
    ],
)
def test_an_override_that_leads_nowhere_is_refused(tmp_path, tiny, override, message):
    assert problems_of(tmp_path, tiny, override) == [message]


def test_extends_merges_mappings_and_replaces_lists_axes_and_other_kinds(tmp_path, tiny):
    tiny["axes"] = {"privacy.mechanism": ["gaussian", "laplace"]}
    tiny["task"]["partition"] = {"kind": "dirichlet", "alpha": 3.0}
    write(tmp_path, tiny, "base.yaml")
    child = {
        "extends": "base.yaml",
        "name": "child",
        "axes": {"privacy.epsilon.high": [1, 2]},
        "algorithms": ["DPSGD"],
        "task": {"partition": "iid"},
        "federation": {"rounds": 9},
    }
    suite = suites.load(write(tmp_path, child))
    assert suite.axes == {"privacy.epsilon.high": [1, 2]}
    assert [e.use for e in suite.entries] == ["DPSGD"]
    assert suite.base["task"]["partition"] == {"kind": "iid"}
    assert suite.base["federation"] == tiny["federation"] | {"rounds": 9}


def test_a_suite_that_extends_itself_is_refused(tmp_path, tiny):
    write(tmp_path, tiny | {"extends": "b.yaml"}, "a.yaml")
    write(tmp_path, {"extends": "a.yaml"}, "b.yaml")
    with pytest.raises(SuiteError, match="extends itself"):
        suites.load(tmp_path / "a.yaml")


def test_options_that_differ_from_the_default_show_in_the_label(tmp_path, tiny):
    tiny["algorithms"] = [
        {"use": "compose", "with": {"selector": {"name": "bcs", "probe_rounds": 5}, "aggregator": "pfa"}},
        {"use": "compose", "as": "PFA-BCS", "with": {"aggregator": "pfa"}},
    ]
    labels = [e.label for e in suites.load(write(tmp_path, tiny)).entries]
    assert labels == ["compose(aggregator=pfa, selector=bcs)", "PFA-BCS"]


def test_paths_of_npz_files_start_at_the_suite_that_names_them_and_set_ones_here(tmp_path, tiny, blobs, monkeypatch):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "own.npz").write_bytes(blobs.read_bytes())
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "other.npz").write_bytes(blobs.read_bytes())
    tiny["task"]["dataset"]["path"] = "own.npz"
    write(tmp_path / "base", tiny)
    child = write(tmp_path, "name: child\nextends: base/s.yaml\n", "child.yaml")
    monkeypatch.chdir(tmp_path / "here")

    def path_of(*arguments):
        return suites.load(*arguments).base["task"]["dataset"]["path"]

    assert path_of(tmp_path / "base" / "s.yaml") == "own.npz"
    assert path_of(child) == "base/own.npz"
    assert path_of(child, ["task.dataset.path=other.npz"]) == "here/other.npz"
    assert path_of(child, ["task.dataset={name: npz, path: other.npz}"]) == "here/other.npz"
    assert path_of(child, [f"task.dataset.path={blobs}"]) == str(blobs)
    axes = suites.load(child, ["axes.task.dataset.path=[other.npz, ../base/own.npz]"]).axes
    assert axes == {"task.dataset.path": ["here/other.npz", "base/own.npz"]}


def test_settings_that_vary_together_are_an_axis_of_cases(tmp_path, tiny, catalogue):
    tiny["cases"] = {
        "steep": {"federation.lr.initial": 2.0, "privacy.clip": 1.0},
        "flat": {"federation.lr.initial": 0.5},
    }
    tiny["axes"] = {"privacy.epsilon.high": [1, 6]}
    suite = suites.load(write(tmp_path, tiny))
    found = {
        (c.coordinates["case"], c.coordinates["privacy.epsilon.high"]): c.assembly
        for c in columns_of(suite, catalogue)
        if c.entry.use == "DPSGD"
    }
    assert {at: (a.federation.lr.initial, a.privacy.clip_norm) for at, a in found.items()} == {
        ("steep", 1): (2.0, 1.0),
        ("steep", 6): (2.0, 1.0),
        ("flat", 1): (0.5, tiny["privacy"]["clip"]),
        ("flat", 6): (0.5, tiny["privacy"]["clip"]),
    }


def test_what_is_wrong_with_cases_is_said_with_its_path(tmp_path, tiny):
    tiny["axes"] = {"privacy.epsilon.high": [1, 6]}
    tiny["tune"] = {"federation.lr.initial": [1, 2]}
    tiny["cases"] = {
        "a": {"seeds": 3, "privacy.epsilon": 2.0},
        "b": {"federation.lr": {"initial": 1.0}, "federation.lr.decay": 3},
        "c": [],
    }
    assert problems_of(tmp_path, tiny) == [
        "cases.a.seeds: a case varies task, federation or privacy",
        "cases.a.privacy.epsilon: an axis sets it already; allowed: one of the two",
        "cases.b.federation.lr.decay: the case sets what it is part of; allowed: one of the two",
        "cases.c: expected a mapping from path to value, found []",
        "tune.federation.lr.initial: the axis federation.lr sets it already; allowed: one of the two",
    ]


def test_cases_of_a_base_are_replaced_and_their_files_are_found_from_the_suite(tmp_path, tiny):
    (tmp_path / "below").mkdir()
    write(tmp_path, {**tiny, "cases": {"mine": {"task.dataset": {"name": "npz", "path": "x.npz"}}}}, "base.yaml")
    here = suites.load(write(tmp_path / "below", {"extends": "../base.yaml"}))
    assert here.cases == {"mine": {"task.dataset": {"name": "npz", "path": "../x.npz"}}}
    other = {"extends": "../base.yaml", "cases": {"other": {"federation.rounds": 2}}}
    assert list(suites.load(write(tmp_path / "below", other)).cases) == ["other"]
