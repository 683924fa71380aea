"""What of the documentation is generated: pages from the READMEs, a page an algorithm from its module's docstring,
commands and parts from the program, the JSON Schema of suites, and the notebook with its output.

A page may take a section of a README by `<!-- include FILE: Heading -->`, and a docstring by `<!-- docstring FILE -->`:
nothing is written twice.
"""

import ast
import contextlib
import dataclasses
import importlib
import inspect
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

REPO = Path(__file__).parent.parent
IMAGE = re.compile(r"!\[[^\]]*\]\((reports/[^)]+)\)")
API = re.compile(r"<!-- api ([\w.]+) -->")
INCLUDE = re.compile(r"<!-- include ([\w./-]+)(?:: (.+?))? -->")
DOCSTRING = re.compile(r"<!-- docstring ([\w./-]+) -->")
PAGES = Path(__file__).parent / "pages"
ADDRESS = re.compile(r"<[^<>]+ at 0x[0-9a-f]+>")  # of a default that has no better text
NOTEBOOK = PAGES / "tutorial" / "notebook.ipynb"
READMES = {
    "reference/plugins.md": "plugins/README.md",
    "reference/results.md": "dpflbench/execution/README.md",
    "reference/harness.md": "dpflbench/README.md",
    "concepts/board.md": "board/README.md",
    "changelog.md": "CHANGELOG.md",
}


def main(out: Path) -> None:
    """Write every page, as it is or generated, into a folder for sphinx."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(PAGES, out, ignore=shutil.ignore_patterns("*.ipynb"))
    for page in out.rglob("*.md"):
        page.write_text(expanded(page.read_text()))
    for path, content in generated().items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_bytes(content if isinstance(content, bytes) else content.encode())


def expanded(markdown: str) -> str:
    """A page with what it includes."""
    found = INCLUDE.sub(lambda hit: section(REPO / hit[1], hit[2]), markdown)
    found = DOCSTRING.sub(lambda hit: docstring(REPO / hit[1]), found)
    return API.sub(lambda hit: api(hit[1]), found)


def generated() -> dict[str, str | bytes]:
    """Path → content of every page that no file holds."""
    pages: dict[str, str | bytes] = {path: (REPO / source).read_text() for path, source in READMES.items()}
    pages["reference/commands.md"] = commands()
    pages["reference/parts.md"] = parts()
    pages["reference/suite.schema.json"] = schema()
    pages |= {f"algorithms/{file}": algorithm(name) for name, file in algorithm_pages().items()}
    pages["algorithms/index.md"] = algorithm_index()
    pages |= {path: (REPO / path).read_bytes() for path in IMAGE.findall((REPO / "README.md").read_text())}
    if not os.environ.get("DPFLBENCH_DOCS_WITHOUT_NOTEBOOK"):
        pages |= notebook_page()
    else:
        pages["tutorial/notebook.md"] = "# From a notebook\n"
    return pages


def section(file: Path, heading: str | None) -> str:
    """What stands below a heading of a file, without it; the whole file below its title if none is named."""
    text = file.read_text()
    if heading is None:
        return text.removeprefix(re.match(r"# .*\n|", text)[0]).strip()  # type: ignore[index]
    found = re.search(rf"^(#+) {re.escape(heading)}\n", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"{file}: no heading '{heading}'")
    rest = text[found.end() :]
    fenced = False
    lines = []
    for line in rest.splitlines():
        fenced ^= line.startswith("```")
        if not fenced and re.match(rf"#{{1,{len(found[1])}}} ", line):
            break
        lines.append(line)
    return "\n".join(lines).strip()


def docstring(file: Path) -> str:
    """The docstring of a module."""
    return ast.get_docstring(ast.parse(file.read_text())) or ""


def api(name: str) -> str:
    """An object by its dotted name, or all public ones of a module: signature and docstring, of methods too."""
    with contextlib.suppress(ImportError):
        module = importlib.import_module(name)
        own = [n for n, v in vars(module).items() if not n.startswith("_") and getattr(v, "__module__", "") == name]
        return "\n".join(described(getattr(module, each), each) for each in own if callable(getattr(module, each)))
    module_name, _, each = name.rpartition(".")
    return described(getattr(importlib.import_module(module_name), each), each)


def described(thing: Any, name: str) -> str:
    """A function or a class with its fields, properties and methods."""
    lines = [f"### {name}", "", *_signature(thing, name), inspect.cleandoc(thing.__doc__ or ""), ""]
    if not inspect.isclass(thing):
        return "\n".join(lines)
    for below, value in vars(thing).items():
        plain = value.fget if isinstance(value, property) else getattr(value, "func", value)
        if below.startswith("_") or not inspect.isfunction(plain):
            continue
        head = [f"**`.{below}`**", ""] if plain is not value else _signature(plain, below)
        lines += [*head, inspect.cleandoc(plain.__doc__ or ""), ""]
    return "\n".join(lines)


def _signature(thing: Any, name: str) -> list[str]:
    """`class Name(fields)` or `def name(parameters) -> type`, as it is written; nothing where there is none."""
    if inspect.isclass(thing) and not dataclasses.is_dataclass(thing):
        return []
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return []
    word = "class" if inspect.isclass(thing) else "def"
    if word == "class":
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    shown = str(signature)
    if len(shown) > 90:  # a parameter a line
        names, ending = list(map(str, signature.parameters.values())), shown[shown.rindex(")") :]
        shown = "(\n" + "".join(f"    {each},\n" for each in names) + ending
    return ["```python", f"{word} {name}{ADDRESS.sub('…', shown)}", "```", ""]


def _catalogue() -> Any:
    from dpflbench.catalogue import load

    return load()


def algorithm_pages() -> dict[str, str]:
    """Name → file of every built-in algorithm."""
    found = _catalogue().parts["algorithms"].values()
    return {part.name: f"{part.name.lower()}.md" for part in found if part.distribution == "dpflbench"}


def algorithm(name: str) -> str:
    """A page: what it is, its parameters, and its module's docstring."""
    from dpflbench.described import description

    part = _catalogue().parts["algorithms"][name]
    module = importlib.import_module(inspect.getmodule(part.factory).__name__)  # type: ignore[union-attr]
    source = Path(module.__file__ or "").name
    lines = [f"# {name}", "", description(part.factory), "", f"In a suite: `{_used(name, part.factory)}`", ""]
    lines += [*_parameter_table(part.factory), inspect.cleandoc(module.__doc__ or ""), ""]
    siblings = [p.name for p in _catalogue().parts["algorithms"].values() if inspect.getmodule(p.factory) is module]
    others = [f"[{n}]({n.lower()}.md)" for n in siblings if n != name]
    lines += [f"The same file has {', '.join(others)}.", ""] if others else []
    return "\n".join([*lines, f"Source: `plugins/dpflbench_algorithms/{source}`", ""])


def _used(name: str, factory: Any) -> str:
    from dpflbench.schema import parameters

    given = ", ".join(f"{key}: {_yaml(default)}" for key, (_, default) in parameters(factory).items())
    return f"{{use: {name}, with: {{{given}}}}}" if given else name


def _yaml(value: Any) -> str:
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def _parameter_table(factory: Any) -> list[str]:
    from dpflbench.cli.list_parts import allowed
    from dpflbench.schema import parameters

    own = parameters(factory)
    if not own:
        return []
    rows = [
        f"| `{name}` | {' or '.join(allowed(annotation)).replace('|', '/')} | `{_yaml(default)}` |"
        for name, (annotation, default) in own.items()
    ]
    return ["| parameter | allowed | default |", "|---|---|---|", *rows, ""]


def algorithm_index() -> str:
    """All algorithms in a table, and how the rows of the README's differ."""
    from dpflbench.described import description

    found = _catalogue().parts["algorithms"]
    rows = [
        f"| [{name}]({file}) | {description(found[name].factory)} |"
        for name, file in sorted(algorithm_pages().items(), key=_folded)
    ]
    intro = (
        "Every built-in algorithm comes by the same route as yours would. The text of a page is the head of its file."
    )
    pages = [file for _, file in sorted(algorithm_pages().items(), key=_folded)]
    contents = ["```{toctree}", ":hidden:", "", *pages, "```", ""]
    return "\n".join(["# Algorithms", "", intro, "", "| algorithm | what it is |", "|---|---|", *rows, "", *contents])


def _folded(item: tuple[str, str]) -> str:
    return item[0].lower()


def parts() -> str:
    """`dpflbench list` as a page."""
    from dpflbench.described import description
    from dpflbench.hookspecs import KINDS

    lines = ["# Parts", "", "What `dpflbench list` shows of an installation without further plugins.", ""]
    for kind, known in _catalogue().parts.items():
        own = {name: part for name, part in known.items() if part.distribution == "dpflbench"}
        lines += [f"## {kind}", "", f"{KINDS[kind].decides[0].upper()}{KINDS[kind].decides[1:]}.", ""]
        for name, part in sorted(own.items(), key=_folded):
            lines += [f"**`{name}`** {description(part.factory)}", "", *_parameter_table(part.factory)]
    return "\n".join(lines)


def commands() -> str:
    """The help of every command."""
    from typer.main import get_command

    from dpflbench.cli import COMMANDS, app

    group: Any = get_command(app)
    context = group.make_context("dpflbench", [], resilient_parsing=True)
    context.max_content_width = 110
    lines = ["# Commands", "", section(REPO / "dpflbench" / "api" / "README.md", "Exit codes"), ""]
    for name in COMMANDS:
        command = group.get_command(context, name)
        lines += [f"## dpflbench {name}", "", *_help(command, name, context)]
        for below, each in getattr(command, "commands", {}).items():
            lines += [f"### dpflbench {name} {below}", "", *_help(each, f"{name} {below}", context)]
    return "\n".join(lines)


def _help(command: Any, name: str, parent: Any) -> list[str]:
    context = type(parent)(command, info_name=f"dpflbench {name}", terminal_width=110, max_content_width=110)
    return ["```text", command.get_help(context).replace("\b", "").strip(), "```", ""]


def schema() -> str:
    """The JSON Schema of suites."""
    from dpflbench.suite_json_schema import json_schema

    return json.dumps(json_schema(_catalogue()), indent=1, ensure_ascii=False)


def notebook_page() -> dict[str, str | bytes]:
    """The notebook, carried out in an empty folder, as Markdown with its figures."""
    from nbconvert import MarkdownExporter

    with tempfile.TemporaryDirectory() as folder:
        notebook = carried_out(Path(folder))
    for cell in notebook.cells:  # a bar that moved is nothing to read
        outputs = cell.get("outputs", [])
        cell["outputs"] = [o for o in outputs if "<progress" not in str(o.get("data", {}).get("text/html", ""))]
    body, found = MarkdownExporter().from_notebook_node(notebook)
    body = re.sub("^#### ", "## ", body, flags=re.MULTILINE)  # tables that show themselves have small headings
    files = {f"tutorial/{name}": content for name, content in found["outputs"].items()}
    return {"tutorial/notebook.md": body, "tutorial/notebook.ipynb": NOTEBOOK.read_text(), **files}


def carried_out(folder: Path) -> Any:
    """The notebook with its output, run in a folder by this interpreter."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(folder)}}
    # a kernel on this machine says with every start that it could be encrypted
    NotebookClient(notebook, timeout=300, resources=place, extra_arguments=["--log-level=40"]).execute()
    return notebook


if __name__ == "__main__":
    main(Path(sys.argv[1]))
