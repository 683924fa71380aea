"""A chart as SVG: one drawing, inline in the page and, through files.py, in PNG, PDF and SVG files.

Why by hand: the ten charts of 400 runs were drawn three ways. Vega-Lite (altair) puts 0.9 MB of script and 0.4 MB of
data into the page, needs a policy that lets scripts evaluate text, knows no keyboard on its marks and takes 7 CPU
seconds for the files; matplotlib's own SVG is 1.1 MB and takes 12; this is 0.5 MB and takes 4, nearly all of them for
pixels. Lines have the colour `currentColor`, which the page turns for a dark screen; values stand in <title> elements.
"""

import math
from collections.abc import Iterable, Sequence

from dpflbench.report.charts.chart import Chart, Grid, Lanes, Panel, Plane, Ranks
from dpflbench.report.charts.draw_lanes import draw_lanes, draw_ranks, names_width
from dpflbench.report.charts.draw_planes import draw_plane, ticks_width
from dpflbench.report.charts.draw_squares import draw_grid, draw_heat
from dpflbench.report.charts.frame import MARGIN, Axis, Drawn, Frame, Looks
from dpflbench.report.charts.svg import LINE, SCREEN, TITLE, bar, coloured, dashes, path, sign, wrapped
from dpflbench.report.labels import short

LARGE = 0.12  # room on either side of large signs


def _finite(parts: Iterable[Iterable[float] | None]) -> list[float]:
    return [float(v) for part in parts if part is not None for v in part if math.isfinite(float(v))]


def span(values: Sequence[float], log: bool = False, pad: float = 0.05) -> tuple[float, float]:
    """The range an axis needs to show values, with some room."""
    known = [v for v in values if not log or v > 0]
    if not known:
        return (0.1, 1.0) if log else (0.0, 1.0)
    low, high = min(known), max(known)
    if log:
        room = max(1.15, (high / low) ** pad)
        return low / room, high * room
    room = (high - low) * pad or abs(high) * pad or 1.0
    return low - room, high + room


def _x_of(panel: Panel) -> tuple[list[float], bool]:
    if isinstance(panel, Plane):
        return _finite([*(s.x for s in panel.series), [at for at, _ in panel.limits]]), panel.x_log
    if isinstance(panel, Lanes):
        ends = _finite([v for v in (m.x, m.low, m.high) if v is not None] for m in panel.marks)
        ends += _finite([b.low, b.high] for b in panel.bars)
        return ends + [0.0] * panel.zero, panel.x_log
    return [], False


def _y_of(panel: Panel) -> tuple[list[float], bool]:
    if not isinstance(panel, Plane):
        return [], False
    low = _finite(s.low for s in panel.series)
    means = _finite(s.y for s in panel.series)
    if panel.y_log:  # a mean minus its deviation may be anything
        low = [v for v in low if v >= min(means, default=0.0) / 2]
    return [*means, *low, *_finite(s.high for s in panel.series)], panel.y_log


def axes(chart: Chart) -> list[tuple[Axis, Axis]]:
    """The x and y axis of each panel: those of one name have one range, and are logarithmic together."""

    def shared(found: Sequence[tuple[list[float], bool]], names: Sequence[str], pad: float) -> list[Axis]:
        out = {}
        for name in names:
            alike = [f for f, other in zip(found, names, strict=True) if other == name]
            log = any(wants for _, wants in alike)
            out[name] = Axis(*span([v for values, _ in alike for v in values], log, pad), log)
        return [out[name] for name in names]

    planes = [p for p in chart.panels if isinstance(p, Plane)]
    large = LARGE * any(s.size for p in planes for s in p.series)  # signs that would reach over the frame
    x = shared([_x_of(p) for p in chart.panels], [p.x_label for p in chart.panels], large or 0.03 if planes else 0.05)
    y = shared([_y_of(p) for p in chart.panels], [getattr(p, "y_label", "") for p in chart.panels], large or 0.05)
    return list(zip(x, y, strict=True))


def gutter(chart: Chart) -> float:
    """What the first of a row of panels is wider by, which has the names for all; 0 where each needs its own."""
    panels = chart.panels
    if all(isinstance(p, Plane) for p in panels) and len({getattr(p, "y_label", "") for p in panels}) == 1:
        return max(ticks_width(y) for _, y in axes(chart)) - MARGIN
    if all(isinstance(p, Lanes) for p in panels) and len({getattr(p, "names", ()) for p in panels}) == 1:
        return names_width(panels[0].names if isinstance(panels[0], Lanes) else ()) - MARGIN
    return 0.0


def draw(chart: Chart, looks: Looks, wide: float, across: int = 0) -> list[Drawn]:
    """All panels of a chart, each about so wide. With `across`, so many stand in a row: the first of a row has the
    names of the y axis for all and is wider by `gutter`, the last of a column those of the x axis.
    """
    room, count = gutter(chart) if across else 0.0, len(chart.panels)
    title = TITLE if across else TITLE * SCREEN
    top = 6.0 + LINE * max((len(wrapped(p.title, wide, title)) for p in chart.panels), default=0)
    out = []
    for i, (panel, (x, y)) in enumerate(zip(chart.panels, axes(chart), strict=True)):
        first, last = not room or i % across == 0, not room or i + across >= count
        frame = Frame(wide + room if first else wide, wide, title, top, x, y, first, last)
        if isinstance(panel, Plane):
            out.append(draw_plane(panel, looks, frame))
        elif isinstance(panel, Lanes):
            out.append(draw_lanes(panel, looks, frame))
        elif isinstance(panel, Ranks):
            out.append(draw_ranks(panel, looks, frame))
        else:
            out.append(draw_grid(panel, looks, frame) if isinstance(panel, Grid) else draw_heat(panel, frame))
    return out


def legend(chart: Chart, looks: Looks) -> list[tuple[str, str, str]]:
    """What colours, dashes and signs stand for: the key as SVG of 34 by 12, its words, and whose it is if anybody's."""
    inside: dict[str, bool] = {}  # whether a line has that name, or signs alone
    for series in (s for p in chart.panels if isinstance(p, Plane) for s in p.series):
        inside[series.name] = inside.get(series.name, False) or series.line
    out = []
    for name in (name for name in looks if chart.legend and name in inside):
        look = looks[name]
        key = path("l", "M1,6H33", dashes(look)) * inside[name] + sign(look.marker, 17, 6, 3.4)
        out.append((coloured(look, key, name), short(name), name))
    out += [(bar(3, 31, 6, shade), meaning, "") for shade, meaning in chart.shades]
    return out + [(sign(marker, 17, 6, 4.0), meaning, "") for marker, meaning in chart.signs]
