"""How an algorithm looks: colour, dashes and marker by its name alone, the same in every figure of every report.

The colours are Okabe and Ito's (2008), told apart with any colour vision, and a few of Tol's (2021); dashes and markers
tell them apart in grey print too.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Style:
    """The look of one algorithm."""

    light: str  # on white paper
    dark: str  # on a dark screen
    dash: tuple[float, ...]  # empty: solid
    marker: str  # a name of MARKERS


# name → (matplotlib's sign, polygon around the origin for SVG; empty for a circle)
MARKERS: dict[str, tuple[str, tuple[tuple[float, float], ...]]] = {
    "circle": ("o", ()),
    "square": ("s", ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9))),
    "diamond": ("D", ((0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0))),
    "up": ("^", ((0, -1.1), (1.1, 0.9), (-1.1, 0.9))),
    "down": ("v", ((0, 1.1), (1.1, -0.9), (-1.1, -0.9))),
    "left": ("<", ((-1.1, 0), (0.9, -1.1), (0.9, 1.1))),
    "right": (">", ((1.1, 0), (-0.9, -1.1), (-0.9, 1.1))),
    "plus": (
        "P",
        (
            (-0.4, -1.2),
            (0.4, -1.2),
            (0.4, -0.4),
            (1.2, -0.4),
            (1.2, 0.4),
            (0.4, 0.4),
            (0.4, 1.2),
            (-0.4, 1.2),
            (-0.4, 0.4),
            (-1.2, 0.4),
            (-1.2, -0.4),
            (-0.4, -0.4),
        ),
    ),
}
KNOWN = {
    "FedSGD": Style("#000000", "#f2f2f2", (1.5, 1.5), "plus"),
    "DPSGD": Style("#d55e00", "#f0803c", (5, 2), "down"),
    "DMLDP": Style("#e69f00", "#f0b33c", (5, 2), "left"),
    "WeiAvg": Style("#56b4e9", "#7cc8f4", (), "square"),
    "PFA": Style("#009e73", "#2fc69a", (7, 2, 1.5, 2), "up"),
    "PRIVATEFL": Style("#cc79a7", "#e39ac4", (3, 1.5), "right"),
    "DPFL-BCS": Style("#0072b2", "#4aa3df", (), "circle"),
    "PRIVATEFL-BCS": Style("#882255", "#d0649d", (9, 2), "diamond"),
    "Robust-HDP": Style("#117733", "#55b573", (2, 1), "square"),
    "Power-of-choice": Style("#999933", "#c9c95a", (7, 2, 1.5, 2), "up"),
    "Uniform-minimum": Style("#888888", "#a8a8a8", (1, 1), "down"),
    "IDP-clipping": Style("#332288", "#9285e0", (4, 1.5, 1, 1.5), "right"),
}
COLOURS = (
    ("#44aa99", "#6fd0c0"),
    ("#aa4499", "#d37cc4"),
    ("#661100", "#c2674f"),
    ("#6699cc", "#93bce6"),
    ("#cc6677", "#e795a2"),
    ("#5b5b00", "#b5b54a"),
)
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (2, 1), (7, 2, 1.5, 2))
SIGNS = tuple(MARKERS)


def _stranger(number: int) -> Style:
    light, dark = COLOURS[number % len(COLOURS)]
    turn = number // (len(COLOURS) * len(DASHES))  # the second time round each colour and dash has another marker
    return Style(light, dark, DASHES[number // len(COLOURS) % len(DASHES)], SIGNS[(number + turn) % len(SIGNS)])


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Name → style: fixed for the built-in algorithms, from a hash for strangers; two strangers in one report never
    share one.

    A name like DPSGD/DMLDP, which stands for several, looks like its first.
    """
    room = len(COLOURS) * len(DASHES) * 2
    out: dict[str, Style] = {}
    taken: set[int] = set()
    for name in sorted(set(names)):
        known = KNOWN.get(name) or KNOWN.get(name.split("/")[0])
        if known is not None:
            out[name] = known
            continue
        number = zlib.crc32(name.encode("utf-8", "replace")) % room
        while number in taken and len(taken) < room:
            number = (number + 1) % room
        taken.add(number)
        out[name] = _stranger(number)
    return out
