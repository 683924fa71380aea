"""How lanes and ranks are drawn: signs along one numeric axis."""

from collections.abc import Sequence

from dpflbench.report.charts.chart import Lanes, Mark, Ranks
from dpflbench.report.charts.frame import LABEL, MARGIN, Drawn, Frame, Looks, axis_lines, drawn, look_of, x_ticks
from dpflbench.report.charts.svg import Scale, bar, coloured, n, path, sign, text_width, words
from dpflbench.report.labels import clean

LANE, APART = 18.0, 7.0  # from lane to lane, and from sign to sign inside one


def names_width(names: Sequence[str]) -> float:
    """The room that the names of lanes take."""
    return 12 + 1.1 * max((text_width(clean(name, 24)) for name in names), default=20.0)  # screens have wider fonts


def draw_lanes(panel: Lanes, looks: Looks, frame: Frame) -> Drawn:
    """Signs along a numeric axis, a lane for each algorithm."""
    left, top = names_width(panel.names) if frame.first else MARGIN, frame.top
    bottom = top + LANE * len(panel.names) + 6
    high = bottom + frame.foot
    x = frame.x.scale(left, max(frame.wide, left + 100) - 12)
    body = [x_ticks(x.ticks(), x, top, bottom)]
    if panel.zero:
        body.append(path("f", f"M{n(x(0))},{n(top)}V{n(bottom)}"))
    body.append(axis_lines(x, Scale(0, 1, bottom, top), (panel.x_label if frame.last else "", ""), high))
    for lane, name in enumerate(panel.names):
        y = top + 12 + LANE * lane
        if frame.first:
            body.append(words(left - 6, y + 3, clean(name, 24), "end"))
        inner = "".join(bar(x(b.low), x(b.high), y, b.shade, b.hint) for b in panel.bars if b.lane == lane)
        inner += _lane([m for m in panel.marks if m.lane == lane], x, y, panel.joined)
        body.append(coloured(look_of(looks, name), inner, name))
    return drawn(panel, body, frame, (x.end + 12, high), panel.x_label)


def _lane(marks: Sequence[Mark], x: Scale, y: float, joined: bool) -> str:
    """The signs of one lane; those with intervals side by side."""
    apart = APART if len(marks) > 1 and any(m.low is not None for m in marks) else 0.0
    out = []
    if joined and marks:
        out.append(path("w", f"M{n(x(min(m.x for m in marks)))},{n(y)}H{n(x(max(m.x for m in marks)))}"))
    for i, m in enumerate(marks):
        at = y + apart * (i - (len(marks) - 1) / 2)
        if m.low is not None and m.high is not None:
            out.append(path("w", f"M{n(x(m.low))},{n(at)}H{n(x(m.high))}"))
        out.append(sign(m.marker, x(m.x), at, 4.2 if m.low is None else 3.2, m.hint))
    return "".join(out)


def draw_ranks(panel: Ranks, looks: Looks, frame: Frame) -> Drawn:
    """Demšar's diagram: the better half of the names left of the axis, the others right, a bar over each clique."""
    count, top = len(panel.names), frame.top
    half = (count + 1) // 2
    sides = panel.names[:half], panel.names[half:]
    left, right = (names_width(side) for side in sides)
    x = Scale(1, count, left + 6, max(frame.wide, left + right + 76) - right - 6)
    axis = top + 34  # below the ruler of the critical difference
    bars = axis + 10 + 7 * len(panel.cliques)
    high = bars + LABEL * half + 6
    end = x(1 + panel.difference)
    stroke = f"{n(top + 10)}V{n(top + 18)}M"
    body = [
        words(x.start, top + 6, f"critical difference {panel.difference:.2f}", "start"),
        path("f", f"M{n(x.start)},{stroke}{n(end)},{stroke}{n(x.start)},{n(top + 14)}H{n(end)}"),
        path("f", f"M{n(x.start)},{n(axis)}H{n(x.end)}"),
        words(left - 6, axis + 3, panel.x_label, "end"),
    ]
    for tick in range(1, count + 1):
        body.append(path("f", f"M{n(x(tick))},{n(axis)}V{n(axis - 4)}") + words(x(tick), axis - 6, str(tick)))
    for i, (first, last) in enumerate(panel.cliques):
        y = axis + 8 + 7 * i
        body.append(path("d", f"M{n(x(panel.ranks[first]) - 3)},{n(y)}H{n(x(panel.ranks[last]) + 3)}"))
    for place, (name, rank) in enumerate(zip(panel.names, panel.ranks, strict=True)):
        better = place < half
        y = bars + LABEL * (place if better else count - 1 - place) + 6
        to, anchor = (left, "end") if better else (x.end + 6, "start")
        line = path("w", f"M{n(x(rank))},{n(axis)}V{n(y)}H{n(to)}") + sign(
            "circle", x(rank), axis, 2.6, f"{clean(name, 60)}: mean rank {rank:.2f}"
        )
        body.append(coloured(look_of(looks, name), line, name))
        body.append(words(to - 6 if better else to + 6, y + 3, clean(name, 24), anchor))
    return drawn(panel, body, frame, (x.end + right + 6, high), panel.x_label)
