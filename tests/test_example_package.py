"""Third-party packages as a user gets them: built as wheels, installed with pip into a fresh environment beside
dpflbench's own wheel.

The environment is new; torch and other dependencies are lent to it by the environment that runs the tests, so nothing
is downloaded.
"""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import yaml

from dpflbench.scaffold import write_skeleton
from dpflbench.scaffold_kinds import TEMPLATES

REPO = Path(__file__).parent.parent
EXAMPLE = REPO / "plugins" / "dpflbench-inverse-variance"


class Environment:
    """A virtual environment in which wheels can be installed and commands run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.wheels = folder, folder / "wheels"
        self._run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"])
        self.python = folder / "venv" / "bin" / "python"
        site = Path(self._run([self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
        (site / "lent.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
        self.site = site

    def install(self, *sources: Path) -> None:
        self._run(
            [
                sys.executable,
                "-m",
                "pip",
                "wheel",
                "-q",
                "--no-deps",
                "--no-build-isolation",
                "--no-index",
                "-w",
                self.wheels,
                *sources,
            ]
        )
        self._run(
            [
                sys.executable,
                "-m",
                "pip",
                "--python",
                self.python,
                "install",
                "-q",
                "--no-deps",
                "--no-index",
                *self.wheels.glob("*.whl"),
            ]
        )

    def session(self, cwd: Path, **commands: list[str]) -> dict[str, list[str]]:
        """The lines each command prints, all in one process: importing torch is most of what a command costs."""
        script = (
            "import contextlib, io, json, sys\nfrom dpflbench.cli import app\nfound = {}\n"
            "for name, args in json.loads(sys.argv[1]).items():\n    out = io.StringIO()\n"
            "    with contextlib.redirect_stdout(out):\n        code = app(args, standalone_mode=False)\n"
            "    found[name] = [f'exit {code or 0}', *out.getvalue().splitlines()]\nprint('FOUND ' + json.dumps(found))"
        )
        out = self._run([self.python, "-c", script, json.dumps(commands)], cwd)
        return json.loads(out.rpartition("FOUND ")[2])

    def pytest(self, *args: object) -> str:
        return self._run([self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args], self.folder)

    def _run(self, command: list[object], cwd: Path | None = None) -> str:
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP"))}
        done = subprocess.run(
            [str(c) for c in command],
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            env={**variables, "OMP_NUM_THREADS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        )
        assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout


def named(kind):
    return "brand-new" if kind == "algorithm" else f"new-{kind}"


@pytest.fixture(scope="module")
def skeletons(tmp_path_factory):
    """The skeleton of every kind."""
    folder = tmp_path_factory.mktemp("skeletons")
    return {kind: write_skeleton(named(kind), folder / named(kind), kind)[0] for kind in TEMPLATES}


@pytest.fixture(scope="module")
def environment(tmp_path_factory, skeletons):
    made = Environment(tmp_path_factory.mktemp("environment"))
    made.install(REPO, EXAMPLE, *skeletons.values())
    return made


def test_the_wheel_of_dpflbench_is_complete_and_holds_no_tests(environment):
    wheel = next(environment.wheels.glob("dpflbench-0*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    for file in (
        "dpflbench/py.typed",
        "dpflbench_algorithms/py.typed",
        "dpflbench_ma2024/printed.json",
        "dpflbench/tasks/data/mnist.idx.xz",
        "dpflbench/testing/kit.py",
        *(f"dpflbench/{path.relative_to(REPO)}" for path in (REPO / "suites").rglob("*.yaml")),
    ):
        assert file in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {
        "dpflbench",
        "dpflbench_algorithms",
        "dpflbench_ma2024",
    }
    assert wheel.stat().st_size < 13_000_000


def test_the_wheel_of_the_example_is_a_few_files(environment):
    wheel = next(environment.wheels.glob("dpflbench_inverse_variance-*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    assert {n for n in names if not n.startswith("dpflbench_inverse_variance-")} == {
        "dpflbench_inverse_variance/__init__.py",
        "dpflbench_inverse_variance/py.typed",
    }
    code = (EXAMPLE / "src" / "dpflbench_inverse_variance" / "__init__.py").read_text().splitlines()
    assert len(code) < 60


@pytest.fixture(scope="module")
def session(environment, blobs, tmp_path_factory, skeletons):
    """What an author does: list, check, run a suite, verify it; and the same with the suite of every skeleton."""
    folder = tmp_path_factory.mktemp("session")
    body = {
        "name": "third-party",
        "seeds": 1,
        "algorithms": ["DPSGD", "InvVar", "BrandNew"],
        "task": {"dataset": {"name": "npz", "path": str(blobs)}, "model": "softmax", "partition": "iid"},
        "federation": {"clients": 8, "cohort": 4, "rounds": 5, "lr": {"initial": 0.5}},
        "privacy": {"mechanism": "gaussian", "clip": 1.0, "epsilon": 2.0, "delta": 1e-5},
    }
    (folder / "suite.yaml").write_text(yaml.safe_dump(body))
    printed = environment.session(
        folder,
        list=["list", "algorithms"],
        check=["check", "brand_new"],
        run=["run", "suite.yaml", "--out", "results"],
        verify=["verify", "results"],
        suites=["suites"],
        named=["run", "smoke", "--set", "federation.rounds=2", "--no-isolated", "--quiet"],
        **{f"check {kind}": ["check", named(kind).replace("-", "_")] for kind in TEMPLATES},
        **{f"run {kind}": ["run", str(root / "suite.yaml"), "--out", kind, *SHORT] for kind, root in skeletons.items()},
        **{f"verify {kind}": ["verify", kind] for kind in TEMPLATES},
    )
    return folder, printed


SHORT = ["--set", "federation.rounds=3", "--set", "seeds=1", "--no-isolated"]


@pytest.mark.parametrize("kind", TEMPLATES)
def test_the_skeleton_of_every_kind_passes_its_check_and_its_suite_runs_and_is_verified(session, kind):
    folder, printed = session
    assert printed[f"check {kind}"][0] == "exit 0"
    assert printed[f"check {kind}"][-1].endswith(" ok, 0 not wholly checked, 0 failed")
    assert printed[f"run {kind}"][0] == "exit 0"
    records = [json.loads(p.read_text()) for p in (folder / kind / "records").glob("*.json")]
    assert {r["status"] for r in records} == {"done"}
    assert all("leftovers" not in r["measured"] for r in records)
    assert any("new" in source for r in records for source in r["plugins"].values())
    assert printed[f"verify {kind}"][0] == "exit 0"


def test_both_are_listed_with_the_distribution_that_supplied_them(session):
    rows = [line.split() for line in session[1]["list"]]
    assert any(row[0] == "InvVar" and "dpflbench-inverse-variance" in row for row in rows if row)
    assert any(row[0] == "BrandNew" and "dpflbench-brand-new" in row for row in rows if row)


def test_the_installed_package_lists_its_suites_and_runs_one_by_name_in_a_folder_without_any(session):
    folder, printed = session
    listed = {line.split()[0]: line.split()[1] for line in printed["suites"][2:] if not line.startswith(" ")}
    assert listed["heterogeneity"] == "400"
    assert listed["smoke"] == "21"
    assert {f"{name}.yaml" for name in listed} == {
        str(path.relative_to(REPO / "suites")) for path in (REPO / "suites").rglob("*.yaml")
    }
    assert printed["named"][0] == "exit 0"
    assert len(list((folder / "results" / "smoke" / "records").glob("*.json"))) == 21


def test_the_skeleton_passes_the_check_as_it_is(session):
    lines = session[1]["check"]
    assert (lines[0], lines[-1]) == ("exit 0", "2 parts: 2 ok, 0 not wholly checked, 0 failed")


def test_both_run_in_a_suite_and_are_verified(session):
    folder, printed = session
    assert printed["run"][0] == "exit 0"
    records = [json.loads(p.read_text()) for p in (folder / "results" / "records").glob("*.json")]
    assert {r["algorithm"]: r["status"] for r in records} == {"DPSGD": "done", "InvVar": "done", "BrandNew": "done"}
    sources = {r["algorithm"]: r["plugins"] for r in records}
    assert sources["InvVar"]["algorithm InvVar"].startswith("dpflbench-inverse-variance 0.1.0 ")
    modules = {r["algorithm"]: set(r["measured"]["modules"]) for r in records}
    assert modules["InvVar"] - modules["DPSGD"] == {"dpflbench_inverse_variance"}
    assert modules["DPSGD"] > {"dpflbench.federation.simulate", "dpflbench_algorithms.dpsgd"}
    assert (printed["verify"][0], printed["verify"][-1][:16]) == ("exit 0", "Verified: 3 runs")


def test_all_pass_their_own_tests_against_the_installed_wheels(environment, skeletons):
    tests = [EXAMPLE / "tests", *(root / "tests" for root in skeletons.values())]
    out = environment.pytest(*tests, "--rootdir", environment.folder, "-o", "addopts=")
    assert f"{7 + 3 * len(skeletons)} passed" in out


def test_the_code_that_ran_is_the_installed_one(environment):
    script = "import dpflbench, dpflbench_algorithms as a; print(dpflbench.__file__, a.__file__)"
    out = environment._run([environment.python, "-c", script])
    assert all(Path(path).is_relative_to(environment.site) for path in out.split())
    assert environment._run([environment.python.parent / "dpflbench", "--version"]).startswith("dpflbench ")
