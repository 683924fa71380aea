"""The frame of a panel: the room it gets, its axes and their ticks, its title."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpflbench.report.charts.chart import Panel
from dpflbench.report.charts.looks import NOT_PRIVATE, Look
from dpflbench.report.charts.svg import LINE, Scale, n, path, text_width, tick_text, words, wrapped

Looks = Mapping[str, Look]
FOOT, LABEL = 18.0, 14.0  # below a panel: room for ticks, and for the name of the axis
MARGIN = 8.0  # left of a panel without names
ASPECT, LOWEST, TALLEST = 0.66, 112.0, 215.0


@dataclass(frozen=True, slots=True)
class Axis:
    """The range of an axis."""

    low: float
    high: float
    log: bool = False

    def scale(self, start: float, end: float) -> Scale:
        """The axis at its place."""
        return Scale(self.low, self.high, start, end, self.log)


@dataclass(frozen=True, slots=True)
class Frame:
    """The room of a panel and what it says of its axes."""

    wide: float
    room: float  # of that without names it has for others too
    title: float  # the size its title is wrapped for
    top: float
    x: Axis
    y: Axis
    first: bool = True  # of its row: it has the names and ticks of the y axis
    last: bool = True  # of its column: it has the name of the x axis

    @property
    def foot(self) -> float:
        """The room below."""
        return FOOT + LABEL * self.last

    @property
    def tall(self) -> float:
        """How high the drawing of a plane is."""
        return min(max(ASPECT * self.room, LOWEST), TALLEST) - FOOT - LABEL


@dataclass(frozen=True, slots=True)
class Drawn:
    """One panel: SVG elements and the room they take."""

    body: str
    wide: float
    high: float
    title: str


def look_of(looks: Looks, name: str) -> Look:
    """The look of a name; one like a/b, which stands for several, looks like its first."""
    return looks.get(name) or looks.get(name.split("/")[0]) or NOT_PRIVATE


def drawn(panel: Panel, body: Sequence[str], frame: Frame, size: tuple[float, float], label: str) -> Drawn:
    """A panel of a size under its title."""
    middle = frame.wide - frame.room / 2
    lines = enumerate(wrapped(panel.title, frame.room, frame.title))
    title = "".join(words(middle, 13 + LINE * i, line, more=' class="t"') for i, line in lines)
    return Drawn(title + "".join(body), *size, f"{panel.title}: {label}" if panel.title else label)


def axis_lines(x: Scale, y: Scale, labels: tuple[str, str], high: float) -> str:
    """Frame and names of the axes."""
    middle = (y.start + y.end) / 2
    return (
        path("f", f"M{n(x.start)},{n(y.end)}V{n(y.start)}H{n(x.end)}")
        + (words((x.start + x.end) / 2, high - 4, labels[0]) if labels[0] else "")
        + (words(11, middle, labels[1], more=f' transform="rotate(-90 11 {n(middle)})"') if labels[1] else "")
    )


def x_ticks(values: Iterable[float], x: Scale, top: float, bottom: float) -> str:
    """Lines at values of the x axis, and their labels, none of which runs into the one before."""
    out, free = [], -math.inf
    for v in values:
        text, at = tick_text(v), x(v)
        half = text_width(text) / 2
        out.append(path("g", f"M{n(at)},{n(top)}V{n(bottom)}"))
        if at - half > free:
            out.append(words(at, bottom + 13, text))
            free = at + half + 3
    return "".join(out)
