"""Examples of the documentation run as they stand; those that install something are for `make release-check`, and the
site as a whole for `make docs`.
"""

import ast
import json
import re
import shlex
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from doc_blocks import PAGES, Block, blocks, shown
from typer.testing import CliRunner

from dpflbench.cli import app

REPO = PAGES.parent.parent
EXAMPLES = sorted(
    str(page.relative_to(PAGES)) for page in PAGES.rglob("*.md") if any(b.what == "run" for b in blocks(str(page)))
)
WALKED = {"tutorial/first-table.md", "tutorial/your-algorithm.md"}  # minutes: carried out by test_release.py


@pytest.mark.parametrize("page", [page for page in EXAMPLES if page not in WALKED])
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    example, printed = ModuleType("example"), ""
    monkeypatch.setitem(sys.modules, "example", example)
    for block in blocks(page):
        if block.what == "file":
            Path(block.file).write_text(block.text)
        elif block.what == "shows":
            assert shown(block, printed) == []
        elif block.language == "python":
            exec(compile(block.text, page, "exec"), vars(example))
        else:
            printed = "".join(map(command, block.lines))


def command(line: str) -> str:
    """What a line of a shell prints, without a new process."""
    first, *arguments = shlex.split(line)
    assert first == "dpflbench", line
    done = CliRunner().invoke(app, [*arguments, *(["--no-isolated"] if arguments[0] == "run" else [])])
    assert done.exit_code == 0, f"{line}: {done.output} {done.exception}"
    return done.output


def test_what_was_printed_is_compared_in_order():
    block = Block("shows", "", "text", "a … c\nlast\n")
    assert shown(block, "a b  c\nx\nlast\n") == []
    assert shown(block, "last\na b c\n") == ["last"]
    assert shown(block, "a c d\nlast") == ["a … c"]
    table = Block("shows", "roughly", "text", "DPSGD  77.51 ± 0.96 *  79.00 ± 0.80\n")
    assert shown(table, "DPSGD 7.1 ± 10.96   9.00 ± 1.80 *\n") == []
    assert shown(table, "DPSGD 7.1 ± 10.96\n") == table.lines


def test_files_of_the_walk_are_what_they_seem(tmp_path, monkeypatch):
    """Code that compiles, suites that read: a slip shows here and not first in a release."""
    monkeypatch.chdir(tmp_path)
    from dpflbench.suite_reading import load

    for page in sorted(WALKED):  # in the order of the walk
        for block in blocks(page):
            if block.what == "file" and block.language == "python":
                ast.parse(block.text)
            elif block.what == "file":
                Path(block.file).write_text(block.text)
                assert load(Path(block.file)).name == yaml.safe_load(block.text)["name"]


def test_every_page_is_in_the_contents_and_what_is_there_is_a_page():
    there = {str(page.relative_to(PAGES)) for page in PAGES.rglob("*.md")}
    named = {"index.md"}
    for page in PAGES.rglob("index.md"):
        for name in re.search(r"```\{toctree\}\n:hidden:\n\n(.*?)```", page.read_text(), re.DOTALL)[1].split():
            named.add(str((page.parent / name).relative_to(PAGES)) + ".md")
    assert there <= named
    generated = (REPO / "docs" / "generate.py").read_text()
    assert [page for page in named - there if f'"{page}"' not in generated] == []


def test_what_pages_include_is_there():
    for page in PAGES.rglob("*.md"):
        for file, heading in re.findall(r"<!-- include ([\w./-]+)(?:: (.+?))? -->", page.read_text()):
            text = (REPO / file).read_text()
            assert not heading or re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE), (page, heading)
        for file in re.findall(r"<!-- docstring ([\w./-]+) -->", page.read_text()):
            assert ast.get_docstring(ast.parse((REPO / file).read_text())), file


def test_links_between_pages_lead_somewhere():
    generated = set(re.findall(r'"([\w/.-]+\.(?:md|json|svg))"', (REPO / "docs" / "generate.py").read_text()))
    for page in PAGES.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)(?:#[\w-]*)?\)", page.read_text()):
            path = (page.parent / target).resolve()
            assert path.exists() or str(path.relative_to(PAGES.resolve())) in generated, (page.name, target)


@pytest.fixture(scope="module")
def generate():
    """What writes the generated pages, as `make docs` calls it."""
    specification = spec_from_file_location("generate", REPO / "docs" / "generate.py")
    module = module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_every_generated_page_can_be_written(generate, tmp_path, monkeypatch, catalogue):
    monkeypatch.setenv("DPFLBENCH_DOCS_WITHOUT_NOTEBOOK", "1")
    generate.main(tmp_path / "pages")
    algorithms = {name for name, part in catalogue.parts["algorithms"].items() if part.distribution == "dpflbench"}
    index = (tmp_path / "pages" / "algorithms" / "index.md").read_text()
    assert [name for name in algorithms - {"compose"} if name not in index] == []
    assert "secure_sum" in (tmp_path / "pages" / "reference" / "suite.schema.json").read_text()


def test_the_notebook_runs_and_shows_a_table_a_figure_and_a_verdict(tmp_path, generate):
    committed = json.loads((PAGES / "tutorial" / "notebook.ipynb").read_text())
    assert all(not cell.get("outputs") for cell in committed["cells"])
    notebook = generate.carried_out(tmp_path)
    outputs = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("FedSGD" in data.get("text/markdown", "") for data in outputs)
    assert any("<svg" in data.get("image/svg+xml", "") for data in outputs)
    assert any("Verified: 8 runs" in data.get("text/plain", "") for data in outputs)
