"""Charts as inline SVG for the HTML page: coloured by its style sheet, values in <title> elements that its script
shows.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

import numpy as np

from dpflbench.report.chart import Chart, Grid, Plane, Rows, Series
from dpflbench.report.labels import clean, number, short
from dpflbench.report.styles import MARKERS, Style, styles

Place = Callable[[float], float]
WIDE, HIGH = 320.0, 210.0


def e(text: object) -> str:
    """Text that is nothing but text in HTML and SVG."""
    return escape(clean(text), quote=True)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between two values."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low] if math.isfinite(low) else []
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * 0.7)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def scale(low: float, high: float, start: float, end: float, log: bool = False) -> Place:
    """A function from value to position."""
    if log:
        low, high = math.log10(low), math.log10(high)
    span = (high - low) or 1.0
    return lambda v: start + ((math.log10(v) if log else v) - low) / span * (end - start)


def _finite(parts: Iterable[Iterable[float]]) -> list[float]:
    return [float(v) for part in parts for v in part if math.isfinite(float(v))]


def _span(values: Sequence[float], log: bool = False, pad: float = 0.05) -> tuple[float, float]:
    known = [v for v in values if not log or v > 0]
    if not known:
        return (0.1, 1.0) if log else (0.0, 1.0)
    low, high = min(known), max(known)
    if log:
        return low / 1.15, high * 1.15
    room = (high - low) * pad or abs(high) * pad or 1.0
    return low - room, high + room


def _log_ticks(low: float, high: float) -> list[float]:
    return [10.0**k for k in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)] or [low, high]


def sign(marker: str, x: float, y: float, size: float, hint: str = "") -> str:
    """One marker."""
    title = f"<title>{e(hint)}</title>" if hint else ""
    points = MARKERS[marker][1]
    if not points:
        return f'<circle class="m" cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}">{title}</circle>'
    path = " ".join(f"{x + a * size:.1f},{y + b * size:.1f}" for a, b in points)
    return f'<polygon class="m" points="{path}">{title}</polygon>'


def colour(style: Style) -> str:
    """The style attribute that gives an element its algorithm's colour in either theme."""
    return f'style="--l:{style.light};--d:{style.dark}"'


def _frame(
    title: str, x_label: str, y_label: str, box: tuple[float, float, float, float], size: tuple[float, float]
) -> str:
    left, top, right, bottom = box
    small = (
        f' style="font-size:{max(6.5, 11 * 46 / len(title)):.1f}px"' if len(title) > 46 else ""
    )  # so that it fits above its panel
    return (
        f'<text class="t"{small} x="{(left + right) / 2:.0f}" y="14" text-anchor="middle">{e(title)}</text>'
        f'<path class="f" d="M{left:.0f},{top:.0f}V{bottom:.0f}H{right:.0f}"/>'
        f'<text x="{(left + right) / 2:.0f}" y="{size[1] - 4:.0f}" text-anchor="middle">{e(x_label)}</text>'
        f'<text x="11" y="{(top + bottom) / 2:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 11 {(top + bottom) / 2:.0f})">'
        f"{e(y_label)}</text>"
    )


def _x_axis(values: Sequence[float], at: Place, top: float, bottom: float) -> str:
    return "".join(
        f'<path class="g" d="M{at(v):.1f},{top:.0f}V{bottom:.0f}"/><text x="{at(v):.1f}" y="{bottom + 13:.0f}" '
        f'text-anchor="middle">{v:g}</text>'
        for v in values
    )


def _y_axis(values: Sequence[float], at: Place, left: float, right: float) -> str:
    return "".join(
        f'<path class="g" d="M{left:.0f},{at(v):.1f}H{right:.0f}"/><text x="{left - 5:.0f}" y="{at(v) + 3:.1f}" '
        f'text-anchor="end">{v:g}</text>'
        for v in values
    )


def _wrap(body: str, size: tuple[float, float], label: str) -> str:
    return f'<svg viewBox="0 0 {size[0]:.0f} {size[1]:.0f}" role="img" aria-label="{e(label)}">{body}</svg>'


def plane(panel: Plane, look: dict[str, Style], y_range: tuple[float, float]) -> str:
    """Lines with bands, or points, between two numeric axes."""
    left, top, right, bottom = 46.0, 24.0, WIDE - 8, HIGH - 32
    x_low, x_high = _span(_finite([s.x for s in panel.series]), pad=0.03)
    x = scale(x_low, x_high, left, right)
    y = scale(*y_range, bottom, top, panel.y_log)
    held: Place = lambda v: min(max(y(max(v, y_range[0]) if panel.y_log else v), top), bottom)  # noqa: E731
    body = [
        _x_axis(panel.x_ticks or ticks(x_low, x_high), x, top, bottom),
        _y_axis(_log_ticks(*y_range) if panel.y_log else ticks(*y_range), y, left, right),
        _frame(panel.title, panel.x_label, panel.y_label, (left, top, right, bottom), (WIDE, HIGH)),
    ]
    for series in panel.series:
        body.append(
            f'<g class="s" data-name="{e(short(series.name))}" {colour(look[series.name])}>'
            f"{_series(series, look[series.name], x, held)}</g>"
        )
    if any(s.line and not s.markers for s in panel.series):
        body.append(_hover_strips(panel, x, (top, bottom)))
    return _wrap("".join(body), (WIDE, HIGH), f"{panel.title}: {panel.y_label} by {panel.x_label}")


def _series(series: Series, style: Style, x: Place, y: Place) -> str:
    ok = np.isfinite(series.x) & np.isfinite(series.y)
    points = [(x(float(a)), y(float(b))) for a, b in zip(series.x[ok], series.y[ok], strict=True)]
    out = []
    if series.low is not None and series.high is not None and points:
        low, high = series.low[ok], series.high[ok]
        if series.markers:
            out += [
                f'<path class="w" d="M{px:.1f},{y(float(lo)):.1f}V{y(float(hi)):.1f}"/>'
                for (px, _), lo, hi in zip(points, low, high, strict=True)
            ]
        else:
            way = [f"{px:.1f},{y(float(v)):.1f}" for (px, _), v in zip(points, high, strict=True)]
            back = [f"{px:.1f},{y(float(v)):.1f}" for (px, _), v in zip(points, low, strict=True)][::-1]
            out.append(f'<path class="b" d="M{"L".join(way + back)}Z"/>')
    if series.line and points:
        dash = f' stroke-dasharray="{" ".join(f"{d * 1.3:g}" for d in style.dash)}"' if style.dash else ""
        out.append(f'<path class="l"{dash} d="M{"L".join(f"{px:.1f},{py:.1f}" for px, py in points)}"/>')
    if series.line and not series.markers:
        out += [sign(style.marker, px, py, 2.8) for px, py in points[len(points) // 8 :: max(1, len(points) // 4)]]
    if series.markers:
        hints = [h for h, keep in zip(series.hints or [""] * len(series.x), ok, strict=True) if keep]
        size = 3.6 if len(points) <= 12 or series.line else 2.4
        out += [sign(style.marker, px, py, size, hint) for (px, py), hint in zip(points, hints, strict=True)]
    return "".join(out)


def _hover_strips(panel: Plane, x: Place, height: tuple[float, float]) -> str:
    """Invisible strips, one a shared x value, that name every algorithm's value there."""
    at = sorted({float(v) for s in panel.series for v in s.x})
    lookup = [(s.name, dict(zip(map(float, s.x), map(float, s.y), strict=True))) for s in panel.series]
    out = []
    for i, value in enumerate(at):
        left = x(at[i - 1] + (value - at[i - 1]) / 2) if i else x(value) - 2
        right = x(value + (at[i + 1] - value) / 2) if i + 1 < len(at) else x(value) + 2
        rows = [f"{short(name)}: {number(found[value])}" for name, found in lookup if value in found]
        hint = f"{clean(panel.x_label)} {value:g} · " + " · ".join(rows)
        out.append(
            f'<rect class="h" x="{left:.1f}" y="{height[0]:.0f}" width="{right - left:.1f}" '
            f'height="{height[1] - height[0]:.0f}"><title>{escape(hint, quote=True)}</title></rect>'
        )
    return "".join(out)


def rows(panel: Rows, look: dict[str, Style]) -> str:
    """Signs along a numeric axis, a row for each algorithm."""
    left = 20.0 + 5.6 * max((min(len(short(n)), 24) for n in panel.names), default=4)
    top, right = 24.0, left + 230
    bottom = top + 18 * len(panel.names) + 6
    size = (right + 10, bottom + 32)
    values = _finite([[v for v in (m.x, m.low, m.high) if v is not None] for m in panel.marks])
    low, high = _span(values, panel.x_log)
    x = scale(low, high, left, right, panel.x_log)
    body = [
        _x_axis(_log_ticks(low, high) if panel.x_log else ticks(low, high), x, top, bottom),
        _frame(panel.title, panel.x_label, "", (left, top, right, bottom), size),
    ]
    for row, name in enumerate(panel.names):
        marks = [m for m in panel.marks if m.row == row]
        y = top + 12 + 18 * row
        inner = [f'<text class="n" x="{left - 6:.0f}" y="{y + 3:.0f}" text-anchor="end">{e(clean(name, 24))}</text>']
        if panel.joined and marks:
            inner.append(
                f'<path class="w" d="M{x(min(m.x for m in marks)):.1f},{y:.0f}H{x(max(m.x for m in marks)):.1f}"/>'
            )
        inner += [
            f'<path class="d" d="M{x(m.low):.1f},{y:.0f}H{x(m.high):.1f}"/>'
            for m in marks
            if m.low is not None and m.high is not None
        ]
        inner += [sign(m.marker, x(m.x), y, 4.2, m.hint) for m in marks]
        body.append(f'<g class="s" data-name="{e(short(name))}" {colour(look[name])}>{"".join(inner)}</g>')
    return _wrap("".join(body), size, f"{panel.title}: {panel.x_label}")


def grid(panel: Grid, look: dict[str, Style]) -> str:
    """Squares coloured by winner."""
    wide, high = 108.0, 58.0
    left, top = 34.0 + 5.6 * max(len(clean(r, 24)) for r in panel.rows), 24.0
    right, bottom = left + wide * len(panel.columns), top + high * len(panel.rows)
    size = (right + 8, bottom + 32)
    body = []
    for s in panel.squares:
        x, y = left + wide * s.column, top + high * s.row
        paint = colour(look[s.name]) if s.name in look else 'style="--l:#999;--d:#777"'
        lines = "".join(
            f'<text class="q{" w0" if i == 0 else ""}" x="{x + wide / 2:.0f}" y="{y + 20 + 14 * i:.0f}" '
            f'text-anchor="middle">{e(line)}</text>'
            for i, line in enumerate(s.text)
        )
        body.append(
            f'<g class="s" {paint}><rect class="a" x="{x + 1:.0f}" y="{y + 1:.0f}" width="{wide - 2:.0f}" '
            f'height="{high - 2:.0f}"><title>{e(s.hint)}</title></rect>{lines}</g>'
        )
    body += [
        f'<text x="{left + wide * (i + 0.5):.0f}" y="{bottom + 13:.0f}" text-anchor="middle">{e(clean(c, 24))}</text>'
        for i, c in enumerate(panel.columns)
    ]
    body += [
        f'<text x="{left - 5:.0f}" y="{top + high * (i + 0.5) + 3:.0f}" text-anchor="end">{e(clean(r, 24))}</text>'
        for i, r in enumerate(panel.rows)
    ]
    body.append(_frame(panel.title, panel.x_label, panel.y_label, (left, top, right, bottom), size))
    return _wrap("".join(body), size, panel.title)


def y_ranges(chart: Chart) -> list[tuple[float, float]]:
    """The y range of each panel: panels with the same label share one, if the chart says so."""

    def values(panel: Plane) -> list[float]:
        bands = [part for s in panel.series for part in (s.y, s.low, s.high) if part is not None]
        return _finite(bands)

    out = []
    for panel in chart.panels:
        if not isinstance(panel, Plane):
            out.append((0.0, 1.0))
            continue
        alike = [
            p
            for p in chart.panels
            if isinstance(p, Plane)
            and (p is panel or (chart.same_y and (p.y_label, p.y_log) == (panel.y_label, panel.y_log)))
        ]
        out.append(_span([v for p in alike for v in values(p)], panel.y_log))
    return out


def legend(chart: Chart, look: dict[str, Style]) -> str:
    """What colours, dashes and signs stand for."""
    inside = {s.name for p in chart.panels if isinstance(p, Plane) for s in p.series}
    inside |= {s.name for p in chart.panels if isinstance(p, Grid) for s in p.squares}
    items = []
    for name in (n for n in chart.names if n in inside):
        style = look[name]
        dash = f' stroke-dasharray="{" ".join(f"{d * 1.3:g}" for d in style.dash)}"' if style.dash else ""
        items.append(
            f'<span class="k"><svg viewBox="0 0 34 12" class="ks"><g class="s" {colour(style)}><path class="l"{dash} '
            f'd="M1,6H33"/>{sign(style.marker, 17, 6, 3.4)}</g></svg>{e(short(name))}</span>'
        )
    items += [
        f'<span class="k"><svg viewBox="0 0 14 12" class="ks s1"><g class="s" style="--l:#444;--d:#ccc">'
        f"{sign(marker, 7, 6, 4)}</g></svg>{e(words)}</span>"
        for marker, words in chart.signs
    ]
    return f'<div class="legend">{"".join(items)}</div>' if items else ""


def chart_svg(chart: Chart, names: Sequence[str]) -> str:
    """All panels of a chart and its legend, as HTML."""
    look = styles([*names, *chart.names, *(n for p in chart.panels if isinstance(p, Rows) for n in p.names)])
    drawn = []
    for panel, y_range in zip(chart.panels, y_ranges(chart), strict=True):
        if isinstance(panel, Plane):
            drawn.append(plane(panel, look, y_range))
        else:
            drawn.append(rows(panel, look) if isinstance(panel, Rows) else grid(panel, look))
    kind = {Plane: "plane", Rows: "rows", Grid: "grid"}[type(chart.panels[0])]
    return f'<div class="panels {kind}">{"".join(drawn)}</div>{legend(chart, look)}'
