"""The conformance kit: every part that dpflbench itself supplies keeps the rules, and the command says so."""

import sys
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hostile.parts import Dots, IgnoresTheSeed, Median
from hostile.populations import UnboundedBudget

from dpflbench import testing
from dpflbench.catalogue import Part, load
from dpflbench.cli import main
from dpflbench.errors import DpflbenchError
from dpflbench.federation.schedule import even_uses
from dpflbench.hookspecs import KINDS
from dpflbench.interfaces import Plan
from dpflbench.tasks.population import Uniform
from dpflbench.testing import ConformanceError, check_aggregator, check_part, check_plugin, check_selector, examine
from dpflbench.testing.rules import difference
from dpflbench.testing.worlds import setup_of, standard_noise, updates_of

PARTS = [part for kind in load().parts.values() for part in kind.values() if part.distribution == "dpflbench"]


@pytest.mark.parametrize("part", PARTS, ids=[f"{p.kind[:-1]}-{p.name}" for p in PARTS])
def test_every_built_in_part_keeps_the_rules(part):
    left_out = check_part(part)
    assert left_out == "" or part.kind == "datasets"


def test_every_kind_of_part_was_looked_at():
    kinds = Counter(part.kind for part in PARTS)
    assert set(kinds) == set(KINDS)
    assert kinds["algorithms"] >= 12


def command(monkeypatch, capsys, *args):
    monkeypatch.setattr(sys, "argv", ["dpflbench", *args])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, capsys.readouterr()


def test_the_command_prints_one_line_a_part_and_a_verdict(monkeypatch, capsys):
    code, printed = command(monkeypatch, capsys, "check", "weiavg")
    lines = printed.out.splitlines()
    assert code == 0
    assert [line.split(" (")[0] for line in lines] == [
        "ok      aggregator epsilon_weighted",
        "ok      algorithm WeiAvg",
        "2 parts: 2 ok, 0 not wholly checked, 0 failed",
    ]


def test_an_unknown_plugin_gets_a_suggestion(monkeypatch, capsys):
    code, printed = command(monkeypatch, capsys, "check", "weivag")
    assert code == 2
    assert printed.err == "dpflbench: check weivag: no such plugin; did you mean 'weiavg'?\n"


def install(folder, name, body):
    """A distribution as pip leaves it behind: a module and its metadata."""
    (folder / f"{name}.py").write_text(body)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[dpflbench]\n{name} = {name}\n")


def test_the_command_exits_1_and_escapes_what_a_broken_part_says(monkeypatch, capsys, tmp_path):
    install(
        tmp_path,
        "surprise",
        (
            "from dpflbench import hookimpl\n"
            "class Surprise:\n"
            "    '''Clears the screen.'''\n"
            "    def init(self, setup): raise RuntimeError('\\x1b[2Jgone')\n"
            "    def aggregate(self, updates, state): pass\n"
            "@hookimpl\n"
            "def dpflbench_aggregators(): return {'surprise': Surprise}\n"
        ),
    )
    monkeypatch.syspath_prepend(tmp_path)
    code, printed = command(monkeypatch, capsys, "check", "surprise")
    assert code == 1
    first, verdict = printed.out.splitlines()
    assert first.startswith(
        "failed  plugin 'surprise' of surprise 1.0: aggregator 'surprise': init(setup) raises RuntimeError: "
    )
    assert "\\x1b[2Jgone; expected" in first
    assert verdict == "1 parts: 0 ok, 0 not wholly checked, 1 failed"
    with pytest.raises(ConformanceError, match="init\\(setup\\) raises"):
        check_plugin("surprise")


def test_a_plugin_that_does_not_load_exits_2_with_one_line(monkeypatch, capsys, tmp_path):
    install(tmp_path, "broken", "import nothing_of_the_kind\n")
    monkeypatch.syspath_prepend(tmp_path)
    code, printed = command(monkeypatch, capsys, "check", "all")
    assert code == 2
    assert printed.err == (
        "dpflbench: plugin 'broken' of broken 1.0: does not import (ModuleNotFoundError: No module named "
        "'nothing_of_the_kind'); go on without a plugin by --without NAME\n"
    )


def test_a_part_that_needs_parameters_is_checked_as_far_as_possible():
    def needy(path: str) -> Dots:
        """Needs a path."""
        return Dots()

    outcome = check_part(Part("datasets", "needy", needy, "p", "d", "1", "m"))
    assert outcome == (
        "needs path: give its factory `examples` of parameters to try, or check it in its own tests by "
        "dpflbench.testing.check_dataset(dataset)"
    )


def test_a_factory_is_checked_with_every_example_it_declares():
    tried = []

    def shifted(by: float) -> Uniform:
        """Budgets from `by` on."""
        tried.append(by)
        return Uniform(by, 4.0) if by < 3 else UnboundedBudget()

    shifted.examples = [{"by": 1.0}, {"by": 2}]
    part = Part("budgets", "shifted", shifted, "p", "d", "1", "m")
    assert check_part(part) == ""
    assert tried == [1.0, 2.0]
    shifted.examples = [{"by": 1.0}, {"by": 3.0}]
    with pytest.raises(ConformanceError, match=r"budget 'shifted' with \{'by': 3.0\}: bounds\(\) is \(0.0, inf\)"):
        check_part(part)
    shifted.examples = [{"yb": 1.0}]
    with pytest.raises(ConformanceError, match=r"examples.yb: unknown; allowed: by"):
        check_part(part)


def test_every_kind_has_its_check():
    for kind in KINDS:
        assert callable(getattr(testing, f"check_{kind[:-1]}"))


def test_data_that_is_not_there_is_said_and_is_no_failure(tmp_path):
    outcomes = {o.part.name: o for o in examine("parts", load(), tmp_path) if o.part.kind == "datasets"}
    assert outcomes["mnist"].status == "ok"
    assert outcomes["cifar10"].status == "partly"
    assert "its data is not on this machine" in outcomes["cifar10"].message


def test_a_selector_for_one_mechanism_is_checked_under_that_one_only():
    with pytest.raises(ConformanceError):
        check_selector(IgnoresTheSeed, mechanisms=frozenset({"laplace"}))
    check_selector(IgnoresTheSeed, mechanisms=frozenset({"staircase"}))  # nothing installed to check it under


def test_the_worlds_of_a_check_are_what_a_run_hands_over():
    for noise in standard_noise().values():
        setup = setup_of(noise)
        updates = updates_of(setup, 0, 6)
        assert updates.values.shape == (6, setup.layout.dim) == (6, 53)
        assert (updates.clients.diff() > 0).all()
        assert setup.budget.shape == (12, 1)
        assert not difference(updates, updates_of(setup, 0, 6))


def test_a_difference_is_named_by_its_path():
    setup = setup_of(standard_noise()["gaussian"])
    assert difference({"a": [1.0, 2.0]}, {"a": [1.0, 3.0]}) == "['a'][1]"
    assert difference(setup, setup_of(standard_noise()["gaussian"], equal=True)) == "n_examples"
    assert difference(float("nan"), float("nan")) == ""
    assert difference(Median(), Median()) == ""


def test_an_empty_name_is_no_plugin():
    with pytest.raises(DpflbenchError, match="no such plugin"):
        examine("")


# ---------------------------------------------------------------- beyond the usual world


@dataclass
class Settable:
    """Anybody can change how it weighs."""

    power: float = 1.0

    def weights(self, cohort):
        return None


@dataclass(slots=True)
class SettableSlots:
    """The same without a dictionary."""

    power: float = 1.0

    def weights(self, cohort):
        return None


@pytest.mark.parametrize("kind", [Settable, SettableSlots])
def test_a_part_that_can_be_changed_is_refused(kind):
    with pytest.raises(ConformanceError, match=rf"{kind.__name__}.power can be set.*frozen=True"):
        check_aggregator(kind)


@dataclass(frozen=True)
class DividesByNoise:
    """Weights of one over the variance, whatever that is."""

    def weights(self, cohort):
        raw = 1 / cohort.variance
        return raw / raw.sum()


def test_an_aggregator_that_divides_by_a_variance_of_zero_is_refused():
    with pytest.raises(ConformanceError, match=r"rows without noise.*non-finite values of finite updates"):
        check_aggregator(DividesByNoise)


@dataclass(frozen=True)
class OneNumberOnly:
    """Takes for granted that a budget is one number a client."""

    def plan(self, view, rng):
        left = view.left.reshape(view.setup.n_clients)
        uses = even_uses(view.setup.n_clients, view.rounds_left * view.setup.cohort_size, rng)
        return Plan(uses, view.rounds_left, cost=(left / np.maximum(uses, 1))[:, None])


def test_a_selector_that_knows_no_curve_of_orders_is_refused():
    with pytest.raises(ConformanceError, match="a currency of two orders"):
        check_selector(OneNumberOnly)
