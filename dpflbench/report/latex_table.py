"""One table as LaTeX: its cells, header, rows and notes, in the place that latex_layout.py found for it."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from dpflbench.report.labels import latex
from dpflbench.report.latex_layout import SEP, Fit, columns_wide, grouped, head_words, impossible
from dpflbench.report.latex_text import proper, sentence, spaced, text_width
from dpflbench.report.tables.table import Item, Table

EVERYTHING = "all"  # the setting of a suite without axes
NAMED = ("algorithm", "baseline")  # columns of names, which stay as they are
NUMBERED = re.compile(r"^\[(\d+)\] (?:impossible: )?(.*)", re.DOTALL)


class Remarks:
    """Long marks behind names, as letters that a note explains."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}

    def mark(self, text: str) -> str:
        """A mark as it is raised: numbers and signs as they are, words as a letter."""
        number = re.fullmatch(r"(≈?) ?(?:\[(\d+)\])?", text)
        if number:
            return ",".join(filter(None, [latex(number[1]), number[2]]))
        return latex(text) if len(text) <= 4 else self._letters.setdefault(text, chr(97 + len(self._letters) % 26))

    def notes(self) -> list[str]:
        """What the letters stand for."""
        return [rf"\textsuperscript{{{k}}} {sentence(text.strip('()'))}" for text, k in self._letters.items()]


def note(text: str) -> str:
    """A note below a table, the number of its mark raised."""
    numbered = NUMBERED.match(text)
    return rf"\textsuperscript{{{numbered[1]}}} {sentence(numbered[2])}" if numbered else sentence(text)


def cell(item: Item, remarks: Remarks, name: bool = False) -> str:
    """An item as LaTeX; what cannot be is a dash with its note."""
    text = "--" if impossible(item) else spaced(latex(item.text)) if name else proper(item.text)
    if item.bold:
        text = rf"\textbf{{{text}}}"
    return rf"{text}\textsuperscript{{{remarks.mark(item.mark)}}}" if item.mark else text


def head(table: Table, widths: Sequence[float]) -> list[str]:
    """The lines of the header; levels that repeat are set once across their columns."""
    levels = [title.split("\n") for title in table.header]
    deep = max(len(level) for level in levels)
    if deep == 1:
        return [
            " & ".join(
                _stacked(t, w, i < table.labels) for i, (t, w) in enumerate(zip(table.header, widths, strict=True))
            )
            + r" \\"
        ]
    padded = [
        [""] * (deep - len(level)) + level if i < table.labels else level + [""] * (deep - len(level))
        for i, level in enumerate(levels)
    ]
    lines = []
    for depth in range(deep):
        cells: list[str] = []
        rules = []
        position = 1
        # a label column stands alone; others merge while everything above them is the same too
        for _, group in groupby(
            range(len(padded)), key=lambda i: (i,) if i < table.labels else tuple(padded[i][: depth + 1])
        ):
            width = len(list(group))
            text = proper(padded[position - 1][depth])
            if width > 1 and depth < deep - 1 and text:
                cells.append(rf"\multicolumn{{{width}}}{{c}}{{{text}}}")
                rules.append(rf"\cmidrule(lr){{{position}-{position + width - 1}}}")
            else:
                cells += [text, *([text] * (width - 1))]
            position += width
        lines.append(" & ".join(cells) + r" \\" + "".join(rules))
    return lines


def _stacked(title: str, wide: float, left: bool) -> str:
    """A head in as many lines as the column's width asks for."""
    lines: list[str] = []
    for word in head_words(title):
        if lines and text_width(f"{lines[-1]} {word}") <= wide + 1:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    if len(lines) == 1:
        return proper(title)
    stack = r" \\ ".join(map(proper, lines))
    return rf"\shortstack[{'l' if left else 'r'}]{{{stack}}}"


def body(table: Table, remarks: Remarks) -> list[str]:
    """The rows; the name of a setting stands above those that belong to it."""
    above = grouped(table)
    lines: list[str] = []
    seen = None
    for row in table.rows:
        if above and row[0].text not in (seen, EVERYTHING):
            lines += [r"\addlinespace"] if lines else []
            lines.append(rf"\multicolumn{{{len(row) - 1}}}{{@{{}}l}}{{\emph{{{proper(row[0].text)}}}}} \\")
            seen = row[0].text
        cells = [cell(item, remarks, head in NAMED) for item, head in zip(row, table.header, strict=True)]
        lines.append(" & ".join(cells[above:]) + r" \\")
    return lines


def as_latex(table: Table, plan: Fit, key: str, caption: str) -> str:
    """One float."""
    remarks = Remarks()
    start = 1 if grouped(table) else 0
    shown = replace(table, header=table.header[start:], labels=table.labels - start)
    widths = [plan.wrapped.get(i, w) for i, w in enumerate(columns_wide(table)) if i >= start]
    kinds = [
        rf">{{\raggedright\arraybackslash}}p{{{plan.wrapped[i + start]:.0f}pt}}"
        if i + start in plan.wrapped
        else "l"
        if i < shown.labels
        else "r"
        for i in range(len(shown.header))
    ]
    rows = body(table, remarks)
    notes = [*remarks.notes(), *map(note, sorted(table.notes, key=lambda n: not NUMBERED.match(n)))]
    place = "table*" if plan.wide else "table"
    return "\n".join(
        [
            rf"\begin{{{place}}}",
            rf"\centering{plan.size}\setlength{{\tabcolsep}}{{{SEP:g}pt}}\setlength{{\belowcaptionskip}}{{4pt}}",
            rf"\caption{{{caption}}}\label{{tab:{key}}}",
            rf"\begin{{tabular}}{{@{{}}{''.join(kinds)}@{{}}}}",
            r"\toprule",
            *head(shown, widths),
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            *([rf"\par\smallskip{{\footnotesize\raggedright {' '.join(notes)}\par}}"] if notes else []),
            rf"\end{{{place}}}",
            "",
        ]
    )
