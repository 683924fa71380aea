"""How grids and heat maps are drawn."""

import numpy as np

from dpflbench.report.charts.chart import Grid, Heat
from dpflbench.report.charts.frame import Drawn, Frame, Looks, axis_lines, drawn
from dpflbench.report.charts.looks import Look
from dpflbench.report.charts.svg import Scale, coloured, e, n, text_width, tick_text, words
from dpflbench.report.labels import clean

TALL = 58.0  # of a square
NOBODY = Look("#999999", "#777777", (), "")


def draw_grid(panel: Grid, looks: Looks, frame: Frame) -> Drawn:
    """Squares coloured by winner."""
    top = frame.top
    columns, rows = ([clean(text, 24) for text in texts] for texts in (panel.columns, panel.rows))
    left = 30 + max((text_width(text) for text in rows), default=6.0)
    longest = max((text_width(line, 11.5) for s in panel.squares for line in s.text), default=6.0)
    cell = max(longest + 8, min(120.0, (frame.wide - left - 8) / max(1, len(columns))))
    x, y = left + cell * len(columns), top + TALL * len(rows)
    body = []
    for s in panel.squares:
        a, b = left + cell * s.column, top + TALL * s.row
        place = f'x="{n(a + 1)}" y="{n(b + 1)}" width="{n(cell - 2)}" height="{n(TALL - 2)}"'
        square = f'<rect class="a" {place}><title>{e(s.hint)}</title></rect>'
        body.append(coloured(looks.get(s.name, NOBODY), square, s.name))
        body += [
            words(a + cell / 2, b + 20 + 14 * i, line, more=' class="t q"' if i == 0 else ' class="q"')
            for i, line in enumerate(s.text)
        ]
    body += [words(left + cell * (i + 0.5), y + 13, text) for i, text in enumerate(columns)]
    body += [words(left - 5, top + TALL * (i + 0.5) + 3, text, "end") for i, text in enumerate(rows)]
    high = y + frame.foot
    body.append(axis_lines(Scale(0, 1, left, x), Scale(0, 1, y, top), (panel.x_label, panel.y_label), high))
    return drawn(panel, body, frame, (max(frame.wide, x + 8), high), f"{panel.y_label} by {panel.x_label}")


def draw_heat(panel: Heat, frame: Frame) -> Drawn:
    """A dark square for a large share, none for nothing."""
    (rows, columns), most = panel.shares.shape, float(panel.shares.max(initial=0.0)) or 1.0
    bottom = frame.top + frame.tall
    high = bottom + frame.foot
    x, y = Scale(-0.5, panel.count - 0.5, 40, frame.wide - 8), Scale(-0.5, rows - 0.5, bottom, frame.top)
    step = (x.end - x.start) / columns
    size = f'width="{step:.2f}" height="{(y.start - y.end) / rows:.2f}" fill="currentColor"'
    body = [
        f'<rect x="{x.start + j * step:.2f}" y="{y(i + 0.5):.2f}" {size} fill-opacity="{share:.2f}"/>'
        for (i, j), share in np.ndenumerate(panel.shares / most)
        if share >= 0.005
    ]
    body += [words(x.start - 5, y(v) + 3, tick_text(v), "end") for v in y.ticks() if v == int(v)]
    body += [words(x(v), y.start + 13, tick_text(v)) for v in x.ticks() if v == int(v)]
    body.append(axis_lines(x, y, (panel.x_label, panel.y_label), high))
    return drawn(panel, body, frame, (frame.wide, high), f"{panel.y_label} by {panel.x_label}")
