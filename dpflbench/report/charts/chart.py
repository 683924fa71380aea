"""Chart: what a figure shows, without how it is drawn. draw.py draws it, for the page and for files alike."""

from dataclasses import dataclass

from dpflbench.report.statistics import Floats


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Series:
    """Points of one algorithm."""

    name: str  # what its look goes by
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    line: bool = True
    markers: bool = False
    marker: str = ""  # empty: the algorithm's own
    hints: tuple[str, ...] = ()  # one a point
    size: float = 0.0  # of its markers; 0: as they fit
    below: float = 0.0  # how far its markers stand below their place, in units of the drawing


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Plane:
    """Two numeric axes."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    x_log: bool = False
    y_log: bool = False
    x_ticks: tuple[float, ...] = ()  # empty: as it falls
    limits: tuple[tuple[float, bool], ...] = ()  # lines at values of x, and whether they are dashed


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One sign in a lane."""

    lane: int
    x: float
    marker: str
    hint: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A stretch of a lane."""

    lane: int
    low: float
    high: float
    shade: float  # of the lane's colour, up to 1
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """One lane for each algorithm, signs along a numeric axis; signs with intervals stand below one another."""

    title: str
    x_label: str
    names: tuple[str, ...]
    marks: tuple[Mark, ...]
    bars: tuple[Bar, ...] = ()
    joined: bool = False  # a thin line through the signs of a lane
    x_log: bool = False
    zero: bool = False  # differences: where nothing differs there is a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Mean ranks on one axis, and what cannot be told apart joined by bars: the diagram of Demšar (2006)."""

    title: str
    x_label: str
    names: tuple[str, ...]  # best first
    ranks: tuple[float, ...]
    cliques: tuple[tuple[int, int], ...]  # first and last place of those a bar joins
    difference: float  # the critical one


@dataclass(frozen=True, slots=True)
class Square:
    """One square of a grid."""

    row: int
    column: int
    name: str  # whose colour it has; empty: none
    text: tuple[str, ...]
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Two axes of a few values each."""

    title: str
    x_label: str
    y_label: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    squares: tuple[Square, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Heat:
    """Shares of many by many, the largest darkest."""

    title: str
    x_label: str
    y_label: str
    shares: Floats  # [rows from below, columns], from 0 on
    count: int  # of what the columns stand for, which may be more than there are


Panel = Plane | Lanes | Ranks | Grid | Heat


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Chart:
    """One figure: panels of one kind and what explains them. Axes with the same name have the same range."""

    key: str  # its anchor and file name
    title: str
    caption: str
    panels: tuple[Panel, ...]
    legend: bool = True  # whether it says whose colours are whose
    signs: tuple[tuple[str, str], ...] = ()  # marker → meaning, for the legend
    shades: tuple[tuple[float, str], ...] = ()  # of bars, for the legend
