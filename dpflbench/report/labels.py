"""Words and numbers of a report: formatted figures, and text made safe for each place it goes to."""

import math
import re
from collections.abc import Sequence

from dpflbench.results.record import Metric
from dpflbench.results.titles import axis as axis
from dpflbench.results.titles import axis_value as axis_value
from dpflbench.results.titles import clean as clean
from dpflbench.results.titles import coordinate as coordinate
from dpflbench.results.titles import coordinates as coordinates
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
}


def markdown(text: object) -> str:
    """Text that Markdown shows as it is."""
    return MARKDOWN.sub(r"\\\1", clean(text))


def latex(text: object) -> str:
    """Text that LaTeX sets as it is; letters no common font has are named by their code point."""
    out: list[str] = []
    for char in clean(text):
        known = "{}-" if char == "-" and out[-1:] == ["-"] else LATEX.get(char)  # two hyphens would become a dash
        out.append(
            known if known is not None else char if char.isascii() or "À" <= char <= "ɏ" else f"[U+{ord(char):04X}]"
        )
    return "".join(out)


def spreadsheet(text: object) -> str:
    """Text that a spreadsheet does not take for a formula."""
    line = clean(text)
    return f"'{line}" if line[:1] in {"=", "+", "-", "@", "|", "%"} else line


def number(value: float, digits: int = 2) -> str:
    """A figure for reading: two decimals from 1 on, three significant digits below, powers of ten when huge."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    size = abs(value)
    if size >= 1e5:
        text = f"{size:.2e}"
    elif size >= 1 or size == 0 or round(size, digits) >= 0.1:
        text = f"{size:.{digits}f}"
    else:
        text = f"{size:.3g}"
    return f"−{text}" if value < 0 else text


def signed(value: float) -> str:
    """A difference, always with its sign."""
    text = number(abs(value))
    return text if math.isnan(value) else f"{'+' if value >= 0 else '−'}{text}"


def span(low: float, high: float) -> str:
    """An interval of differences; a dash where there is none."""
    return "–" if math.isnan(low) else f"{signed(low)} to {signed(high)}"


def p_value(p: float) -> str:
    """A p value with two significant digits."""
    return "–" if math.isnan(p) else "<0.0001" if p < 1e-4 else f"{p:.2g}"


def p_equals(p: float) -> str:
    """A p value in a sentence: `p = 0.031`, `p < 0.0001`."""
    return f"p < {p_value(p)[1:]}" if p < 1e-4 else f"p = {p_value(p)}"


def mean_std(mean: float, std: float) -> str:
    """`84.52 ± 0.31`, both with the same decimals; without a standard deviation the mean alone."""
    if math.isnan(std):
        return number(mean)
    return f"{number(mean)} ± {std:.2f}" if 0.1 <= abs(mean) < 1e5 and std < 1e5 else f"{number(mean)} ± {number(std)}"


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
