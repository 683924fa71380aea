"""Words of a report as LaTeX: proper names and symbols, and how wide text is when it is set."""

import re

from dpflbench.report.labels import latex, settable

NAMES = {"gaussian": "Gaussian", "laplace": "Laplace", "mse": "MSE"}
SYMBOLS = {
    "ε max": r"\varepsilon_{\max}",
    "ε min": r"\varepsilon_{\min}",
    "alpha": r"\alpha",
    "α": r"\alpha",
    "epsilon": r"\varepsilon",
    "delta": r"\delta",
    "d_z": "d_z",
    "p": "p",
}
KNOWN = re.compile(
    r"(?<![\w.-])(?:(?P<name>gaussian|laplace|mse)"
    r"|(?P<axis>ε max|ε min|alpha|α)(?: (?P<value>−?[\d.]+))?"
    r"|(?P<symbol>epsilon|delta|d_z|p(?=$| \(Holm\)|: | = | < )))(?!\.?\w|-)"
)
THOUSANDS = re.compile(r"(?<=\d) (?=\d{3}(?!\d))")
SPREAD = re.compile(r"(?<=\d) \$\\pm\$ (?=\d)")
KEY = re.compile(r"^utility_\w+[:.] ")  # what a caption calls its numbers in a record

# advance widths of Computer Modern in hundredths of a point at 10 points; other letters are 780
ADVANCES = {
    letter: width
    for width, letters in {
        278: "ilI.,:;!'",
        333: " -",
        389: "frjst()[]",
        500: "0123456789aoceg–/?",
        556: "bdhknpquvxyzSJL",
        722: "wABCDEFKPRTUVXYZ",
        778: "GHNOQ",
        833: "m%",
        1028: "MW",
    }.items()
    for letter in letters
}
NAMED = 4200  # a letter that is named by its code point
BOLD = 1.16
SIZES = {r"\small": 0.93, r"\footnotesize": 0.86}  # of the width at 10 points: small letters are a little wider


def spaced(text: str) -> str:
    """LaTeX with the small spaces of numbers, and apostrophes."""
    text = text.replace(r" \%", r"\,\%").replace(r"\textquotesingle{}", "'")
    return THOUSANDS.sub(r"\\,", SPREAD.sub(r"\\,$\\pm$\\,", text))


def proper(text: str) -> str:
    """Words of a suite or a report, with the names and symbols a paper has for them."""
    out, done = [], 0
    for found in KNOWN.finditer(text):
        out.append(spaced(latex(text[done : found.start()])))
        if found["name"]:
            out.append(NAMES[found["name"]])
        else:
            value = f" = {found['value'].replace('−', '-')}" if found["value"] else ""
            out.append(f"${SYMBOLS[found['axis'] or found['symbol']]}{value}$")
        done = found.end()
    return "".join([*out, spaced(latex(text[done:]))])


def sentence(text: str) -> str:
    """A caption or a note: led by words and not by the key of a record, its end a full stop."""
    rest = KEY.sub("", text).replace("Bold (or *)", "Bold")
    return proper(f"{rest[:1].upper()}{rest[1:].removesuffix('.')}." if rest else "")


def text_width(text: str, bold: bool = False) -> float:
    """How many points a text is wide at 10 points, or a little less."""
    wide = sum(ADVANCES.get(letter, 780) if settable(letter) else NAMED for letter in text) / 100
    return wide * (BOLD if bold else 1.0)
