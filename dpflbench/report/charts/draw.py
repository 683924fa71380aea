"""A chart as SVG: one drawing, inline in the page and, through files.py, in PNG, PDF and SVG files.

Why by hand: the ten charts of 400 runs were drawn three ways. Vega-Lite (altair) puts 0.9 MB of script and 0.4 MB of
data into the page, needs a policy that lets scripts evaluate text, knows no keyboard on its marks and takes 7 CPU
seconds for the files; matplotlib's own SVG is 1.1 MB and takes 12; this is 0.5 MB and takes 4, nearly all of them for
pixels. Lines have the colour `currentColor`, which the page turns for a dark screen; values stand in <title> elements.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np

from dpflbench.report.charts.chart import Chart, Grid, Heat, Lanes, Panel, Plane, Series
from dpflbench.report.charts.looks import NOT_PRIVATE, Look
from dpflbench.report.charts.svg import (
    LETTER,
    LINE,
    Scale,
    coloured,
    dashes,
    e,
    n,
    path,
    sign,
    tick_text,
    words,
    wrapped,
)
from dpflbench.report.labels import clean, number, short

Looks = Mapping[str, Look]
ASPECT, TALLEST, LANE = 0.66, 215.0, 18.0


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


def _finite(parts: Iterable[Iterable[float]]) -> list[float]:
    return [float(v) for part in parts for v in part if math.isfinite(float(v))]


def span(values: Sequence[float], log: bool = False, pad: float = 0.05) -> tuple[float, float]:
    """The range an axis needs to show values, with some room."""
    known = [v for v in values if not log or v > 0]
    if not known:
        return (0.1, 1.0) if log else (0.0, 1.0)
    low, high = min(known), max(known)
    if log:
        return low / 1.15, high * 1.15
    room = (high - low) * pad or abs(high) * pad or 1.0
    return low - room, high + room


def y_ranges(chart: Chart) -> list[tuple[float, float]]:
    """The y range of each plane of a chart: those with the same label share one, if the chart says so."""
    planes = [p for p in chart.panels if isinstance(p, Plane)]
    values = [_finite(v for s in p.series for v in (s.y, s.low, s.high) if v is not None) for p in planes]
    kinds = [(p.y_label, p.y_log) if chart.same_y else (i, p.y_log) for i, p in enumerate(planes)]
    return [span([v for k, vs in zip(kinds, values, strict=True) if k == kind for v in vs], kind[1]) for kind in kinds]


def draw(chart: Chart, looks: Looks, wide: float) -> list[Drawn]:
    """All panels of a chart, each about so wide."""
    top = 6.0 + LINE * max((len(wrapped(p.title, wide)) for p in chart.panels), default=0)
    ranges = iter(y_ranges(chart))
    out = []
    for panel in chart.panels:
        if isinstance(panel, Plane):
            out.append(_plane(panel, looks, wide, top, next(ranges)))
        elif isinstance(panel, Lanes):
            out.append(_lanes(panel, looks, wide, top))
        else:
            out.append(_grid(panel, looks, wide, top) if isinstance(panel, Grid) else _heat(panel, wide, top))
    return out


def _drawn(panel: Panel, body: Sequence[str], wide: float, high: float, label: str) -> Drawn:
    title = "".join(
        words(wide / 2, 13 + LINE * i, line, more=' class="t"') for i, line in enumerate(wrapped(panel.title, wide))
    )
    return Drawn(title + "".join(body), wide, high, f"{panel.title}: {label}" if panel.title else label)


def _axes(x: Scale, y: Scale, labels: tuple[str, str], high: float) -> str:
    """Frame and names of the axes."""
    middle = (y.start + y.end) / 2
    return (
        path("f", f"M{n(x.start)},{n(y.end)}V{n(y.start)}H{n(x.end)}")
        + words((x.start + x.end) / 2, high - 4, labels[0])
        + (words(11, middle, labels[1], more=f' transform="rotate(-90 11 {n(middle)})"') if labels[1] else "")
    )


def _x_ticks(values: Iterable[float], x: Scale, top: float, bottom: float) -> str:
    out, free = [], -math.inf
    for v in values:
        text, at = tick_text(v), x(v)
        half = LETTER * len(text) / 2
        out.append(path("g", f"M{n(at)},{n(top)}V{n(bottom)}"))
        if at - half > free:  # a label never runs into the one before
            out.append(words(at, bottom + 13, text))
            free = at + half + 3
    return "".join(out)


def _plane(panel: Plane, looks: Looks, wide: float, top: float, y_range: tuple[float, float]) -> Drawn:
    """Lines with bands, or points, between two numeric axes."""
    high = top + min(ASPECT * wide, TALLEST)
    bottom = high - 32
    y = Scale(*y_range, bottom, top, panel.y_log)
    texts = {v: tick_text(v) for v in y.ticks()}
    left = 25 + LETTER * max((len(t) for t in texts.values()), default=1)
    x = Scale(*span(_finite(s.x for s in panel.series), pad=0.03), left, wide - 8)
    body = [_x_ticks(panel.x_ticks or x.ticks(), x, top, bottom)]
    body += [
        path("g", f"M{n(left)},{n(y(v))}H{n(x.end)}") + words(left - 5, y(v) + 3, text, "end")
        for v, text in texts.items()
    ]
    body.append(_axes(x, y, (panel.x_label, panel.y_label), high))
    for series in panel.series:
        look = look_of(looks, series.name)
        body.append(coloured(look, _series(series, look, x, y), series.name))
    if any(s.line and not s.markers for s in panel.series):
        body.append(_strips(panel, x, top, bottom))
    return _drawn(panel, body, wide, high, f"{panel.y_label} by {panel.x_label}")


def _series(series: Series, look: Look, x: Scale, y: Scale) -> str:
    ok = np.isfinite(series.x) & np.isfinite(series.y)
    at = [x(float(v)) for v in series.x[ok]]
    points = list(zip(at, (y(float(v)) for v in series.y[ok]), strict=True))
    out = []
    if series.low is not None and series.high is not None and points:
        low, high = ([y(float(v)) for v in values[ok]] for values in (series.low, series.high))
        if series.markers:
            out += [path("w", f"M{n(a)},{n(b)}V{n(c)}") for a, b, c in zip(at, low, high, strict=True)]
        else:
            way = [*zip(at, high, strict=True), *zip(at[::-1], low[::-1], strict=True)]
            out.append(path("b", f"M{'L'.join(f'{n(a)},{n(b)}' for a, b in way)}Z"))
    if series.line and points:
        out.append(path("l", f"M{'L'.join(f'{n(a)},{n(b)}' for a, b in points)}", dashes(look)))
    if series.markers:
        hints = [h for h, keep in zip(series.hints or [""] * len(series.x), ok, strict=True) if keep]
        size = 3.6 if len(points) <= 12 or series.line else 2.4
        out += [sign(look.marker, *point, size, hint) for point, hint in zip(points, hints, strict=True)]
    else:  # a few signs on a long line: in grey print the dashes alone are hard to follow
        out += [sign(look.marker, *point, 2.8) for point in points[len(points) // 8 :: max(1, len(points) // 4)]]
    return "".join(out)


def _strips(panel: Plane, x: Scale, top: float, bottom: float) -> str:
    """Invisible strips, one a shared x value, that name every algorithm's value there."""
    found = [(short(s.name), dict(zip(map(float, s.x), map(float, s.y), strict=True))) for s in panel.series]
    at = sorted({v for _, values in found for v in values})
    borders = [x(at[0]) - 2, *(x((a + b) / 2) for a, b in pairwise(at)), x(at[-1]) + 2]
    out = []
    for value, (left, right) in zip(at, pairwise(borders), strict=True):
        rows = [f"{name}: {number(values[value])}" for name, values in found if value in values]
        hint = escape(" · ".join([f"{clean(panel.x_label)} {value:g}", *rows]), quote=True)
        place = f'x="{n(left)}" y="{n(top)}" width="{n(right - left)}" height="{n(bottom - top)}"'
        out.append(f'<rect class="h" {place}><title>{hint}</title></rect>')
    return "".join(out)


def _lanes(panel: Lanes, looks: Looks, wide: float, top: float) -> Drawn:
    """Signs along a numeric axis, a lane for each algorithm."""
    names = [clean(name, 24) for name in panel.names]
    left = 12 + LETTER * 1.1 * max((len(name) for name in names), default=4)
    bottom = top + LANE * len(names) + 6
    values = _finite([v for v in (m.x, m.low, m.high) if v is not None] for m in panel.marks)
    x = Scale(*span(values, panel.x_log), left, max(wide, left + 100) - 12, panel.x_log)
    high = bottom + 32
    body = [_x_ticks(x.ticks(), x, top, bottom), _axes(x, Scale(0, 1, bottom, top), (panel.x_label, ""), high)]
    for lane, name in enumerate(names):
        marks = [m for m in panel.marks if m.lane == lane]
        y = top + 12 + LANE * lane
        inner = [
            path("d", f"M{n(x(m.low))},{n(y)}H{n(x(m.high))}")
            for m in marks
            if m.low is not None and m.high is not None
        ]
        if panel.joined and marks:
            inner.append(path("w", f"M{n(x(min(m.x for m in marks)))},{n(y)}H{n(x(max(m.x for m in marks)))}"))
        inner += [sign(m.marker, x(m.x), y, 4.2, m.hint) for m in marks]
        body.append(words(left - 6, y + 3, name, "end"))
        body.append(coloured(look_of(looks, panel.names[lane]), "".join(inner), panel.names[lane]))
    return _drawn(panel, body, x.end + 12, high, panel.x_label)


def _grid(panel: Grid, looks: Looks, wide: float, top: float) -> Drawn:
    """Squares coloured by winner."""
    columns, rows = ([clean(text, 24) for text in texts] for texts in (panel.columns, panel.rows))
    left = 30 + LETTER * max((len(text) for text in rows), default=1)
    longest = max((len(line) for s in panel.squares for line in s.text), default=1)
    cell = max(LETTER * 1.1 * longest + 8, min(120.0, (wide - left - 8) / max(1, len(columns))))
    tall = 58.0
    x, y = left + cell * len(columns), top + tall * len(rows)
    body = []
    for s in panel.squares:
        a, b = left + cell * s.column, top + tall * s.row
        place = f'x="{n(a + 1)}" y="{n(b + 1)}" width="{n(cell - 2)}" height="{n(tall - 2)}"'
        square = f'<rect class="a" {place}><title>{e(s.hint)}</title></rect>'
        body.append(coloured(looks.get(s.name, Look("#999999", "#777777", (), "")), square, s.name))
        body += [
            words(a + cell / 2, b + 20 + 14 * i, line, more=' class="t q"' if i == 0 else ' class="q"')
            for i, line in enumerate(s.text)
        ]
    body += [words(left + cell * (i + 0.5), y + 13, text) for i, text in enumerate(columns)]
    body += [words(left - 5, top + tall * (i + 0.5) + 3, text, "end") for i, text in enumerate(rows)]
    high = y + 32
    body.append(_axes(Scale(0, 1, left, x), Scale(0, 1, y, top), (panel.x_label, panel.y_label), high))
    return _drawn(panel, body, max(wide, x + 8), high, f"{panel.y_label} by {panel.x_label}")


def _heat(panel: Heat, wide: float, top: float) -> Drawn:
    """A dark square for a large share, none for nothing."""
    (rows, columns), most = panel.shares.shape, float(panel.shares.max(initial=0.0)) or 1.0
    high = top + min(ASPECT * wide, TALLEST)
    x, y = Scale(-0.5, panel.count - 0.5, 40, wide - 8), Scale(-0.5, rows - 0.5, high - 32, top)
    step = (x.end - x.start) / columns
    size = f'width="{step:.2f}" height="{(y.start - y.end) / rows:.2f}" fill="currentColor"'
    body = [
        f'<rect x="{x.start + j * step:.2f}" y="{y(i + 0.5):.2f}" {size} fill-opacity="{share:.2f}"/>'
        for (i, j), share in np.ndenumerate(panel.shares / most)
        if share >= 0.005
    ]
    body += [words(x.start - 5, y(v) + 3, tick_text(v), "end") for v in y.ticks() if v == int(v)]
    body += [words(x(v), y.start + 13, tick_text(v)) for v in x.ticks() if v == int(v)]
    body.append(_axes(x, y, (panel.x_label, panel.y_label), high))
    return _drawn(panel, body, wide, high, f"{panel.y_label} by {panel.x_label}")


def legend(chart: Chart, looks: Looks) -> list[tuple[str, str, str]]:
    """What colours, dashes and signs stand for: the key as SVG of 34 by 12, its words, and whose it is if anybody's."""
    inside = {s.name for p in chart.panels if isinstance(p, Plane) for s in p.series}
    inside |= {s.name for p in chart.panels if isinstance(p, Grid) for s in p.squares}
    out = []
    for name in (name for name in looks if chart.legend and name in inside):
        look = looks[name]
        key = path("l", "M1,6H33", dashes(look)) + sign(look.marker, 17, 6, 3.4)
        out.append((coloured(look, key, name), short(name), name))
    return out + [(sign(marker, 17, 6, 4.0), meaning, "") for marker, meaning in chart.signs]
