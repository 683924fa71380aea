"""What panels are drawn with: scales and their ticks, how wide text is, and the few elements of SVG that are used."""

import math
import re
from dataclasses import dataclass
from html import escape

from dpflbench.report.charts.looks import MARKERS, Look
from dpflbench.report.labels import clean, short

LINE = 13.0  # height of a line of a title
POWERS = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
RAISED = re.compile(f"([{POWERS}]+)")
# advance widths of Liberation Sans (Arial's) in thousandths of its size; other letters are about 600
ADVANCES = {
    letter: width
    for width, letters in {
        222: "ijl",
        278: " !,./:;I[\\]ft\u00a0",
        333: "()-`r",
        500: "Jcksvxyz",
        556: "0123456789#$?L_abdeghnopqu",
        611: "FTZ",
        667: "&ABEKPSVXY",
        722: "CDHNRUw",
        778: "GOQ",
        833: "Mm",
        889: "%",
        944: "W",
    }.items()
    for letter in letters
}
TITLE = 11.0  # size of a panel's title
SCREEN = 1.2  # the room that bold letters and the fonts of a screen need


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to positions; what lies outside is drawn at the border."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The position of a value."""
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (value - low) / ((high - low) or 1.0) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values inside."""
        return log_ticks(self.low, self.high) if self.log else ticks(self.low, self.high)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between two values."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low] if math.isfinite(low) else []
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * 0.7)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between two values, at most six; where there are fewer than three, 2 and 5 times them too."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside = [10.0**k for k in powers if low <= 10.0**k <= high]
    if len(inside) >= 3:
        return inside[:: math.ceil(len(inside) / 6)]
    finer = [m * 10.0**k for k in powers for m in (1, 2, 5) if low <= m * 10.0**k <= high]
    return finer if len(finer) > 1 else ticks(low, high)


def tick_text(value: float) -> str:
    """A tick's label: plain digits, or a power of ten where those would be many."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.6g}".replace("-", "−")
    digits, power = f"{value:.3e}".split("e")
    times = f"{float(digits):g}·".removeprefix("1·").replace("-", "−")
    return f"{times}10{str(int(power)).translate(str.maketrans('-0123456789', POWERS))}"


def text_width(text: str, size: float = 10.0) -> float:
    """How wide a text is when set at a size."""
    return sum(ADVANCES.get(letter, 600) for letter in text) * size / 1000


def e(text: object) -> str:
    """Text that is nothing but text in HTML and SVG."""
    return escape(clean(text), quote=True)


def n(value: float) -> str:
    """A position in few letters."""
    return f"{value:.1f}".removesuffix(".0")


def words(x: float, y: float, text: object, anchor: str = "middle", more: str = "") -> str:
    """A piece of text. Powers are raised: not every font has their small digits."""
    parts = [e(part) for part in RAISED.split(clean(text))]
    for i in range(1, len(parts), 2):
        plain = parts[i].translate(str.maketrans(POWERS, "−0123456789"))
        back = '<tspan dy="4">' + parts[i + 1] + "</tspan>" if parts[i + 1] else ""
        parts[i], parts[i + 1] = f'<tspan dy="-4" font-size="7">{plain}</tspan>', back
    return f'<text x="{n(x)}" y="{n(y)}" text-anchor="{anchor}"{more}>{"".join(parts)}</text>'


def path(kind: str, way: str, more: str = "") -> str:
    """A line or an area."""
    return f'<path class="{kind}"{more} d="{way}"/>'


def sign(marker: str, x: float, y: float, size: float, hint: str = "") -> str:
    """One marker."""
    end = f"><title>{e(hint)}</title></path>" if hint else "/>"
    kind = "m o" if marker == "ring" else "m"
    return f'<path class="{kind}" transform="translate({n(x)} {n(y)})scale({n(size)})" d="{MARKERS[marker]}"{end}'


def bar(left: float, right: float, y: float, shade: float, hint: str = "") -> str:
    """A stretch around a height, in a shade of the colour it stands in and with an edge in all of it: light shades are
    hard to see on paper.
    """
    end = f"><title>{e(hint)}</title></path>" if hint else "/>"
    way = f"M{n(left)},{n(y - 5)}H{n(right)}V{n(y + 5)}H{n(left)}Z"
    return f'<path class="e" fill-opacity="{shade:g}" d="{way}"{end}'


def coloured(look: Look, body: str, name: str = "") -> str:
    """Elements in the colour of an algorithm, light or dark."""
    whose = f' data-name="{e(short(name))}"' if name else ""
    return f'<g class="s"{whose} color="{look.light}" style="--d:{look.dark}">{body}</g>'


def dashes(look: Look) -> str:
    """The attribute that dashes a line as an algorithm's are."""
    return f' stroke-dasharray="{" ".join(n(d * 1.3) for d in look.dash)}"' if look.dash else ""


def wrapped(title: str, wide: float, size: float = TITLE) -> list[str]:
    """A title in as many lines as it needs, at most three, none wider than the panel; broken behind commas and colons
    where that is enough.
    """
    pieces = re.sub(r"(?<![,:]) ", "\u00a0", clean(title)).split(" ")
    if any(text_width(piece, size) > wide for piece in pieces):
        pieces = re.sub(r" (?=[−\d])", "\u00a0", clean(title)).split(" ")
    lines: list[str] = []
    for word in pieces:
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size) <= wide:
            lines[-1] = longer
        elif word:
            lines.append(word)
    if len(lines) > 3:
        lines = [*lines[:2], f"{lines[2]} …"]
    return [_cut(line, wide, size) for line in lines]


def _cut(line: str, wide: float, size: float) -> str:
    """A line, its end left out where one word alone is too wide."""
    if text_width(line, size) <= wide:
        return line
    keep = next((k for k in range(len(line) - 1, 0, -1) if text_width(f"{line[:k]}…", size) <= wide), 1)
    return f"{line[:keep]}…"
