"""Tables for papers: LaTeX with booktabs, long ones with longtable. Header levels that repeat are set once across their
columns.
"""

from collections.abc import Sequence
from itertools import groupby

from dpflbench.report.labels import latex
from dpflbench.report.tables.table import Item, Table

PREAMBLE = r"""% Needs \usepackage{booktabs} and, for the long tables, \usepackage{longtable}.
% Made by dpflbench from records; change the records, not this file.
"""
LONG = 24  # rows from which on a table may break over pages


def _cell(item: Item) -> str:
    text = latex(item.text)
    if item.bold:
        text = rf"\textbf{{{text}}}"
    if not item.mark:
        return text
    mark = latex(item.mark)
    return rf"{text}\textsuperscript{{{mark}}}" if len(item.mark) <= 8 else f"{text} {mark}"


def _header(table: Table) -> list[str]:
    levels = [title.split("\n") for title in table.header]
    deep = max(len(level) for level in levels)
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
            text = latex(padded[position - 1][depth])
            if width > 1 and depth < deep - 1 and text:
                cells.append(rf"\multicolumn{{{width}}}{{c}}{{{text}}}")
                rules.append(rf"\cmidrule(lr){{{position}-{position + width - 1}}}")
            else:
                cells += [text, *([text] * (width - 1))]
            position += width
        lines.append(" & ".join(cells) + r" \\" + "".join(rules))
    return lines


def as_latex(table: Table) -> str:
    """One table, as a float or, when long, as a longtable."""
    columns = "l" * table.labels + "r" * (len(table.header) - table.labels)
    caption = rf"\caption{{{latex(table.title)}. {latex(table.caption)}}}\label{{tab:{latex(table.key)}}}"
    rows = [" & ".join(_cell(item) for item in row) + r" \\" for row in table.rows]
    notes = [rf"\par\footnotesize {latex(note)}" for note in table.notes]
    if len(rows) >= LONG:
        head = [r"\toprule", *_header(table), r"\midrule"]
        body = [
            rf"\begin{{longtable}}{{{columns}}}",
            caption + r" \\",
            *head,
            r"\endfirsthead",
            *head,
            r"\endhead",
            r"\bottomrule",
            r"\endfoot",
            *rows,
            r"\end{longtable}",
            *notes,
        ]
    else:
        body = [
            r"\begin{table}",
            r"\centering\small",
            caption,
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            *_header(table),
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            *notes,
            r"\end{table}",
        ]
    return "\n".join(body) + "\n"


def latex_report(tables: Sequence[Table]) -> str:
    """All tables that hold numbers, to be put into a paper by \\input."""
    return PREAMBLE + "\n" + "\n".join(as_latex(table) for table in tables if table.rows)
