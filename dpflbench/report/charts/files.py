"""Charts as files: the drawing of draw.py with a legend below it, as SVG, PNG and PDF.

resvg, which comes with vl-convert, turns it into pixels and pages and brings its own font, so that the same records
give the same bytes on every machine. Widths are those of a page: 7 inches across both columns, 10/3 for one panel.
"""

import io
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from dpflbench.report.charts.chart import Chart
from dpflbench.report.charts.draw import Looks, draw, legend
from dpflbench.report.charts.svg import LETTER, n, words

KINDS = ("svg", "png", "pdf")
TEXT_WIDTH, COLUMN_WIDTH = 504.0, 240.0  # points
POINTS = 0.7  # of one unit of the drawing, so that its letters are 7 points high
DPI = 300
RESOURCES = re.compile(rb"(?:^ +/[a-zA-Z]+\d+ \d+ 0 R\n)+", re.MULTILINE)
# one font, for two stand in a PDF in either order
FONT = "svg { font-family: 'Liberation Sans', Arial, sans-serif; } svg .t { font-weight: normal; }"


def figure_path(chart: Chart, out: Path, kind: str) -> Path:
    """Where a chart is drawn to; its key may hold anything a suite says."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in chart.key)[:80]
    return out / f"{name}.{kind}"


def write_figure(chart: Chart, looks: Looks, out: Path, kinds: Sequence[str], across: int = 3) -> list[Path]:
    """Draw a chart into a folder, so many panels beside one another or fewer."""
    import vl_convert
    from PIL import Image

    drawing, paths = figure(chart, looks, across), []
    for kind in kinds:
        paths.append(figure_path(chart, out, kind))
        if kind == "svg":
            paths[-1].write_text(drawing, encoding="utf-8")
        elif kind == "pdf":
            paths[-1].write_bytes(RESOURCES.sub(_sorted, vl_convert.svg_to_pdf(drawing)))
        else:  # packed again, which makes it a quarter
            picture = Image.open(io.BytesIO(vl_convert.svg_to_png(drawing, ppi=DPI)))
            picture.convert("RGB").save(paths[-1], dpi=(DPI, DPI))
    return paths


def _sorted(names: re.Match[bytes]) -> bytes:
    """The resources of a page in one order: resvg lists them in another every time."""
    return b"".join(sorted(names[0].splitlines(keepends=True)))


def figure(chart: Chart, looks: Looks, across: int = 3) -> str:
    """All panels of a chart and its legend as one SVG text."""
    count = len(chart.panels)
    room = (TEXT_WIDTH if count > 1 else COLUMN_WIDTH) / POINTS
    across = min(across, 2 if count == 4 else count)
    while across > 1 and max(d.wide for d in draw(chart, looks, room / across)) > room / across + 1:
        across -= 1
    drawn = draw(chart, looks, room / across)
    room = max(room, *(d.wide for d in drawn))
    body, y = [], 0.0
    for first in range(0, count, across):
        row = drawn[first : first + across]
        body += [
            f'<g transform="translate({n(room / across * i)} {n(y)})">{panel.body}</g>' for i, panel in enumerate(row)
        ]
        y += max(panel.high for panel in row) + 8
    keys, y = _keys(chart, looks, room, y)
    style = (files("dpflbench.report.charts") / "chart.css").read_text(encoding="utf-8")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{n(room * POINTS)}" height="{n(y * POINTS)}" '
        f'viewBox="0 0 {n(room)} {n(y)}" color="#1d2126"><style>{style}{FONT}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(body)}{keys}</svg>\n'
    )


def _keys(chart: Chart, looks: Looks, room: float, y: float) -> tuple[str, float]:
    """The legend in centred lines, and where it ends."""
    lines: list[list[tuple[float, str]]] = [[]]
    for key, text, _ in legend(chart, looks):
        wide = 40 + LETTER * len(text) + 14
        if lines[-1] and sum(w for w, _ in lines[-1]) + wide > room:
            lines.append([])
        lines[-1].append((wide, key + words(40, 9.5, text, "start")))
    out = []
    for line in lines if lines[0] else []:
        x = (room - sum(wide for wide, _ in line)) / 2
        for wide, item in line:
            out.append(f'<g transform="translate({n(x)} {n(y)})">{item}</g>')
            x += wide
        y += 16
    return "".join(out), y
