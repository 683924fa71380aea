"""`make release-check`: wheel and sdist as a stranger gets them, in a new environment and an empty folder, with nothing
of the repository in reach.
"""

import os
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from pathlib import Path

import pytest
from walk import walk

import dpflbench

pytestmark = pytest.mark.skipif(
    os.environ.get("DPFLBENCH_TEST_RELEASE") != "1",
    reason="installs everything anew, which takes minutes: set DPFLBENCH_TEST_RELEASE=1 or use make release-check",
)
REPO = Path(__file__).parent.parent


def ran(*command: object, cwd: Path, **variables: str) -> str:
    """What a command prints; it must end well. Nothing of this environment's Python reaches it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "DPFLBENCH", "VIRTUAL_ENV"))}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=kept | variables, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Folder with the wheel and the sdist."""
    out = tmp_path_factory.mktemp("dist")
    ran(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--sdist", "--outdir", out, REPO, cwd=out)
    return out


@pytest.fixture(scope="module")
def home(built, tmp_path_factory):
    """An empty folder, in whose environment the wheel is installed as anybody would."""
    folder = tmp_path_factory.mktemp("somewhere")
    venv.create(folder / "env", with_pip=True)
    (wheel,) = built.glob("*.whl")
    pip = (folder / "env" / "bin" / "python", "-m", "pip", "install", "--quiet")
    ran(*pip, "-c", REPO / "constraints.txt", wheel, cwd=folder)
    (folder / "empty").mkdir()
    return folder


@pytest.fixture
def dpflbench_says(home):
    """Run the installed command in the empty folder."""
    variables = {"DPFLBENCH_CACHE": str(home / "cache"), "OMP_NUM_THREADS": "1"}
    return lambda *args: ran(home / "env" / "bin" / "dpflbench", *args, cwd=home / "empty", **variables)


def test_the_sdist_is_whole_and_makes_the_same_wheel(built, tmp_path):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as opened:
        opened.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    for name in ("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "Makefile", "constraints-lowest.txt"):
        assert (root / name).is_file(), name
    ran(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path / "again", root, cwd=tmp_path)
    (ours,), (theirs,) = built.glob("*.whl"), (tmp_path / "again").glob("*.whl")
    contents = [{i.filename: i.CRC for i in zipfile.ZipFile(wheel).infolist()} for wheel in (ours, theirs)]
    assert contents[0] == contents[1]


def test_the_version_is_the_one_of_the_package(built, dpflbench_says):
    assert {f.name.split("-")[1].removesuffix(".tar.gz") for f in built.iterdir()} == {dpflbench.__version__}
    assert dpflbench_says("--version") == f"dpflbench {dpflbench.__version__}\n"


def test_what_runs_is_what_was_installed(home):
    names = "dpflbench", "dpflbench_algorithms", "dpflbench_ma2024"
    code = f"import {', '.join(names)}; print({', '.join(f'{name}.__file__' for name in names)})"
    files = ran(home / "env" / "bin" / "python", "-c", code, cwd=home / "empty").split()
    assert all(Path(file).is_relative_to(home / "env") for file in files)
    ran(home / "env" / "bin" / "python", "-m", "pip", "check", cwd=home)


def test_a_suite_runs_by_its_name_in_an_empty_folder_and_is_verified(dpflbench_says, home):
    assert "heterogeneity " in dpflbench_says("suites")
    shown = dpflbench_says("run", "smoke", "--jobs", "2", "--quiet")
    assert "DPFL-BCS" in shown
    assert (home / "empty" / "results" / "smoke" / "report" / "index.html").is_file()
    assert dpflbench_says("verify", "results/smoke").splitlines()[-1].startswith("Verified: 21 runs")


def test_a_suite_can_be_copied_and_changed(dpflbench_says, home):
    dpflbench_says("suites", "copy", "paper/quick/mnist", "mine.yaml")
    file = home / "empty" / "mine.yaml"
    file.write_text(f"{file.read_text()}\nseeds: 1\n" if "seeds:" not in file.read_text() else file.read_text())
    assert "DPFL-BCS" in dpflbench_says("plan", "mine.yaml", "--set", "federation.rounds=3")


def test_the_tutorial_is_a_walk_from_an_empty_folder_to_ones_own_algorithm_in_ones_own_table(home):
    (home / "walk").mkdir()
    began = time.monotonic()
    transcript = walk(home / "walk", home / "env")
    assert any(line.startswith("$ dpflbench verify") for line in transcript)
    assert time.monotonic() - began < 15 * 60
