"""Charts drawn by matplotlib, for papers: PNG and PDF. The same records give the same bytes."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpflbench.report.chart import Chart, Grid, Plane, Rows
from dpflbench.report.labels import clean, short
from dpflbench.report.styles import MARKERS, Style, styles

SETTINGS = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "pdf.fonttype": 42,
    "text.parse_math": False,
    "figure.facecolor": "white",
    "axes.axisbelow": True,
    "axes.autolimit_mode": "data",
}
ACROSS = 4  # panels beside one another


def draw(chart: Chart, names: Sequence[str], out: Path, kinds: Sequence[str]) -> list[Path]:
    """Draw a chart into `out`, as png or pdf or both; `names` are all algorithms of the report, for their styles."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(SETTINGS):
        columns = min(ACROSS, len(chart.panels)) if len(chart.panels) != 4 else 2
        rows = math.ceil(len(chart.panels) / columns)
        panel, margin = _panel_size(chart)
        width = columns * (panel[0] + margin[0] + 0.15)
        foot = 0.22 * _legend_lines(chart, width) + 0.1
        figure = Figure(figsize=(width, rows * (panel[1] + margin[1] + margin[2]) + foot + 0.35))
        FigureCanvasAgg(figure)
        look = styles([*names, *chart.names, *(n for p in chart.panels if isinstance(p, Rows) for n in p.names)])
        grid = _axes(figure, len(chart.panels), columns, panel, margin)
        for axes, drawn in zip(grid, chart.panels, strict=True):
            if isinstance(drawn, Plane):
                _plane(axes, drawn, look)
            elif isinstance(drawn, Rows):
                _rows(axes, drawn, look)
            else:
                _grid(axes, drawn, look)
        if chart.same_y:
            _share_range(grid, chart)
        figure.suptitle(clean(chart.title), fontsize=10, y=1 - 0.08 / figure.get_figheight())
        _legend(figure, chart, look, width)
        paths = []
        for kind in kinds:
            path = figure_path(chart, out, kind)
            # without dates and versions inside, the same records give the same file
            facts = {"Software": None} if kind == "png" else {"CreationDate": None, "Producer": None}
            figure.savefig(path, dpi=130, metadata=facts)
            paths.append(path)
        return paths


def _axes(
    figure: Any, count: int, columns: int, panel: tuple[float, float], margin: tuple[float, float, float]
) -> list[Any]:
    """Axes of a fixed size in inches: measuring text to make them fit would take as long as drawing."""
    wide, high = figure.get_size_inches()
    left, bottom, top = margin
    out = []
    for number in range(count):
        row, column = divmod(number, columns)
        x = column * (panel[0] + left + 0.15) + left
        y = high - 0.35 - (row + 1) * (panel[1] + bottom + top) + bottom
        out.append(figure.add_axes((x / wide, y / high, panel[0] / wide, panel[1] / high)))
    return out


def figure_path(chart: Chart, out: Path, kind: str) -> Path:
    """Where a chart is drawn to; its key may hold anything a suite says."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in chart.key)[:80]
    return out / f"{name}.{kind}"


def _panel_size(chart: Chart) -> tuple[tuple[float, float], tuple[float, float, float]]:
    """Width and height of a panel, and what it needs at its left, bottom and top, in inches."""
    first = chart.panels[0]
    top = 0.14 + 0.13 * max(len(_wrapped(p.title).splitlines()) for p in chart.panels)
    if isinstance(first, Rows):
        names = [n for p in chart.panels if isinstance(p, Rows) for n in p.names]
        high = 0.22 * max(len(p.names) for p in chart.panels if isinstance(p, Rows)) + 0.1
        return (2.3 if len(chart.panels) > 1 else 4.0, high), (
            0.3 + 0.062 * max(len(short(n)) for n in names),
            0.45,
            top,
        )
    if isinstance(first, Grid):
        longest = max(len(r) for p in chart.panels if isinstance(p, Grid) for r in p.rows)
        return (max(2.2, 1.35 * len(first.columns)), 0.62 * len(first.rows)), (0.4 + 0.06 * longest, 0.45, top)
    return ((2.1, 1.5) if len(chart.panels) > 1 else (4.2, 2.6)), (0.66, 0.45, top)


def _used(chart: Chart) -> list[str]:
    inside = {s.name for p in chart.panels if isinstance(p, Plane) for s in p.series}
    return [name for name in chart.names if name in inside]


def _legend_lines(chart: Chart, width: float) -> int:
    entries = len(_used(chart)) or len(chart.signs)
    return math.ceil(entries / max(1, int(width / 1.3))) if entries else 0


def _legend(figure: Any, chart: Chart, look: dict[str, Style], width: float) -> None:
    from matplotlib.lines import Line2D

    lines = any(s.line for p in chart.panels if isinstance(p, Plane) for s in p.series)
    handles = [
        Line2D(
            [],
            [],
            color=look[n].light,
            linestyle=_dash(look[n]) if lines else "none",
            marker=MARKERS[look[n].marker][0],
            label=short(n),
        )
        for n in _used(chart)
    ]
    handles += [
        Line2D([], [], color="#444444", linestyle="", marker=MARKERS[sign][0], label=words)
        for sign, words in chart.signs
    ]
    if handles:
        figure.legend(
            handles=handles,
            loc="lower center",
            ncol=max(1, min(len(handles), int(width / 1.3))),
            frameon=False,
            handlelength=3,
        )


def _dash(style: Style) -> Any:
    return (0, style.dash) if style.dash else "solid"


def _plane(axes: Any, panel: Plane, look: dict[str, Style]) -> None:
    for series in panel.series:
        style = look[series.name]
        marker = MARKERS[style.marker][0]
        many = len(series.x) > 12 and not series.line
        if series.markers and series.low is not None and series.high is not None:
            spread = np.clip(np.vstack([series.y - series.low, series.high - series.y]), 0, None)
            axes.errorbar(
                series.x,
                series.y,
                yerr=spread,
                color=style.light,
                linestyle=_dash(style) if series.line else "none",
                marker=marker,
                capsize=2,
                elinewidth=0.8,
            )
            continue
        # a few markers on a long line: in grey print the dashes alone are hard to follow
        every = None if series.markers else (len(series.x) // 8, max(1, len(series.x) // 4))
        axes.plot(
            series.x,
            series.y,
            color=style.light,
            linestyle=_dash(style) if series.line else "none",
            marker=marker,
            markevery=every,
            markersize=3 if many else 4,
            alpha=0.8 if many else 1,
        )
        if series.low is not None and series.high is not None:
            axes.fill_between(series.x, series.low, series.high, color=style.light, alpha=0.13, linewidth=0)
    if panel.y_log:
        axes.set_yscale("log")
    if panel.x_ticks:
        axes.set_xticks(panel.x_ticks)
        axes.set_xticklabels([f"{x:g}" for x in panel.x_ticks])
    if not panel.y_log:
        axes.locator_params(axis="y", nbins=5)
    if not panel.x_ticks:
        axes.locator_params(axis="x", nbins=5)
    axes.set_title(_wrapped(panel.title))
    axes.set_xlabel(clean(panel.x_label))
    axes.set_ylabel(clean(panel.y_label))


def _rows(axes: Any, panel: Rows, look: dict[str, Style]) -> None:
    for row, name in enumerate(panel.names):
        marks = [m for m in panel.marks if m.row == row]
        colour = look[name].light
        if panel.joined and marks:
            axes.plot(
                [min(m.x for m in marks), max(m.x for m in marks)], [row, row], color=colour, linewidth=1, alpha=0.6
            )
        for mark in marks:
            if mark.low is not None and mark.high is not None:
                axes.plot(
                    [mark.low, mark.high], [row, row], color=colour, linewidth=3, alpha=0.4, solid_capstyle="butt"
                )
            axes.plot(
                [mark.x],
                [row],
                color=colour,
                marker=MARKERS[mark.marker][0],
                markersize=6,
                linestyle="none",
                markeredgecolor="white",
                markeredgewidth=0.6,
            )
    axes.set_yticks(range(len(panel.names)))
    axes.set_yticklabels([short(n) for n in panel.names])
    axes.set_ylim(len(panel.names) - 0.5, -0.5)
    if panel.x_log:
        axes.set_xscale("log")
    else:
        axes.locator_params(axis="x", nbins=5)
    axes.set_title(_wrapped(panel.title))
    axes.set_xlabel(clean(panel.x_label))


def _grid(axes: Any, panel: Grid, look: dict[str, Style]) -> None:
    from matplotlib.patches import Rectangle

    axes.grid(False)
    for square in panel.squares:
        colour = look[square.name].light if square.name in look else "#cccccc"
        axes.add_patch(
            Rectangle((square.column - 0.5, square.row - 0.5), 1, 1, facecolor=colour, alpha=0.3, edgecolor="none")
        )
        axes.add_patch(
            Rectangle((square.column - 0.5, square.row - 0.5), 1, 1, fill=False, edgecolor="white", linewidth=1.5)
        )
        axes.text(square.column, square.row, "\n".join(square.text), ha="center", va="center", fontsize=7)
    axes.set_xlim(-0.5, len(panel.columns) - 0.5)
    axes.set_ylim(len(panel.rows) - 0.5, -0.5)
    axes.set_xticks(range(len(panel.columns)), labels=[clean(c, 40) for c in panel.columns])
    axes.set_yticks(range(len(panel.rows)), labels=[clean(r, 40) for r in panel.rows])
    axes.set_title(_wrapped(panel.title))
    axes.set_xlabel(clean(panel.x_label))
    axes.set_ylabel(clean(panel.y_label))


def _share_range(grid: Sequence[Any], chart: Chart) -> None:
    """The same range for panels with the same label: only then can they be compared by eye."""
    groups: dict[tuple[str, bool], list[Any]] = {}
    for axes, panel in zip(grid, chart.panels, strict=True):
        if isinstance(panel, Plane):
            groups.setdefault((panel.y_label, panel.y_log), []).append(axes)
    for members in groups.values():
        limits = np.array([a.get_ylim() for a in members])
        for axes in members:
            axes.set_ylim(limits[:, 0].min(), limits[:, 1].max())


def _wrapped(title: str, width: int = 38) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(clean(title), width)[:2])
