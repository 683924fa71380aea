"""A factory's keyword parameters are its schema."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from dpflbench.schema import INVALID, build, convert, plain, suggest


@dataclass(frozen=True)
class Inner:
    low: float
    high: float = 2.0

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low: {self.low} is above high {self.high}")


@dataclass(frozen=True)
class Outer:
    count: int
    inner: Inner = Inner(0.0)
    kind: Literal["a", "b"] = "a"


def test_nested_dataclasses_are_built_with_defaults():
    problems: list[str] = []
    assert build(Outer, {"count": 3, "inner": {"low": 1}}, "x", problems) == Outer(3, Inner(1.0, 2.0), "a")
    assert problems == []


def test_every_problem_is_collected_with_its_path():
    problems: list[str] = []
    assert build(Outer, {"cuont": 3, "inner": {"low": 5}, "kind": "c"}, "x", problems) is INVALID
    assert problems == [
        "x.cuont: unknown; did you mean 'count'?",
        "x.count: missing",
        "x.inner.low: 5.0 is above high 2.0",
        "x.kind: found 'c'; allowed: a, b",
    ]


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (3, float, 3.0),
        (3, int, 3),
        (True, bool, True),
        ("t", str, "t"),
        (None, int | None, None),
        (4, int | None, 4),
        ([1, 2], tuple[float, ...], (1.0, 2.0)),
        ([1, "a"], tuple[int, str], (1, "a")),
        ({"a": 1}, Mapping[str, float], {"a": 1.0}),
        ("p", Path, Path("p")),
        ([1], list[int], [1]),
        ("x", Any, "x"),
        ({"a": 2}, float | Mapping[str, float], {"a": 2.0}),
    ],
)
def test_values_are_converted_to_their_annotation(value, annotation, expected):
    problems: list[str] = []
    assert convert(value, annotation, "p", problems) == expected
    assert problems == []


@pytest.mark.parametrize(
    ("value", "annotation", "message"),
    [
        ("3", int, "p: expected an integer, found '3'"),
        (3.5, int, "p: expected an integer, found 3.5"),
        (True, int, "p: expected an integer, found True"),
        (float("nan"), float, "p: found NaN; expected a number"),
        ("x", float | None, "p: expected a number or null, found 'x'"),
        (1, list[int], "p: expected a list, found 1"),
        ([1], tuple[int, int], "p: expected 2 values, found 1"),
        (1, bool, "p: expected true or false, found 1"),
        ([1], Mapping[str, int], "p: expected a mapping, found [1]"),
        (1, Literal[True], "p: found 1; allowed: True"),
    ],
)
def test_nothing_is_guessed(value, annotation, message):
    problems: list[str] = []
    assert convert(value, annotation, "p", problems) is INVALID
    assert problems == [message]


def test_plain_is_what_can_be_hashed():
    assert plain({"a": Outer(1), "b": (1, Path("x"))}) == {
        "a": {"count": 1, "inner": {"low": 0.0, "high": 2.0}, "kind": "a"},
        "b": [1, "x"],
    }


def test_a_far_word_gets_the_whole_list():
    assert suggest("zzz", ["b", "a"]) == "allowed: a, b"
    assert suggest("dpsgd", ["DPSGD", "DMLDP"]) == "did you mean 'DPSGD'?"
    assert suggest("mnist", ["MNIST", "mnist"]) == "did you mean 'mnist'?"
