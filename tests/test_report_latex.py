"""LaTeX and Parquet: tables that set, text that is nothing but text, numbers that come back."""

import re
import shutil
import subprocess

import pandas as pd
import pytest
from record_factory import make_results

from dpflbench.report.labels import latex
from dpflbench.report.latex import latex_tables
from dpflbench.report.latex_text import proper, sentence
from dpflbench.report.tables.table import Item, Table
from dpflbench.report.tables.utility import utility_tables
from dpflbench.report.view import view
from dpflbench.report.write import Contents, write_report

AXES = {"privacy.mechanism": ["gaussian", "laplace"], "privacy.epsilon.high": [1, 6]}
GRID = {**AXES, "task.partition.alpha": [0.5, 3.0]}
EIGHT = ("FedSGD", "DPSGD", "DMLDP", "WeiAvg", "PFA", "PRIVATEFL", "DPFL-BCS", "PRIVATEFL-BCS")
LETTERS = ["".join(map(chr, range(start, start + 12))) for start in range(0xC0, 0x180, 12)]
HOSTILE = "\\input{/etc/passwd}\\write18{rm -rf /}%$&#_{}~^\n\\end{tabular}"


def one(table: Table) -> str:
    (text,) = latex_tables([table]).values()
    return text


def written(results, folder):
    write_report(results, folder, ["latex"])
    return {path.name: path.read_text() for path in (folder / "tables").iterdir()}


def test_a_table_has_the_rules_of_booktabs_and_one_cell_a_column():
    text = one(utility_tables(view(make_results(("DPSGD", "DPFL-BCS"), seeds=7)))[0])
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert [line.count(" & ") for line in body] == [1, 1, 1]
    assert r"DPFL-BCS & \textbf{86.30\,$\pm$\,0.22} \\" in body
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]


def test_every_table_is_a_file_and_every_mechanism_has_its_own(tmp_path):
    files = written(make_results(EIGHT, seeds=2, axes=GRID, report={"baseline": ["DPSGD", "DMLDP"]}), tmp_path)
    keys = ("utility", "differences", "epsilon", "who-pays", "best-round", "cost", "gaps")
    assert set(files) == {"all.tex", *(f"{key}-{m}.tex" for key in keys for m in ("gaussian", "laplace"))}
    assert r"\label{tab:utility-laplace}" in files["utility-laplace.tex"]
    assert "Laplace noise" in files["utility-laplace.tex"]
    assert all(files["all.tex"].count(rf"\input{{{name[:-4]}}}") == 1 for name in files if name != "all.tex")
    assert not any("longtable" in text for text in files.values())


def test_without_an_axis_of_mechanisms_a_table_has_its_plain_name(tmp_path):
    assert "utility.tex" in written(make_results(("DPSGD", "WeiAvg"), seeds=2), tmp_path)


def test_tables_of_an_earlier_report_do_not_stay_and_others_do(tmp_path):
    written(make_results(EIGHT, seeds=2, axes=AXES), tmp_path)
    (tmp_path / "tables" / "mine.tex").write_text("mine")
    assert {"mine.tex", "utility.tex"} < set(files := written(make_results(("DPSGD",), seeds=2), tmp_path))
    assert "utility-laplace.tex" not in files


def test_levels_that_repeat_are_set_once_with_symbols_for_axes(tmp_path):
    text = written(make_results(EIGHT, seeds=2, axes=GRID), tmp_path)["utility-gaussian.tex"]
    assert (
        r" & \multicolumn{2}{c}{$\varepsilon_{\max} = 1$} & \multicolumn{2}{c}{$\varepsilon_{\max} = 6$} "
        r"\\\cmidrule(lr){2-3}\cmidrule(lr){4-5}" in text
    )
    assert r"algorithm & $\alpha = 0.5$ & $\alpha = 3$ & $\alpha = 0.5$ & $\alpha = 3$ \\" in text


def test_a_head_is_never_broken_inside_a_symbol(tmp_path):
    text = written(make_results(EIGHT, seeds=1, axes={"privacy.epsilon.high": [0.5, 1, 2]}), tmp_path)["utility.tex"]
    values = " & ".join(rf"$\varepsilon_{{\max}} = {v}$" for v in ("0.5", "1", "2"))
    assert rf"algorithm & {values} \\" in text


def test_an_impossible_cell_is_a_dash_with_a_note(tmp_path):
    text = written(make_results(EIGHT, seeds=2, axes=AXES), tmp_path)["utility-gaussian.tex"]
    assert r"DMLDP & --\textsuperscript{1} & --\textsuperscript{1} \\" in text
    assert r"\textsuperscript{1} DMLDP is defined for Laplace, not for Gaussian." in text
    assert r"FedSGD\textsuperscript{a} & " in text
    assert r"\textsuperscript{a} Not private." in text


def test_settings_stand_above_their_rows_and_what_is_the_same_everywhere_below(tmp_path):
    text = written(make_results(("DPSGD", "WeiAvg", "PFA"), seeds=7, axes=AXES), tmp_path)["differences-gaussian.tex"]
    assert r"\multicolumn{7}{@{}l}{\emph{$\varepsilon_{\max} = 1$}} \\" in text
    assert "\nWeiAvg & \\textbf{+10.00} & " in text
    assert "Baseline: DPSGD." in text


def test_words_become_the_names_and_symbols_of_papers():
    assert proper("gaussian, ε max 6, alpha 0.5") == r"Gaussian, $\varepsilon_{\max} = 6$, $\alpha = 0.5$"
    assert proper("mse ↓") == r"MSE $\downarrow$"
    assert proper("epsilon spent, p = 0.25, d_z") == r"$\varepsilon$ spent, $p$ = 0.25, $d_z$"
    assert (
        proper("task.partition.alpha, laplace-like, alphabet, map")
        == "task.partition.alpha, laplace-like, alphabet, map"
    )
    assert sentence("utility_global: the shared model") == "The shared model."
    assert proper("5 862 528 samples, 3 %, 1 ± 2") == r"5\,862\,528 samples, 3\,\%, 1\,$\pm$\,2"


def test_names_of_algorithms_stay_as_they_are():
    row = (Item("laplace"), Item("laplace"))
    assert "laplace & Laplace" in one(Table(key="k", title="T", header=("algorithm", "noise"), rows=(row,), labels=2))


def test_hostile_text_is_no_command():
    rows = ((Item(HOSTILE), Item("1", mark=HOSTILE)),)
    table = Table(key="k", title=HOSTILE, header=(HOSTILE, "b"), rows=rows, caption=HOSTILE, notes=(HOSTILE,))
    text = "".join(latex_tables([table], HOSTILE).values())
    commands = set(re.findall(r"\\[a-zA-Z]+", text.split("not this file.")[1]))
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
        r"\setlength",
        r"\tabcolsep",
        r"\belowcaptionskip",
        r"\smallskip",
        r"\raggedright",
        r"\arraybackslash",
        r"\shortstack",
    }
    assert text.count(r"\end{tabular}") == 1
    (name,) = latex_tables([table], HOSTILE)
    assert re.fullmatch(r"[a-zA-Z0-9-]+", name)


def test_braces_are_balanced_whatever_the_names():
    text = "".join(
        latex_tables(Contents(view(make_results(("DPSGD", HOSTILE, "[a]*", "x--y"), seeds=1))).tables).values()
    )
    plain = text.replace(r"\{", "").replace(r"\}", "")
    assert plain.count("{") == plain.count("}")
    assert "{[}a{]}{*}" in text  # after a line end LaTeX would take a bare one for its own
    assert "x-{}-y" in text


def test_letters_no_font_has_are_named():
    assert latex("ε ± ✓ é Đ") == r"$\varepsilon$ $\pm$ {[}U+2713{]} é {[}U+0110{]}"  # a bare bracket may be an argument


def test_a_narrow_table_takes_one_column_and_a_wide_one_both():
    def table(columns: int) -> Table:
        row = (Item("DPSGD"), *[Item("84.52 ± 0.31")] * columns)
        return Table(key="k", title="T", header=("algorithm", *(f"c{i}" for i in range(columns))), rows=(row, row))

    assert r"\begin{table}" in one(table(2))
    assert r"\begin{table*}" in one(table(5))
    texts = latex_tables([table(20)])
    assert list(texts) == ["k-1", "k-2", "k-3"]  # about seven of 60 points fit 469
    assert all("DPSGD & " in text for text in texts.values())
    assert sum(text.split(r"\midrule")[1].split(r"\\")[0].count("84.52") for text in texts.values()) == 20


def test_a_long_table_becomes_several_and_settings_stay_together():
    rows = tuple((Item(f"alpha {k}"), Item(f"A{i}"), Item("1")) for k in range(5) for i in range(12))
    texts = latex_tables([Table(key="k", title="T", header=("column", "algorithm", "x"), rows=rows, labels=2)])
    assert list(texts) == ["k-1", "k-2", "k-3"]
    assert [text.count(r"\emph{") for text in texts.values()] == [2, 2, 1]
    assert "T (part 2 of 3)." in texts["k-2"]


def test_a_setting_longer_than_a_page_is_named_again_on_the_next():
    rows = tuple((Item("alpha 3"), Item(f"A{i}"), Item("1")) for i in range(60))
    texts = latex_tables([Table(key="k", title="T", header=("column", "algorithm", "x"), rows=rows, labels=2)])
    assert [text.count(r"\emph{$\alpha = 3$}") for text in texts.values()] == [1, 1]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex here to set the tables with")
@pytest.mark.parametrize("axes", [GRID, {}, {"privacy.epsilon.high": [0.5, 1, 2, 4, 8]}], ids=["grid", "one", "five"])
def test_a_real_tex_sets_every_table_in_two_columns_without_a_line_too_wide(tmp_path, axes):
    report = {"baseline": ["DPSGD", "DMLDP"], "sections": ["not there"]}
    names = EIGHT if axes else (*EIGHT, HOSTILE, *LETTERS)
    written(make_results(names, seeds=3, axes=axes, report=report), tmp_path)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path / "tables", capture_output=True, timeout=120)
    log = (tmp_path / "tables" / "all.log").read_text(errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Output written on all.pdf" in log
    for trouble in ("Overfull", "Float too large", "undefined"):
        assert trouble not in log


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
