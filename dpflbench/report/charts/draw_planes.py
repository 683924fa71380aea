"""How planes are drawn: lines with bands, or points, between two numeric axes."""

from html import escape
from itertools import pairwise

import numpy as np

from dpflbench.report.charts.chart import Plane, Series
from dpflbench.report.charts.frame import MARGIN, Axis, Drawn, Frame, Looks, axis_lines, drawn, look_of, x_ticks
from dpflbench.report.charts.looks import Look
from dpflbench.report.charts.svg import Scale, coloured, dashes, n, path, sign, text_width, tick_text, words
from dpflbench.report.labels import clean, number, short


def ticks_width(axis: Axis) -> float:
    """The room that the name and the ticks of a y axis take."""
    return 25 + max((text_width(tick_text(v)) for v in axis.scale(0, 1).ticks()), default=6.0)


def draw_plane(panel: Plane, looks: Looks, frame: Frame) -> Drawn:
    """Lines with bands, or points, between two numeric axes."""
    top, bottom = frame.top, frame.top + frame.tall
    high, left = bottom + frame.foot, ticks_width(frame.y) if frame.first else MARGIN
    x, y = frame.x.scale(left, frame.wide - 8), frame.y.scale(bottom, top)
    body = [x_ticks(panel.x_ticks or x.ticks(), x, top, bottom)]
    for v in y.ticks():
        body.append(path("g", f"M{n(left)},{n(y(v))}H{n(x.end)}"))
        if frame.first:
            body.append(words(left - 5, y(v) + 3, tick_text(v), "end"))
    names = panel.x_label if frame.last else "", panel.y_label if frame.first else ""
    body.append(axis_lines(x, y, names, high))
    for at, dashed in panel.limits:
        body.append(path("f", f"M{n(x(at))},{n(top)}V{n(bottom)}", ' stroke-dasharray="3 3"' if dashed else ""))
    for series in panel.series:
        look = look_of(looks, series.name)
        body.append(coloured(look, _series(series, look, x, y), series.name))
    if any(s.line and not s.markers for s in panel.series):
        body.append(_strips(panel, x, top, bottom))
    return drawn(panel, body, frame, (frame.wide, high), f"{panel.y_label} by {panel.x_label}")


def _series(series: Series, look: Look, x: Scale, y: Scale) -> str:
    ok = np.isfinite(series.x) & np.isfinite(series.y)
    at = [x(float(v)) for v in series.x[ok]]
    points = list(zip(at, (y(float(v)) + series.below for v in series.y[ok]), strict=True))
    marker, out = series.marker or look.marker, []
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
        size = series.size or (3.6 if len(points) <= 12 or series.line else 2.4)
        out += [sign(marker, *point, size, hint) for point, hint in zip(points, hints, strict=True)]
    else:  # a few signs on a long line: in grey print the dashes alone are hard to follow
        out += [sign(marker, *point, 2.8) for point in points[len(points) // 8 :: max(1, len(points) // 4)]]
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
