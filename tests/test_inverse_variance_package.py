"""The example package: small, built as a wheel, found through its entry point, and its own tests pass on what was built."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "plugins" / "dpflbench-inverse-variance"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The wheel, unpacked where an installer would put it."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=PACKAGE, check=True,
                   capture_output=True)
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def run(installed, *arguments):
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run([sys.executable, *arguments], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)


def test_it_has_less_than_sixty_lines():
    lines = [line for file in (PACKAGE / "src").rglob("*.py") for line in file.read_text().splitlines()]
    assert len(lines) < 60


def test_its_own_tests_pass_on_the_built_wheel(installed):
    options = ["-q", "-p", "no:cacheprovider", "-c", str(PACKAGE / "pyproject.toml")]
    done = run(installed, "-m", "pytest", *options, str(PACKAGE / "tests"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout


def test_it_is_found_like_the_built_in_plugins(installed):
    done = run(installed, "-m", "dpflbench", "list", "algorithms")
    assert done.returncode == 0, done.stderr
    assert "InvVar" in done.stdout
    assert "dpflbench-inverse-variance" in done.stdout
