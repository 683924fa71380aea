"""Who may import whom, and how light the command line stays."""

import ast
import re
import resource
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

REPO = Path(__file__).parent.parent
HARNESS = REPO / "dpflbench"


def imports_of(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def sources(package: str) -> list[Path]:
    return sorted((REPO / package).rglob("*.py"))


def imports_any(file: Path, *packages: str) -> bool:
    return any(name.split(".")[0] in packages for name in imports_of(file))


def test_the_harness_never_imports_the_built_in_plugins():
    guilty = [f for f in sources("dpflbench") if imports_any(f, "dpflbench_algorithms", "dpflbench_ma2024")]
    assert guilty == []


def spoken(file: Path) -> str:
    """All text of a source that is not a comment or a docstring."""
    if file.suffix != ".py":
        return file.read_text()
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0] = ast.Pass()
    return ast.unparse(tree)


def test_the_harness_names_no_algorithm(catalogue):
    ours = {name for name, part in catalogue.parts["algorithms"].items() if part.distribution == "dpflbench"}
    assert len(ours) >= 12
    named = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, ours))})(?![\w-])")
    files = [f for kind in ("py", "j2", "js", "css", "json") for f in (REPO / "dpflbench").rglob(f"*.{kind}")]
    assert {f.name: sorted(set(found)) for f in files if (found := named.findall(spoken(f)))} == {}


def test_plugins_see_the_public_side_of_the_harness_only():
    allowed = {
        "dpflbench",
        "dpflbench.interfaces",
        "dpflbench.hookspecs",
        "dpflbench.errors",
        "dpflbench.federation.local",
        "dpflbench.federation.schedule",
        "dpflbench.judges.second_accountant",
        "dpflbench.draws",
        "dpflbench.privacy.gaussian_dp",
        "dpflbench.privacy.pld",
        "dpflbench.privacy.renyi",
        "dpflbench.privacy.renyi_curve",
        "dpflbench.privacy.sensitivity",
        "dpflbench.report",
        "dpflbench.report.charts.choice",
        "dpflbench.report.statistics",
        "dpflbench.report.tables.table",
        "dpflbench.report.view",
        "dpflbench.tasks.datasets",
        "dpflbench.tasks.features",
        "dpflbench.tasks.histograms",
        "dpflbench.tasks.models",
        "dpflbench.tasks.partition",
        "dpflbench.tasks.population",
    }
    for file in sources("plugins/dpflbench_algorithms") + sources("plugins/dpflbench_ma2024"):
        used = {n for n in imports_of(file) if n.split(".")[0] == "dpflbench"}
        for name in used:
            assert name in allowed or name.rpartition(".")[0] in allowed, f"{file.name} imports {name}"


def unit(module: str) -> str | None:
    """The package or lone module at the top of the harness that a dotted name lies in."""
    parts = module.split(".")
    there = len(parts) > 1 and parts[0] == "dpflbench"
    return parts[1] if there and ((HARNESS / parts[1]).is_dir() or (HARNESS / f"{parts[1]}.py").exists()) else None


def test_no_package_of_the_harness_needs_one_that_needs_it():
    """Imports count wherever they stand: at the top, inside a function, for the type checker alone."""
    needs: dict[str, set[str]] = {}
    for file in sources("dpflbench"):
        name = unit(".".join(file.relative_to(REPO).with_suffix("").parts))
        if name not in (None, "__init__", "__main__"):
            needs.setdefault(name, set()).update({other for n in imports_of(file) if (other := unit(n))} - {name})
    order = list(TopologicalSorter(needs).static_order())  # CycleError names the cycle
    assert order.index("interfaces") < order.index("privacy") < order.index("federation") < order.index("cli")


def test_a_class_name_means_one_thing():
    """Nobody shall have to ask which Setting is meant."""
    homes: dict[str, list[str]] = {}
    for file in (*sources("dpflbench"), *sources("plugins")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(str(file.relative_to(REPO)))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def dataclasses_of(file: Path) -> dict[str, tuple[int, str]]:
    """Name → number of fields and how it is decorated."""
    found = {}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ClassDef):
            how = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
            fields = [
                f for f in node.body if isinstance(f, ast.AnnAssign) and "ClassVar" not in ast.unparse(f.annotation)
            ]
            if "dataclass" in how:
                found[node.name] = len(fields), how
    return found


@pytest.mark.parametrize("package", ["api", "cli", "execution", "regression", "results"])
def test_what_has_more_than_five_fields_is_made_by_keyword(package):
    for file in sources(f"dpflbench/{package}"):
        for name, (fields, how) in dataclasses_of(file).items():
            assert fields <= 5 or "kw_only=True" in how, f"{file.name}: {name} has {fields} fields"


def test_help_and_a_missing_suite_answer_without_torch():
    code = (
        "import sys; from dpflbench.cli import app; from typer.testing import CliRunner; r = CliRunner(); "
        "assert r.invoke(app, ['--help']).exit_code == 0; r.invoke(app, ['run', 'nowhere.yaml']); "
        "heavy = {'torch', 'cvxpy', 'vl_convert', 'ray', 'scipy', 'pandas', 'sklearn'} & set(sys.modules); "
        "print(sorted(heavy))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_help_answers_in_three_tenths_of_a_second_of_cpu_time():
    best = float("inf")
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "dpflbench", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert best < 0.3


def test_commands_import_what_they_need_at_the_top_but_for_the_two_that_look_at_a_suite_first():
    inside = {
        file.name
        for file in sources("dpflbench/cli")
        for function in ast.walk(ast.parse(file.read_text()))
        if isinstance(function, ast.FunctionDef)
        and any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(function))
    }
    assert inside == {"run.py", "plan.py"}
