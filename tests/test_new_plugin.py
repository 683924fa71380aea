"""The skeleton of a plugin: names, refusals and content. That it passes as it is, installed from a wheel:
test_example_package.py.
"""

import ast
import importlib
import re
import sys
import tomllib
from pathlib import Path
from typing import get_args

import pytest
import yaml
from harness import record_of

from dpflbench import suite_reading as suites
from dpflbench import testing
from dpflbench.catalogue import Catalogue, Part
from dpflbench.cli import main
from dpflbench.errors import DpflbenchError
from dpflbench.hookspecs import KINDS
from dpflbench.regression.compare import Tier
from dpflbench.scaffold import names_of, skeleton, write_skeleton
from dpflbench.scaffold_kinds import TEMPLATES
from dpflbench.testing import check_part


def command(monkeypatch, capsys, *args):
    monkeypatch.setattr(sys, "argv", ["dpflbench", *map(str, args)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, capsys.readouterr()


@pytest.mark.parametrize("name", ["my-idea", "dpflbench-my-idea"])
def test_one_name_in_four_spellings(name):
    names = names_of(name)
    assert (names.plugin, names.distribution, names.module, names.label) == (
        "my_idea",
        "dpflbench-my-idea",
        "dpflbench_my_idea",
        "MyIdea",
    )


@pytest.mark.parametrize(
    "name",
    [
        "",
        "My-Idea",
        "../etc",
        "a/b",
        "a\\b",
        "-a",
        "a-",
        "a--b",
        "a_b",
        "a b",
        "1st",
        "a.b",
        "\x1b[2J",
        "é",
        "a" * 51,
        "dpflbench-",
        "$(rm)",
        "a\n",
    ],
)
def test_what_is_no_name_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DpflbenchError, match="not a name"):
        write_skeleton(name)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_content_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(DpflbenchError, match="is there already"):
        write_skeleton("my-idea", tmp_path)
    with pytest.raises(DpflbenchError, match="is there already"):
        write_skeleton("my-idea", tmp_path / "mine.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("name", ["mean", "weiavg", "parts", "pfa"])
def test_a_name_that_is_taken_is_refused(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, printed = command(monkeypatch, capsys, "new-plugin", name)
    assert code == 2
    assert "of dpflbench has that name; take another" in printed.err
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_a_folder_and_says_what_is_next(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, printed = command(monkeypatch, capsys, "new-plugin", "my-idea")
    assert code == 0
    assert printed.out.splitlines()[-1] == 'Next: pip install -e "dpflbench-my-idea[dev]" && dpflbench check my_idea'
    written = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert written == {line for line in printed.out.splitlines() if line.startswith("dpflbench-my-idea/")}
    assert len(written) == 8


def test_the_skeleton_is_what_it_says(tmp_path):
    files = skeleton(names_of("my-idea"))
    assert not [path for path, text in files.items() if "@plugin@" in text or "@label@" in text or "@module@" in text]
    project = tomllib.loads(files["pyproject.toml"])
    assert project["project"]["entry-points"]["dpflbench"] == {"my_idea": "dpflbench_my_idea"}
    ast.parse(files["src/dpflbench_my_idea/__init__.py"])
    assert len(files["src/dpflbench_my_idea/__init__.py"].splitlines()) < 60
    (tmp_path / "suite.yaml").write_text(files["suite.yaml"])
    assert [e.use for e in suites.load(tmp_path / "suite.yaml").entries] == ["compose", "MyIdea"]


@pytest.mark.parametrize("kind", TEMPLATES)
def test_the_skeleton_of_every_kind_is_code_with_one_hook_of_its_kind_a_test_and_a_suite(kind, tmp_path, catalogue):
    files = skeleton(names_of("my-idea"), TEMPLATES[kind])
    assert not [path for path, text in files.items() if re.search("@[a-z_]+@", text)]
    code = files["src/dpflbench_my_idea/__init__.py"]
    assert f"def dpflbench_{TEMPLATES[kind].hook}()" in code
    assert len(code.splitlines()) < 70
    ast.parse(files["tests/test_my_idea.py"])
    suite = yaml.safe_load(files["suite.yaml"])
    assert suite["algorithms"][0] == {
        "use": "compose",
        "as": "Plain",
        "with": {"selector": "uniform", "aggregator": "mean"},
    }
    assert "my_idea" in files["suite.yaml"].partition("task:")[2] or "MyIdea" in suite["algorithms"]


def test_an_unknown_kind_is_refused_with_a_suggestion(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, printed = command(monkeypatch, capsys, "new-plugin", "my-idea", "--kind", "agregator")
    assert code == 2
    assert printed.err == "dpflbench: new-plugin --kind agregator: unknown; did you mean 'aggregator'?\n"
    assert list(tmp_path.iterdir()) == []
    assert command(monkeypatch, capsys, "new-plugin", "softmax", "--kind", "model")[0] == 2  # taken
    assert command(monkeypatch, capsys, "new-plugin", "softmax", "--kind", "selector")[0] == 0


def test_the_workflow_checks_tests_runs_verifies_and_compares():
    body = yaml.safe_load(skeleton(names_of("my-idea"))[".github/workflows/dpflbench.yml"])
    steps = [step.get("run", "") for step in body["jobs"]["check"]["steps"]]
    commands = [s.split(" ")[:2] for s in steps if s.startswith(("dpflbench", "pytest"))]
    assert commands == [
        ["dpflbench", "check"],
        ["pytest"],
        ["dpflbench", "run"],
        ["dpflbench", "verify"],
        ["dpflbench", "compare"],
    ]


def blocks(language):
    guide = (Path(__file__).parent.parent / "plugins" / "README.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", guide, flags=re.DOTALL)


def test_the_workflow_of_the_guide_is_the_one_that_is_written():
    assert blocks("yaml") == [skeleton(names_of("my-idea"))[".github/workflows/dpflbench.yml"]]


@pytest.fixture
def guide(tmp_path, monkeypatch):
    """The code of the guide but its last block, which is tests, as a module."""
    (tmp_path / "code_of_the_guide.py").write_text("\n".join(blocks("python")[:-1]))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "code_of_the_guide", raising=False)
    return importlib.import_module("code_of_the_guide")


def parts_of(guide):
    for kind in KINDS:
        for name, factory in getattr(guide, f"dpflbench_{kind}", dict)().items():
            yield Part(kind, name, factory, "guide", "guide", "1", "code_of_the_guide")


def test_the_code_of_the_guide_conforms(guide):
    parts = list(parts_of(guide))
    assert {p.kind for p in parts} >= {"aggregators", "selectors", "partitions", "local_rules"}
    for part in parts:
        assert check_part(part) == ""
    namespace = dict(vars(guide))
    exec(compile(blocks("python")[-1], "the guide", "exec"), namespace)
    namespace["test_my_parts_conform"]()


def test_the_partition_of_the_guide_deals_out_the_data_of_a_suite(guide, tiny, catalogue):
    own = {part.name: part for part in parts_of(guide) if part.kind == "partitions"}
    known = Catalogue({**catalogue.parts, "partitions": {**catalogue.parts["partitions"], **own}})
    tiny["task"]["partition"] = {"kind": "two_sizes"}
    record = record_of(tiny, known, "DPSGD")
    assert record.status == "done", record.reason
    assert record.config["task"]["partition"] == {"kind": "two_sizes", "ratio": 3.0, "min_size": 10}
    # 600 examples in sixteen shares of 37.5, a fifth of each client's held out
    assert record.clients["n_examples"].tolist() == [38 - 7, 112 - 22] * 4


def test_the_local_rule_of_the_guide_trains_and_takes_less_than_sixty_lines(guide, tiny, catalogue):
    """Without noise, a pull of alpha and the clients' own gradients: every client's rows move, and so does h."""
    (block,) = (code for code in blocks("python") if "class FedDyn" in code)
    assert len(block.splitlines()) < 60
    own = {part.name: part for part in parts_of(guide) if part.kind == "local_rules"}
    known = Catalogue({**catalogue.parts, "local_rules": {**catalogue.parts["local_rules"], **own}})
    tiny["federation"]["local"] = {"kind": "minibatch", "steps": 3, "batch": 10, "lr": 0.2}
    record = record_of(tiny, known, "compose", rule={"name": "feddyn"})
    assert record.status == "done", record.reason
    assert record.config["algorithm"]["rule"] == {"name": "feddyn", "alpha": 0.1}
    plain = record_of(tiny, known, "compose")
    assert "rule" not in plain.config["algorithm"]
    assert record.facts["final_model"] != plain.facts["final_model"]


def test_the_guide_names_every_check_and_every_tier():
    guide = (Path(__file__).parent.parent / "plugins" / "README.md").read_text()
    assert all(
        f"`{name}`" in guide
        for name in testing.__all__
        if name.startswith("check_") and name not in ("check_part", "check_plugin")
    )
    assert all(f"| {tier} |" in guide for tier in get_args(Tier))
