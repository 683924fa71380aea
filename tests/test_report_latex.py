"""LaTeX and Parquet: tables that set, text that is nothing but text, numbers that come back."""

import re

import pandas as pd
import pytest
from record_factory import make_results

from dpflbench.report.labels import latex
from dpflbench.report.latex import as_latex, latex_report
from dpflbench.report.tables.table import Item, Table
from dpflbench.report.tables.utility import utility_tables
from dpflbench.report.view import view
from dpflbench.report.write import Contents, write_report

AXES = {"privacy.mechanism": ["gaussian", "laplace"], "privacy.epsilon.high": [1, 6]}
HOSTILE = "\\input{/etc/passwd}\\write18{rm -rf /}%$&#_{}~^\n\\end{tabular}"


def test_a_table_has_the_rules_of_booktabs_and_one_cell_a_column():
    text = as_latex(utility_tables(view(make_results(("DPSGD", "DPFL-BCS"), seeds=7)))[0])
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert [line.count(" & ") for line in body] == [1, 1, 1]
    assert r"DPFL-BCS & \textbf{86.30 $\pm$ 0.22} \\" in body
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]


def test_levels_that_repeat_are_set_once():
    text = as_latex(utility_tables(view(make_results(axes=AXES)))[0])
    assert (
        r" & \multicolumn{2}{c}{gaussian} & \multicolumn{2}{c}{laplace} \\\cmidrule(lr){2-3}\cmidrule(lr){4-5}" in text
    )
    assert (
        r"algorithm & $\varepsilon$ max 1 & $\varepsilon$ max 6 & $\varepsilon$ max 1 & $\varepsilon$ max 6 \\" in text
    )


def test_hostile_text_is_no_command():
    rows = ((Item(HOSTILE), Item("1", mark=HOSTILE)),)
    table = Table(key="k", title=HOSTILE, header=(HOSTILE, "b"), rows=rows, caption=HOSTILE, notes=(HOSTILE,))
    commands = set(re.findall(r"\\[a-zA-Z]+", as_latex(table)))
    assert commands <= {
        r"\begin",
        r"\end",
        r"\centering",
        r"\small",
        r"\caption",
        r"\label",
        r"\toprule",
        r"\midrule",
        r"\bottomrule",
        r"\textbackslash",
        r"\textasciitilde",
        r"\textasciicircum",
        r"\par",
        r"\footnotesize",
        r"\textsuperscript",
    }
    assert as_latex(table).count(r"\end{tabular}") == 1


def test_braces_are_balanced_whatever_the_names():
    text = latex_report(Contents(view(make_results(("DPSGD", HOSTILE, "[a]*", "x--y"), seeds=1))).tables)
    plain = text.replace(r"\{", "").replace(r"\}", "")
    assert plain.count("{") == plain.count("}")
    assert "{[}a{]}{*}" in text  # after a line end LaTeX would take a bare one for its own
    assert "x-{}-y" in text


def test_letters_no_font_has_are_named():
    assert latex("ε ± ✓ é") == r"$\varepsilon$ $\pm$ [U+2713] é"


def test_long_tables_may_break_over_pages():
    rows = tuple((Item(str(i)), Item("1")) for i in range(30))
    assert r"\begin{longtable}{lr}" in as_latex(Table(key="k", title="T", header=("a", "b"), rows=rows))


def test_parquet_gives_back_what_the_records_hold(tmp_path):
    results = make_results(("FedSGD", "DPSGD"), seeds=2, axes=AXES)
    write_report(results, tmp_path, ["parquet"])
    cells, clients, rounds = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("cells", "clients", "rounds"))
    assert len(cells) == len(results.manifest.cells) == 16
    assert (cells["status"] == "impossible").sum() == 4
    assert cells["privacy.epsilon.high"].tolist()[:4] == [1, 1, 1, 1]
    done = cells[cells["status"] == "done"]
    assert done["utility_global"].tolist() == pytest.approx(
        [results.records[r].final["utility_global"] for r in done["run"]]
    )
    assert len(clients) == 12 * len(done)
    first = results.records[clients["run"].iloc[0]]
    assert clients["uses"].tolist()[:12] == first.clients["uses"].tolist()
    assert len(rounds) == 20 * len(done)
    assert rounds.groupby("run")["utility_global"].last().loc[first.id] == pytest.approx(first.final["utility_global"])
