"""Charts as files: the drawing of draw.py with a legend below it, as SVG, PNG and PDF.

resvg, which comes with vl-convert, turns it into pixels and pages and brings its own fonts, so that the same records
give the same bytes on every machine. Widths are those of a paper: 7 inches across both columns, 3.4 for one.
"""

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from dpflbench.errors import DpflbenchError
from dpflbench.report.charts.chart import Chart, Lanes, Plane
from dpflbench.report.charts.draw import draw, gutter, legend
from dpflbench.report.charts.frame import Drawn, Looks
from dpflbench.report.charts.svg import n, text_width, words

KINDS = ("svg", "png", "pdf")
WIDTHS = {"column": 3.4, "text": 7.0}  # inches
DPI = 300
UNITS = 10.0  # the height of a letter in units of the drawing
MOST, NARROWEST = 4, 130.0  # panels in a row, and units a panel needs
RESOURCES = re.compile(rb"(?:^ +/[a-zA-Z]+\d+ \d+ 0 R\n)+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Format:
    """How large a figure is on paper, and what it is set in."""

    width: float = 0.0  # inches; 0: text width, one panel alone column width
    letters: float = 7.0  # points
    font: str = "Liberation Sans"  # always there
    across: int = 0  # panels in a row; 0: as many as fit


PAPER = Format()


def figure_path(chart: Chart, out: Path, kind: str) -> Path:
    """Where a chart is drawn to; its key may hold anything a suite says."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in chart.key)[:80]
    return out / f"{name}.{kind}"


def write_figure(chart: Chart, looks: Looks, out: Path, kinds: Sequence[str], format: Format = PAPER) -> list[Path]:
    """Draw a chart into a folder."""
    import vl_convert
    from PIL import Image

    drawing, paths = figure(chart, looks, format), []
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


def check_font(family: str) -> None:
    """DpflbenchError if text in this font would be left out."""
    import vl_convert

    text = f'<svg xmlns="http://www.w3.org/2000/svg"><text y="9" font-family="{family}">a</text></svg>'
    if not re.fullmatch(r"[A-Za-z0-9 _-]+", family) or b"/FontName" not in vl_convert.svg_to_pdf(text):
        always = "allowed: Liberation Sans and the fonts of this machine"
        raise DpflbenchError(f"--font {family}: not found; {always}")


def _sorted(names: re.Match[bytes]) -> bytes:
    """The resources of a page in one order: resvg lists them in another every time."""
    return b"".join(sorted(names[0].splitlines(keepends=True)))


def figure(chart: Chart, looks: Looks, format: Format = PAPER) -> str:
    """All panels of a chart and its legend as one SVG text."""
    points = format.letters / UNITS  # of one unit of the drawing
    inches = format.width or WIDTHS["text" if len(chart.panels) > 1 else "column"]
    room = inches * 72 / points
    rows = _rows(chart, looks, room, format.across)
    room = max(room, *(sum(panel.wide for panel in row) for row in rows))
    points = inches * 72 / room  # what does not fit becomes smaller
    body, y = [], 0.0
    for row in rows:
        x = 0.0
        for panel in row:
            body.append(f'<g transform="translate({n(x)} {n(y)})">{panel.body}</g>')
            x += panel.wide
        y += max(panel.high for panel in row) + 6
    keys, y = _keys(chart, looks, room, y)
    style = (files("dpflbench.report.charts") / "chart.css").read_text(encoding="utf-8")
    # one font, for two stand in a PDF in either order
    style += f"svg {{ font-family: '{format.font}', 'Liberation Sans'; }} svg .t {{ font-weight: normal; }}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{n(room * points)}" height="{n(y * points)}" '
        f'viewBox="0 0 {n(room)} {n(y)}" color="#1d2126"><style>{style}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(body)}{keys}</svg>\n'
    )


def _rows(chart: Chart, looks: Looks, room: float, across: int) -> list[list[Drawn]]:
    """The panels in rows that fit: as few rows as can be, none much shorter than the others."""
    count = len(chart.panels)
    names = gutter(chart)
    flexible = all(isinstance(p, Plane | Lanes) for p in chart.panels)
    most = max(1, min(MOST, int((room - names) / NARROWEST))) if flexible else 3
    across = min(across or math.ceil(count / math.ceil(count / most)), count)
    while True:
        wide = (room - names) / across  # of a panel but for its names
        drawn = draw(chart, looks, wide, across)
        rows = [drawn[first : first + across] for first in range(0, count, across)]
        if across == 1 or max(sum(panel.wide for panel in row) for row in rows) <= room + 1:
            return rows
        across -= 1


def _keys(chart: Chart, looks: Looks, room: float, y: float) -> tuple[str, float]:
    """The legend in centred lines of about one length, and where it ends."""
    keys = [(40 + text_width(text) + 16, key + words(40, 9.5, text, "start")) for key, text, _ in legend(chart, looks)]
    total = sum(wide for wide, _ in keys)
    aim = total / math.ceil(total / room) if keys else 0.0
    lines: list[list[tuple[float, str]]] = []
    for wide, key in keys:
        used = sum(w for w, _ in lines[-1]) if lines else math.inf
        if used + wide > room or used + wide / 2 > aim:
            lines.append([])
        lines[-1].append((wide, key))
    out = []
    for line in lines:
        x = (room - sum(wide for wide, _ in line)) / 2
        for wide, item in line:
            out.append(f'<g transform="translate({n(x)} {n(y)})">{item}</g>')
            x += wide
        y += 16
    return "".join(out), y
