"""Words and numbers of a report: formatted figures, and text made safe for each place it goes to."""

import math
import re
from collections.abc import Iterable, Sequence

from dpflbench.results.record import Metric
from dpflbench.results.titles import axis as axis
from dpflbench.results.titles import axis_value as axis_value
from dpflbench.results.titles import clean as clean
from dpflbench.results.titles import coordinate as coordinate
from dpflbench.results.titles import coordinates as coordinates
from dpflbench.results.titles import plain as plain
from dpflbench.results.titles import short as short

MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")
LATEX = {
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
    "±": r"$\pm$",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "σ": r"$\sigma$",
    "γ": r"$\gamma$",
    "ρ": r"$\rho$",
    "φ": r"$\varphi$",
    "μ": r"$\mu$",
    "Γ": r"$\Gamma$",
    "≈": r"$\approx$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "∞": r"$\infty$",
    "–": "--",
    "−": "$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "†": r"\textdagger{}",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "…": r"\ldots{}",
    "’": "'",
    "‘": "`",
    "“": "``",
    "”": "''",
    "⁻": r"\textsuperscript{$-$}",
} | {digit: rf"\textsuperscript{{{value}}}" for value, digit in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}


def markdown(text: object) -> str:
    """Text that Markdown shows as it is."""
    return MARKDOWN.sub(r"\\\1", clean(text))


def latex(text: object) -> str:
    """Text that LaTeX sets as it is; letters no common font has are named by their code point."""
    out: list[str] = []
    for char in clean(text):
        if char == "-" and out[-1:] == ["-"]:  # two hyphens would become a dash
            char = "{}-"
        elif not settable(char):
            char = f"{{[}}U+{ord(char):04X}{{]}}"
        out.append(LATEX.get(char, char))
    return "".join(out)


def settable(char: str) -> bool:
    """Whether LaTeX has a letter in the fonts it starts with."""
    return char.isascii() or char in LATEX or ("À" <= char <= "ž" and char not in "ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲų")


def spreadsheet(text: object) -> str:
    """Text that a spreadsheet does not take for a formula."""
    line = clean(text)
    return f"'{line}" if line[:1] in {"=", "+", "-", "@", "|", "%"} else line


def decimals(values: Iterable[float]) -> int:
    """How many decimals figures that stand together have: two, or three significant digits of the largest if that is
    below 0.1.
    """
    largest = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    return 2 if largest == 0 or round(largest, 2) >= 0.1 else min(8, 2 - math.floor(math.log10(largest)))


def number(value: float, digits: int | None = None) -> str:
    """A figure for reading: so many decimals, else two or, below 0.1, three significant digits; powers of ten when
    huge.
    """
    if math.isnan(value):
        return "–"
    size = abs(value)
    if math.isinf(value) or size >= 1e5 or (digits is None and size > 0 and round(size, 2) < 0.1):
        text = plain(size, 3)
    else:
        text = f"{size:.{2 if digits is None else digits}f}"
    return f"−{text}" if value < 0 and text.strip("0.") else text


def share(value: float) -> str:
    """A share in two digits that say something: two decimals, below 0.1 four."""
    return number(value, 2 if math.isnan(value) or value >= 0.1 else 4)


def signed(value: float, digits: int | None = None) -> str:
    """A difference with its sign; nothing has none."""
    text = number(value, digits)
    return f"+{text}" if value > 0 and text.strip("0.") else text


def span(low: float, high: float, digits: int | None = None) -> str:
    """An interval of differences, both ends with the same decimals; a dash where there is none."""
    if math.isnan(low):
        return "–"
    digits = decimals((low, high)) if digits is None else digits
    return f"{signed(low, digits)} to {signed(high, digits)}"


def p_value(p: float) -> str:
    """A p value with two significant digits."""
    return "–" if math.isnan(p) else "<0.0001" if p < 1e-4 else f"{p:.2g}"


def p_equals(p: float) -> str:
    """A p value in a sentence: `p = 0.031`, `p < 0.0001`."""
    return f"p < {p_value(p)[1:]}" if p < 1e-4 else f"p = {p_value(p)}"


def mean_std(mean: float, std: float, digits: int | None = None) -> str:
    """`84.52 ± 0.31`, both with the same decimals; without a standard deviation the mean alone."""
    if math.isnan(std):
        return number(mean, digits)
    digits = decimals((mean,)) if digits is None else digits
    return f"{number(mean, digits)} ± {number(std, digits)}"


def arrow(metric: Metric) -> str:
    """Which way is better."""
    return "↑" if metric.higher_is_better else "↓"


def metric_label(metric: Metric) -> str:
    """`accuracy (%) ↑`, `mse ↓`."""
    unit = f" ({clean(metric.unit, 20)})" if metric.unit else ""
    return f"{clean(metric.name, 40)}{unit} {arrow(metric)}"


def metric_direction(metric: Metric) -> str:
    """Which way is better, in words."""
    return "higher is better" if metric.higher_is_better else "lower is better"


def listing(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
