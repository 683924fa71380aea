"""Finding plugins: who supplied what, and what is refused."""

from importlib.metadata import EntryPoint

import pytest

from dpflbench.catalogue import load
from dpflbench.errors import DpflbenchError, PluginError
from dpflbench.hookspecs import HOOKS, KINDS, kind_of
from dpflbench.interfaces import Aggregator, Dataset, Mechanism, Setup
from dpflbench_algorithms.parts import Mean

POINTS = [EntryPoint(name, f"dpflbench_algorithms.{name}", "dpflbench") for name in ("parts", "dpsgd", "weiavg")]


def install(folder, distribution, version="1.0", plugin="own", body="", module=None):
    """A distribution as pip leaves it behind; its metadata name is the distribution's."""
    module = module or distribution.replace("-", "_")
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(
        body
        or (
            "from dpflbench import hookimpl\nfrom hostile.parts import Median\n"
            f"@hookimpl\ndef dpflbench_aggregators(): return {{'{module}': Median}}\n"
        )
    )
    info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[dpflbench]\n{plugin} = {module}\n")


def test_every_installed_part_knows_its_supplier():
    parts = [p for kind in load().parts.values() for p in kind.values()]
    assert {p.kind for p in parts} == set(KINDS)
    for part in parts:
        assert part.distribution
        assert part.version
        assert part.plugin
    assert {p.name for p in parts if p.kind == "mechanisms"} >= {"gaussian", "laplace"}


def test_a_kind_is_one_line_its_hook_and_methods_follow_from_it():
    assert list(HOOKS) == [f"dpflbench_{kind}" for kind in KINDS]
    hook = HOOKS["dpflbench_partitions"]
    assert hook.__name__ == "dpflbench_partitions"
    assert hook.__doc__ == "Return name → factory of `interfaces.Partition`: who owns which example."
    assert KINDS["datasets"].missing(object) == "availability, digest, load()"
    assert KINDS["transforms"].missing(object) == "init, apply()"  # norm_local is no method
    assert KINDS["aggregators"].missing(object) == "weights() or init, aggregate()"
    assert KINDS["aggregators"].missing(Mean) == ""
    assert KINDS["algorithms"].missing(object) == ""
    assert KINDS["sections"].missing(object) == "contents()"


def test_an_interface_tells_its_kind():
    assert (kind_of(Mechanism), kind_of(Aggregator), kind_of(Dataset)) == ("mechanisms", "aggregators", "datasets")
    assert kind_of(Setup) is None
    assert kind_of(int | None) is None


def test_an_unknown_part_is_answered_with_the_nearest_one():
    with pytest.raises(DpflbenchError, match=r"unknown aggregator 'maen'; did you mean 'mean'\?"):
        load(points=POINTS).get("aggregators", "maen")


def test_without_a_plugin_its_parts_are_gone_and_an_unknown_one_is_refused():
    found = load(["weiavg"], POINTS)
    assert "WeiAvg" not in found.parts["algorithms"]
    assert "DPSGD" in found.parts["algorithms"]
    with pytest.raises(DpflbenchError, match=r"--without weivag: no such plugin; did you mean 'weiavg'\?"):
        load(["weivag"], POINTS)


def test_an_entry_point_listed_twice_by_one_distribution_is_one_plugin():
    assert load(points=POINTS * 2).parts.keys() == load(points=POINTS).parts.keys()


def test_two_names_for_one_module_are_refused():
    with pytest.raises(PluginError, match=r"module dpflbench_algorithms\.parts is another plugin already"):
        load(points=[*POINTS, EntryPoint("again", "dpflbench_algorithms.parts", "dpflbench")])


def test_an_entry_point_that_is_no_module_is_refused():
    with pytest.raises(
        PluginError, match=r"names dpflbench_algorithms.parts:Mean, a type; expected a module with hooks"
    ):
        load(points=[EntryPoint("odd", "dpflbench_algorithms.parts:Mean", "dpflbench")])


def test_two_distributions_with_a_plugin_of_one_name_are_both_named(monkeypatch, tmp_path):
    install(tmp_path / "a", "first-one", plugin="same")
    install(tmp_path / "b", "second-one", "2.0", plugin="same")
    for folder in ("a", "b"):
        monkeypatch.syspath_prepend(tmp_path / folder)
    with pytest.raises(PluginError) as caught:
        load()
    assert str(caught.value) == (
        "plugin 'same' of second-one 2.0: first-one has a plugin of that name too; "
        "go on without a plugin by --without NAME"
    )


def test_what_a_plugin_prints_in_its_name_cannot_move_the_cursor(monkeypatch, tmp_path, capsys):
    import sys

    from dpflbench.cli import main

    install(tmp_path, "noisy", body="raise RuntimeError('\\x1b[2J')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", ["dpflbench", "list"])
    with pytest.raises(SystemExit):
        main()
    assert "\\x1b[2J" in capsys.readouterr().err
