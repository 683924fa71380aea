"""What a run id covers: every definition a run can reach changes it, nothing else does."""

import ast
import random
import subprocess
import sys

import pytest
from harness import assembly_of
from places import place
from test_catalogue import install

from dpflbench.catalogue import load
from dpflbench.execution.attempt import execute
from dpflbench.interfaces import PLAIN
from dpflbench.planning import make_run
from dpflbench.provenance import checkout, kept, places
from dpflbench.provenance.closure import Sources
from dpflbench.provenance.places import locate
from dpflbench.provenance.runs import closures, on_disk, part_source, sources_of

# ---------------------------------------------------------------- a made-up package, and what one change in it does

AUTHOR = {
    "__init__": '''
        """A package."""
        import antigravity_of_others
        from author.exported import export as export
    ''',
    "part": '''
        """A part."""
        import json
        import math
        from dataclasses import dataclass, field
        from math import floor as rounded
        from typing import TYPE_CHECKING

        import author.dotted
        from author import export, tools
        from author import patched as other
        from author.base import Base
        from author.decorate import twice
        from author.registry import REGISTRY
        from author.stars import *
        from . import relative

        if TYPE_CHECKING:
            from author.unrelated import Unrelated

        LIMIT = 3
        TABLE = {"a": 1}
        TABLE["b"] = 2
        UNRELATED = 4
        try:
            from author.tried import tried
        except ImportError:
            tried = None

        @dataclass
        class Options:
            power: int = 2

        @dataclass
        class Part(Base):
            """The part."""
            options: "Options" = field(default_factory=dict)
            scale = LIMIT

            def aggregate(self, rows, by=tools.DEFAULT):
                """Aggregate."""
                from author.inner import inside
                import author.imported_inside
                def nested(x):
                    return x + 1  # one more
                chosen = REGISTRY["mean"]
                near = relative.near(nested), starred(by), author.dotted.deep()
                return inside(rows), near, chosen, export(), doubled(), tried

            def look(self, name):
                return getattr(tools.shelves, name), rounded(math.pi), other.answer(), Meaning.known

        class Meaning:
            known = TABLE

        @twice
        def doubled():
            return 1

        def unrelated():
            """Nobody calls this."""
            return json.dumps({}) + str(UNRELATED)

        def dpflbench_aggregators():
            return {"part": Part}

        if __name__ == "__main__":
            print(Part())
    ''',
    "base": """
        from author.constants import OFFSET
        class Base:
            def shift(self):
                return OFFSET
    """,
    "constants": "OFFSET = 7\nOTHER = 8\n",
    "decorate": """
        def twice(function):
            def wrapped():
                return 2 * function()
            return wrapped
    """,
    "registry": """
        REGISTRY = {}
        def register(function):
            REGISTRY[function.__name__] = function
            return function
        import author.registered
    """,
    "registered": """
        from author.registry import register
        from author.constants import OTHER
        @register
        def mean():
            return OTHER
    """,
    "stars": "def starred(x):\n    return x\n",
    "relative": "def near(x):\n    return x(1)\ndef far():\n    return 0\n",
    "tools": "from author import shelves\nDEFAULT = 5\nSPARE = 6\n",
    "shelves": "def anything():\n    return 1\n",
    "inner": """
        def inside(rows):
            return deeper(rows)
        def deeper(rows):
            return rows
        def beside():
            return 0
    """,
    "imported_inside": "import author.patched\nauthor.patched.answer = lambda: 43\n",
    "exported": "def export():\n    return helper()\ndef helper():\n    return 1\n",
    "dotted": "def deep():\n    return 1\n",
    "tried": "def tried():\n    return 1\n",
    "patched": "def answer():\n    return 42\n",
    "unrelated": "class Unrelated:\n    def act(self):\n        return 1\n",
}


def dedented(text):
    import textwrap

    return textwrap.dedent(text).lstrip()


@pytest.fixture(scope="module")
def author(tmp_path_factory):
    """The package on disk, where a plugin's package could lie."""
    home = tmp_path_factory.mktemp("home")
    (home / "author").mkdir()
    for name, text in AUTHOR.items():
        (home / "author" / f"{name}.py").write_text(dedented(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(home)
        yield Sources()


def digest(changed=None, root=("author.part", "Part")):
    return Sources(changed).closure([root], ["author.part"]).digest


def edited(module, old, new):
    text = dedented(AUTHOR[module])
    assert text.count(old) >= 1, f"{old!r} is not in {module}"
    return {"author" if module == "__init__" else f"author.{module}": text.replace(old, new)}


BEHAVIOUR = [
    ("part", "x + 1", "x + 2"),  # a nested function
    ("part", "LIMIT = 3", "LIMIT = 4"),  # a constant of the module
    ("part", 'TABLE["b"] = 2', 'TABLE["b"] = 3'),  # filled after it was made
    ("part", "power: int = 2", "power: int = 3"),  # a class that only an annotation in quotes names
    ("part", "return 1", "return 2"),  # a decorated function
    ("part", "from math import floor as rounded", "from math import ceil as rounded"),  # another library function
    ("part", "by=tools.DEFAULT", "by=tools.SPARE"),  # a default argument
    ("tools", "DEFAULT = 5", "DEFAULT = 6"),  # a default argument's value
    ("base", "return OFFSET", "return -OFFSET"),  # a base class
    ("constants", "OFFSET = 7", "OFFSET = 8"),  # a constant of a base class's module
    ("decorate", "2 * function()", "3 * function()"),  # a decorator
    ("registry", "REGISTRY[function.__name__] = function", "REGISTRY[function.__name__] = None"),
    ("registered", "return OTHER", "return -OTHER"),  # found through a registry alone
    ("constants", "OTHER = 8", "OTHER = 9"),  # and what that uses
    ("stars", "return x", "return -x"),  # from a module imported by star
    ("relative", "return x(1)", "return x(2)"),  # a relative import
    ("inner", "return deeper(rows)", "return rows"),  # imported inside a method
    ("inner", "def deeper(rows):\n    return rows", "def deeper(rows):\n    return -rows"),  # and beyond
    ("imported_inside", "43", "44"),  # a module imported inside a method for what it does
    ("shelves", "return 1", "return 2"),  # looked up by name in a module
    ("exported", "return 1", "return 2"),  # through the package's __init__
    ("dotted", "return 1", "return 2"),  # by its full dotted name
    ("tried", "return 1", "return 2"),  # imported in a try block
    ("patched", "return 42", "return 41"),  # an attribute of a module under another name
    ("__init__", "antigravity_of_others", "gravity_of_others"),  # a library imported for what it does
    ("__init__", "from author.exported import export as export", "from author.dotted import deep as export"),
]


@pytest.mark.parametrize(("module", "old", "new"), BEHAVIOUR, ids=[f"{m}: {new[:40]}" for m, _, new in BEHAVIOUR])
def test_a_change_of_behaviour_anywhere_a_part_reaches_is_seen(author, module, old, new):
    assert digest(edited(module, old, new)) != digest()


COSMETICS = [
    ("part", '"""A part."""', '"""Another text."""'),
    ("part", '"""The part."""', '"""Another text."""'),
    ("part", '"""Aggregate."""\n', '"""Another text."""  # with a comment\n'),
    ("part", "# one more", "# something else"),
    ("part", "chosen = REGISTRY", "\n\n        # a comment\n        chosen  =  REGISTRY"),
    ("part", "return x + 1", "return (x +\n                1)"),
    ("part", "UNRELATED = 4", "UNRELATED = 5"),
    ("part", "json.dumps({})", "json.dumps([])"),
    ("part", '"""Nobody calls this."""', ""),
    ("part", "print(Part())", "print(Part)"),
    ("part", "from author.unrelated import Unrelated", "from author.unrelated import Unrelated as Other"),
    ("part", '{"part": Part}', '{"part": Part, "more": Meaning}'),
    ("tools", "SPARE = 6", "SPARE = 7"),
    ("inner", "return 0", "return 1"),
    ("relative", "return 0", "return 1"),
    ("unrelated", "return 1", "return 2"),
    ("constants", "OTHER = 8", "OTHER = 8\nNEW = 9"),
]


@pytest.mark.parametrize(("module", "old", "new"), COSMETICS, ids=[f"{m}: {new[:40]!r}" for m, _, new in COSMETICS])
def test_comments_docstrings_layout_and_what_no_part_reaches_are_not_seen(author, module, old, new):
    assert digest(edited(module, old, new)) == digest()


DYNAMIC = {
    "text that is code": "def part():\n    return eval('hid' + 'den()')\ndef hidden():\n    return 1\n",
    "the module's own table": "def part():\n    return globals()['hidden']()\ndef hidden():\n    return 1\n",
    "the table of modules": "import sys\ndef part():\n    return sys.modules[__name__]\ndef hidden():\n    return 1\n",
    "an import by name": (
        "from importlib import import_module\ndef part(name):\n    return import_module(name)\n"
        "def hidden():\n    return 1\n"
    ),
    "subclasses": (
        "class Base:\n    pass\nclass Hidden(Base):\n    def act(self):\n        return 1\n"
        "def part():\n    return Base.__subclasses__()\n"
    ),
    "subclasses that register themselves": (
        "KNOWN = []\nclass Base:\n    def __init_subclass__(cls):\n        KNOWN.append(cls)\n"
        "class Hidden(Base):\n    def act(self):\n        return 1\ndef part():\n    return KNOWN\n"
    ),
    "a metaclass": (
        "KNOWN = []\nclass Meta(type):\n    def __new__(cls, *given):\n        KNOWN.append(given)\n"
        "class Hidden(metaclass=Meta):\n    def act(self):\n        return 1\ndef part():\n    return KNOWN\n"
    ),
    "a table filled by a loop": (
        "KNOWN = {}\nfor name in 'ab':\n    KNOWN[name] = lambda: 1\ndef part():\n    return KNOWN\n"
    ),
    "a docstring that is read": 'def part():\n    """return 1"""\n    return part.__doc__\n',
}


@pytest.mark.parametrize("text", DYNAMIC.values(), ids=DYNAMIC.keys())
def test_where_nobody_can_read_what_is_reached_everything_counts(author, text):
    root = ("author.stars", "part")
    changed = text.replace("return 1", "return 2").replace("lambda: 1", "lambda: 2")
    assert changed != text
    assert digest({"author.stars": text}, root) != digest({"author.stars": changed}, root)


def test_a_definition_that_is_not_in_the_text_counts_as_its_whole_module(author):
    root = ("author.inner", "made_at_run_time")
    assert digest(root=root) != digest(edited("inner", "return 0", "return 1"), root)


def test_a_file_that_is_no_python_counts_by_its_bytes(author):
    one, two = {"author.inner": "def inside(:\n"}, {"author.inner": "def inside(::\n"}
    assert len({digest(), digest(one), digest(two)}) == 3
    latin = "# coding: latin-1\ndef inside(rows):\n    return 'ß'\n"
    assert Sources({"author.inner": latin}).module("author.inner").statements[0].binds == ["inside"]


def test_names_that_import_each_other_in_a_circle_come_to_an_end(author):
    circle = {"author.stars": "from author.inner import *\n", "author.inner": "from author.stars import *\nlast = 1\n"}
    assert digest(circle, ("author.stars", "last")) == digest(circle, ("author.stars", "last"))
    assert digest(circle, ("author.stars", "nowhere")) != digest(circle, ("author.stars", "last"))


def test_a_compiled_module_counts_by_its_bytes(tmp_path, monkeypatch):
    from importlib.machinery import EXTENSION_SUFFIXES

    (tmp_path / "swift").mkdir()
    (tmp_path / "swift" / "__init__.py").write_text("from swift.core import step\n")
    core = tmp_path / "swift" / f"core{EXTENSION_SUFFIXES[0]}"
    core.write_bytes(b"one")
    monkeypatch.syspath_prepend(tmp_path)
    first = Sources().closure([("swift", "step")]).digest
    core.write_bytes(b"two")
    assert Sources().closure([("swift", "step")]).digest != first


def test_libraries_are_named_and_not_read(author):
    found = Sources().closure([("numpy", "mean"), ("torch.nn", "Linear")])
    assert found.nodes == frozenset()
    assert list(found.modules) == ["numpy", "torch.nn"]
    assert found.digest != Sources().closure([("numpy", "median"), ("torch.nn", "Linear")]).digest


def test_packages_of_one_distribution_are_one_author(tmp_path, monkeypatch):
    """Installed, two packages lie beside all libraries; the distribution's own list says which belong together."""
    site = tmp_path / "site-packages"
    site.mkdir()
    for name in ("hooks_of_x", "core_of_x", "library_of_y"):
        (site / f"{name}.py").write_text("import core_of_x, library_of_y\ndef act(): return core_of_x, library_of_y\n")
    info = site / "x-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: x\nVersion: 1.0\n")
    (info / "RECORD").write_text("hooks_of_x.py,,\ncore_of_x.py,,\nx-1.0.dist-info/RECORD,,\n")
    monkeypatch.syspath_prepend(site)
    places.know_distribution("x", "hooks_of_x")
    assert places.followed("hooks_of_x", "core_of_x")
    assert not places.followed("hooks_of_x", "library_of_y")
    assert places.ours("core_of_x")
    assert not places.ours("library_of_y")


# ---------------------------------------------------------------- the real tree

ALGORITHMS = sorted(load().parts["algorithms"])


@pytest.fixture
def whole(tiny):
    """A suite that asks for more of the harness than `tiny`: features, a skewed split, momentum, decay."""
    tiny["task"]["dataset"]["features"] = {"kind": "pca", "components": 3}
    tiny["task"]["partition"] = {"kind": "dirichlet", "alpha": 3.0}
    tiny["federation"] |= {"momentum": 0.5, "weight_decay": 0.01}
    return tiny


def made(body, catalogue, use):
    """An algorithm under a suite, with the noise it is defined for."""
    laplace = use == "DMLDP"
    if (algorithm := catalogue.get("algorithms", use).factory()).trains or algorithm.rule != PLAIN:
        local = {"kind": "minibatch", "steps": 2, "batch": 10, "lr": 0.1}
        body = body | {"federation": body["federation"] | {"local": local}}
    return assembly_of(
        body | {"privacy": body["privacy"] | {"mechanism": "laplace"}} if laplace else body, catalogue, use
    )


def source(module):
    return locate(module).read_text()


def functions(tree, path=""):
    """Every function of a module with its qualified name as code objects have it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield path + node.name, node
            yield from functions(node, f"{path}{node.name}.<locals>.")
        else:
            yield from functions(node, f"{path}{node.name}." if isinstance(node, ast.ClassDef) else path)


def altered(module, qualname=None):
    """A module's text with one more statement at the start of one function, or of every function and class."""
    tree = ast.parse(source(module))
    found = [node for name, node in functions(tree) if qualname in (None, name)]
    found += [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)] if qualname is None else []
    assert found, f"{module} has no {qualname}"
    for node in found:
        node.body.insert(0, ast.parse("altered = 1").body[0])
    return {module: ast.unparse(tree)}


def executed(assembly, catalogue, body):
    """(module, qualified name) of every function of ours that a run calls, but for what it calls to measure itself."""
    names = {
        str(locate(m)): m for package in ("dpflbench", "dpflbench_algorithms") for m in places.package_modules(package)
    }
    found, measuring = set(), 0

    def trace(frame, event, _):
        nonlocal measuring
        code = frame.f_code
        module = names.get(code.co_filename)
        if module is None or event not in ("call", "return"):
            return
        if (module, code.co_name) == ("dpflbench.execution.outcome", "measured"):
            measuring += 1 if event == "call" else -1
        elif event == "call" and not measuring and code.co_name != "<module>":
            found.add((module, code.co_qualname))

    run = make_run(assembly.config, assembly, assembly.task.dataset.digest(None))
    sys.setprofile(trace)
    try:
        record = execute(run, catalogue, place())
    finally:
        sys.setprofile(None)
    assert record.status == "done", record.reason
    return found


def run_and_trace(whole, catalogue, use):
    body = whole | {"algorithm": {"name": use}, "seed": 0}
    if use == "DMLDP":
        body["privacy"] = body["privacy"] | {"mechanism": "laplace"}
    assembly = made(whole, catalogue, use)
    return assembly, executed(assembly, catalogue, body)


@pytest.mark.parametrize("use", ALGORITHMS)
def test_whatever_a_run_executes_is_covered_by_its_id(whole, catalogue, use):
    """The safety of static reading, shown on real runs: executed is a part of reached."""
    assembly, calls = run_and_trace(whole, catalogue, use)
    assert len(calls) > 100
    reached = {(m, name) for c in closures(assembly) for m, i in c.nodes for name in on_disk().statement((m, i)).binds}
    assert {(module, name) for module, name in calls if (module, name.partition(".")[0]) not in reached} == set()


def test_altering_any_function_a_run_executes_gives_it_another_id(whole, catalogue):
    """Every one by the digest of its statement; some, drawn by lot, by the whole way to the id."""
    assembly, calls = run_and_trace(whole, catalogue, "PRIVATEFL-BCS")
    known = {m: dict(functions(ast.parse(source(m)))) for m in {module for module, _ in calls}}
    named = sorted((m, name) for m, name in calls if name in known[m])  # not comprehensions and lambdas
    assert len(named) > 100
    reached = {node for c in closures(assembly) for node in c.nodes}
    for module, name in named:
        now = Sources(altered(module, name), like=on_disk()).module(module)
        pairs = zip(on_disk().module(module).statements, now.statements, strict=True)
        differ = [number for number, (a, b) in enumerate(pairs) if a.digest != b.digest]
        assert len(differ) == 1
        assert (module, differ[0]) in reached, f"{module}.{name}"
    before = sources_of(assembly)
    for module, name in random.Random(0).sample(named, 12):
        assert sources_of(assembly, Sources(altered(module, name), like=on_disk())) != before, f"{module}.{name}"


def mnist(tiny, catalogue, use="DPSGD"):
    tiny["task"]["dataset"] = {"name": "mnist", "features": {"kind": "pca", "components": 50}}
    return assembly_of(tiny, catalogue, use)


def test_no_comment_docstring_or_layout_anywhere_makes_a_run_stale(tiny, catalogue):
    """Every module of the harness and the plugins, printed anew from its syntax and robbed of its docstrings."""
    changed = {}
    for module in (*places.package_modules("dpflbench"), *places.package_modules("dpflbench_algorithms")):
        tree = ast.parse(source(module))
        for node in ast.walk(tree):
            if isinstance(
                node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
            ) and ast.get_docstring(node):
                node.body[:1] = [ast.parse("'another text'").body[0]]
        changed[module] = "# nothing is as it was\n" + ast.unparse(tree)
    assert len(changed) > 100
    for use in ("FedSGD", "DPFL-BCS"):
        assembly = mnist(tiny, catalogue, use)
        assert sources_of(assembly, Sources(changed)) == sources_of(assembly)


OTHERS = [
    "dpflbench.tasks.lending",
    "dpflbench.tasks.cifar10",
    "dpflbench.tasks.femnist",
    "dpflbench.tasks.idx_images",
    "dpflbench.tasks.npz",
    "dpflbench.judges.verify",
    "dpflbench.report.tables.utility",
    "dpflbench.cli.run",
    "dpflbench.execution.workers",
    "dpflbench.execution.progress",
    "dpflbench_algorithms.bcs",
    "dpflbench_algorithms.weiavg",
]


def test_other_loaders_algorithms_reports_and_commands_leave_an_mnist_run_alone(tiny, catalogue):
    assembly = mnist(tiny, catalogue)
    changed = {name: text for module in OTHERS for name, text in altered(module).items()}
    assert sources_of(assembly, Sources(changed, like=on_disk())) == sources_of(assembly)


@pytest.mark.parametrize(
    ("module", "whose"),
    [
        ("dpflbench.tasks.mnist", "dataset mnist"),
        ("dpflbench.tasks.features", "feature pca"),
        ("dpflbench.federation.simulate", "dpflbench"),
        ("dpflbench_algorithms.dpsgd", "algorithm DPSGD"),
    ],
)
def test_a_change_is_laid_to_the_part_that_reaches_it(tiny, catalogue, module, whose):
    assembly = mnist(tiny, catalogue)
    before, after = sources_of(assembly), sources_of(assembly, Sources(altered(module), like=on_disk()))
    assert whose in {name for name in before if before[name] != after[name]}
    assert before["model softmax"] == after["model softmax"]


def test_a_single_choice_of_a_table_is_covered_and_its_neighbours_are_not(tiny, catalogue):
    tiny["task"]["partition"] = {"kind": "dirichlet"}
    assembly = assembly_of(tiny, catalogue, "DPSGD")
    before = sources_of(assembly)

    def after(qualname, module="dpflbench.tasks.partition"):
        return sources_of(assembly, Sources(altered(module, qualname), like=on_disk()))

    assert after("Dirichlet.assign") != before
    assert after("Writer.assign") == before
    assert after("ResNet20.build", "dpflbench.tasks.models") == before
    assert after("Softmax.build", "dpflbench.tasks.models") != before


# ---------------------------------------------------------------- a stranger's plugin

PLUGIN = '''"""A plugin."""
from functools import partial
from dataclasses import dataclass
from dpflbench import hookimpl

@dataclass(frozen=True)
class Median:
    """The median."""
    power: int = 1
    def init(self, setup):
        return None
    def aggregate(self, updates, state):
        return updates.values.median(0).values, None  # row by row

@hookimpl
def dpflbench_aggregators():
    return {"plain": Median, "strong": partial(Median, power=2), "made": lambda: Median(3)}
'''


def plugin_sources(folder, text):
    """The sources of its three parts after an edit, as a new process would see them."""
    (folder / "median_of_x.py").write_text(text)
    parts = load().parts["aggregators"]
    sources = Sources()
    return {name: part_source(parts[name], sources) for name in ("plain", "strong", "made")}


def test_an_edit_of_a_plugin_counts_only_where_it_changes_what_runs(monkeypatch, tmp_path):
    install(tmp_path, "median-of-x", body=PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    before = plugin_sources(tmp_path, PLUGIN)
    assert before["plain"].startswith("median-of-x 1.0 ")
    comment = PLUGIN.replace("# row by row", "# a comment").replace("The median", "A docstring")
    assert plugin_sources(tmp_path, comment) == before
    changed = plugin_sources(tmp_path, PLUGIN.replace(".median(0).values", ".mean(0)"))
    assert all(changed[name] != before[name] for name in before)
    hook = plugin_sources(tmp_path, PLUGIN.replace("power=2", "power=4"))  # what a hook puts into a factory
    assert hook["plain"] == before["plain"]
    assert hook["strong"] != before["strong"]
    assert hook["made"] != before["made"]


def test_the_version_of_a_strangers_distribution_counts_and_dpflbenchs_own_does_not(catalogue):
    from dataclasses import replace

    part = catalogue.parts["aggregators"]["mean"]
    assert part_source(replace(part, version="9.9"), on_disk()) == part_source(part, on_disk())
    theirs = replace(part, distribution="theirs")
    assert part_source(theirs, on_disk()) != part_source(replace(theirs, version="9.9"), on_disk())


# ---------------------------------------------------------------- what is kept between processes


@pytest.fixture
def own_shelf(tmp_path, monkeypatch):
    monkeypatch.setenv("DPFLBENCH_CACHE", str(tmp_path / "cache"))
    kept.shelf.cache_clear()
    yield tmp_path / "cache" / "sources.json"
    kept.shelf.cache_clear()


def plain():
    """The closure of Softmax as a new process has it, and how many modules it had to parse."""
    kept.shelf.cache_clear()
    parsed = []
    with pytest.MonkeyPatch.context() as patch:
        real = kept.reading.read
        patch.setattr("dpflbench.provenance.closure.read", lambda *given: parsed.append(given[1]) or real(*given))
        return Sources().closure([("dpflbench.tasks.models", "Softmax")]).digest, len(parsed)


def test_modules_are_parsed_once_and_again_where_the_shelf_is_damaged(own_shelf):
    first, parsed = plain()
    assert parsed > 3
    assert plain() == (first, 0)
    whole = own_shelf.read_text()
    for damage in ("", whole[:-5], whole.replace("Softmax", "Saftmax"), "\x00", "{}\n{}"):
        own_shelf.write_text(damage)
        assert plain() == (first, parsed)
        assert plain() == (first, 0)


def test_where_nothing_can_be_kept_everything_is_parsed_again(own_shelf):
    first, parsed = plain()
    own_shelf.unlink()
    own_shelf.parent.rmdir()
    own_shelf.parent.write_text("a file where a folder should be")
    assert plain() == (first, parsed)
    assert plain() == (first, parsed)


def test_files_that_are_gone_are_forgotten(own_shelf, tmp_path, monkeypatch):
    (tmp_path / "shortlived.py").write_text("def act():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    Sources().closure([("shortlived", "act")])
    assert "shortlived" in own_shelf.read_text()
    (tmp_path / "shortlived.py").unlink()
    plain()
    assert "shortlived" not in own_shelf.read_text()


def test_another_process_that_asks_in_another_order_agrees(catalogue):
    code = (
        "from dpflbench.catalogue import load; from dpflbench.provenance.runs import *; parts = load().parts; "
        "print([part_source(parts[k][n], on_disk()) for k, n in {names}])"
    )
    names = [("algorithms", "DPFL-BCS"), ("datasets", "mnist"), ("models", "softmax")]
    mine = [part_source(catalogue.parts[kind][name], on_disk()) for kind, name in names]
    command = [sys.executable, "-c", code.format(names=names[::-1])]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.strip() == str(mine[::-1])


# ---------------------------------------------------------------- for people who read a report


def test_the_commit_is_that_of_the_checkout_and_unknown_where_there_is_none(tmp_path, monkeypatch):
    package = tmp_path / "dpflbench" / "provenance"
    package.mkdir(parents=True)
    monkeypatch.setattr(checkout, "__file__", str(package / "checkout.py"))
    assert checkout.commit.__wrapped__() is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "file").write_text("one")
    for words in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    full = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    assert checkout.commit.__wrapped__() == full[:12]
    (tmp_path / "file").write_text("two")
    assert checkout.commit.__wrapped__() == f"{full[:12]}-dirty"


def test_a_machine_without_git_knows_no_commit(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert checkout.commit.__wrapped__() is None


def test_the_processor_has_a_name():
    assert checkout.processor().strip()
