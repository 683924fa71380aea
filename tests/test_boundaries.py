"""Who may import whom, and how light the command line stays."""

import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPO = Path(__file__).parent.parent
LAYERS = {
    "interfaces": 0,
    "errors": 0,
    "hookspecs": 0,
    "randomness": 0,
    "records": 1,
    "checking": 1,
    "privacy": 2,
    "tasks": 2,
    "suite_file": 2,
    "federation": 3,
    "catalogue": 3,
    "suite": 3,
    "assembly": 4,
    "plan": 4,
    "execution": 4,
    "forecast": 5,
    "report": 5,
    "regression": 6,
    "testing": 6,
    "scaffold": 6,
    "cli": 7,
}
JUDGES = {"verify.py": 6, "audit.py": 6}  # of the topic privacy, but they look at finished results and whole runs


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


def test_the_harness_never_imports_the_built_in_plugins():
    guilty = [f for f in sources("dpflbench") if any(n.split(".")[0] == "dpflbench_algorithms" for n in imports_of(f))]
    assert guilty == []


def test_plugins_see_the_public_side_of_the_harness_only():
    allowed = {
        "dpflbench",
        "dpflbench.interfaces",
        "dpflbench.hookspecs",
        "dpflbench.errors",
        "dpflbench.federation.schedule",
        "dpflbench.privacy.accounting",
        "dpflbench.privacy.sensitivity",
        "dpflbench.tasks.datasets",
        "dpflbench.tasks.models",
    }
    for file in sources("plugins/dpflbench_algorithms"):
        used = {n for n in imports_of(file) if n.split(".")[0] == "dpflbench"}
        for name in used:
            assert name in allowed or name.rpartition(".")[0] in allowed, f"{file.name} imports {name}"


def layer(module: str) -> int | None:
    parts = module.split(".")
    return LAYERS.get(parts[1]) if len(parts) > 1 and parts[0] == "dpflbench" else None


@pytest.mark.parametrize("top", sorted(LAYERS))
def test_dependencies_point_one_way(top):
    files = sources(f"dpflbench/{top}") or [REPO / "dpflbench" / f"{top}.py"]
    for file in (f for f in files if f.exists()):
        for name in imports_of(file):
            other = layer(name)
            assert other is None or other <= max(LAYERS[top], JUDGES.get(file.name, 0)), (
                f"{file.relative_to(REPO)} imports {name}"
            )


def test_every_module_of_the_harness_has_its_layer():
    here = {p.stem for p in (REPO / "dpflbench").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert here - {"__init__", "__main__"} <= set(LAYERS)


def test_help_and_a_missing_suite_answer_without_torch():
    code = (
        "import sys; from dpflbench.cli import app; from typer.testing import CliRunner; r = CliRunner(); "
        "assert r.invoke(app, ['--help']).exit_code == 0; r.invoke(app, ['run', 'nowhere.yaml']); "
        "heavy = {'torch', 'cvxpy', 'matplotlib', 'ray', 'scipy', 'pandas', 'sklearn'} & set(sys.modules); "
        "print(sorted(heavy))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_help_answers_in_half_a_second_of_cpu_time():
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        import resource

        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "dpflbench", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(
            best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime + time.process_time() - began
        )
    assert best < 0.5
