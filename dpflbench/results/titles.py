"""What a place of a table is called, wherever it is named: algorithm, coordinates, seed; and how numbers are spelt.

Names come from plugins and suites, that is from strangers: `clean` shows what could move a cursor or turn text around
as escapes.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

LABELS = {
    "privacy.mechanism": "mechanism",
    "privacy.epsilon.high": "ε max",
    "privacy.epsilon.low": "ε min",
    "task.partition.alpha": "alpha",
    "task.dataset.name": "data set",
    "task.dataset": "data set",
    "federation.lr.initial": "learning rate",
    "task.model": "model",
}
DATASETS = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "femnist": "FEMNIST",
    "cifar10": "CIFAR-10",
    "cifar-10": "CIFAR-10",
    "lending": "Lending Club",
    "lending_club": "Lending Club",
    "lending-club": "Lending Club",
}


def clean(text: object, limit: int = 1000) -> str:
    """One line of printable text: control, format and separator characters become visible escapes, length is
    bounded.
    """
    out = []
    for char in str(text).replace("\r\n", " ").replace("\n", " ").replace("\t", " "):
        category = unicodedata.category(char)
        out.append(f"\\u{ord(char):04x}" if category in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} else char)
    line = "".join(out)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def printable(text: object) -> str:
    """The text with control and formatting characters shown as escapes; line breaks and tabs too."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def short(name: object) -> str:
    """A name from a plugin or a suite, safe to show and not too long."""
    return clean(name, 60)


def axis(path: str) -> str:
    """A short name of an axis: the glossary's, or the path without its section."""
    return LABELS.get(path) or clean(path.split(".", 1)[-1], 60)


def plain(value: float, digits: int = 6) -> str:
    """A number in few letters: `3`, `−0.5`, `10⁻⁵`, `2.5·10³⁸`; at most so many significant digits."""
    text = f"{value:.{digits}g}"
    mantissa, _, power = text.partition("e")
    if power:
        raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        text = f"{mantissa}·10{raised}"
        text = text.removeprefix("1·") if mantissa == "1" else text
    return text.replace("-", "−").replace("inf", "∞")


def axis_value(value: Any) -> str:
    """An axis value in few letters: numbers plain, mappings by their name or kind with the rest in brackets."""
    if isinstance(value, Mapping):
        key = next((k for k in ("name", "kind", "use") if isinstance(value.get(k), str)), None)
        rest = ", ".join(f"{clean(k, 60)} {axis_value(v)}" for k, v in value.items() if k != key)
        if key is None:
            return clean(rest, 60)
        return axis_value(value[key]) + (f" ({clean(rest, 60)})" if rest else "")
    if isinstance(value, list | tuple):
        return clean("/".join(axis_value(v) for v in value), 60)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float | int):
        return plain(value)
    return DATASETS.get(str(value), short(value))


def coordinate(path: str, value: Any) -> str:
    """One coordinate in words: `gaussian`, `ε max 3`."""
    named = isinstance(value, str) or (
        isinstance(value, Mapping) and not value.keys().isdisjoint(("name", "kind", "use"))
    )
    return axis_value(value) if named else f"{axis(path)} {axis_value(value)}"


def coordinates(values: Mapping[str, Any], only: Sequence[str] | None = None, joint: str = ", ") -> str:
    """Coordinates in words; `only` picks and orders axes."""
    paths = list(values) if only is None else [p for p in only if p in values]
    return joint.join(coordinate(p, values[p]) for p in paths)


def title(algorithm: str, where: Mapping[str, Any], seed: int | None = None) -> str:
    """`DPSGD (gaussian, ε max 3), seed 0`; without a seed for all of them."""
    words = coordinates(where)
    return short(algorithm) + (f" ({words})" if words else "") + ("" if seed is None else f", seed {seed}")
