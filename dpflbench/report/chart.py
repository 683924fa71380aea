"""Chart: what a figure shows, without how it is drawn. figures.py draws it for paper, svg.py for the HTML page."""

from dataclasses import dataclass, field

from dpflbench.report.statistics import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Points of one algorithm."""

    name: str  # what its style goes by
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    line: bool = True
    markers: bool = False
    hints: tuple[str, ...] = ()  # one a point


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """Two numeric axes."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    y_log: bool = False
    x_ticks: tuple[float, ...] = ()  # empty: as it falls


@dataclass(frozen=True, slots=True)
class Mark:
    """One sign in a row."""

    row: int
    x: float
    marker: str
    hint: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """One row for each algorithm, signs along a numeric axis."""

    title: str
    x_label: str
    names: tuple[str, ...]
    marks: tuple[Mark, ...]
    joined: bool = False  # a thin line through the signs of a row
    x_log: bool = False


@dataclass(frozen=True, slots=True)
class Square:
    """One square of a grid."""

    row: int
    column: int
    name: str  # whose colour it has; empty: none
    text: tuple[str, ...]
    hint: str


@dataclass(frozen=True, slots=True)
class Grid:
    """Two axes of a few values each."""

    title: str
    x_label: str
    y_label: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    squares: tuple[Square, ...]


Panel = Plane | Rows | Grid


@dataclass(frozen=True, slots=True, eq=False)
class Chart:
    """One figure: panels of one kind and what explains them."""

    key: str  # its anchor and file name
    title: str
    caption: str
    panels: tuple[Panel, ...]
    names: tuple[str, ...] = ()  # legend, by style
    signs: tuple[tuple[str, str], ...] = field(default_factory=tuple)  # legend, marker → meaning
    same_y: bool = True  # panels with the same y label share its range
