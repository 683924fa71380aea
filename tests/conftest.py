"""What several test files share: the real data folder, a tiny suite, the catalogue of installed plugins."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import tiny_suite
from webdriver import Browser, find_browser

REPO = Path(__file__).parent.parent
# Decoded data is kept between test sessions, but not in the user's own cache folder.
os.environ.setdefault("DPFLBENCH_CACHE", str(REPO / ".pytest_cache" / "dpflbench"))
# The fixture below alone knows of the user's data folder: commands must find what a test gives them, or nothing.
os.environ.setdefault("DPFLBENCH_TEST_DATA", os.environ.pop("DPFLBENCH_DATA", ""))  # workers of pytest inherit it
DATA = Path(os.environ["DPFLBENCH_TEST_DATA"] or REPO.parent / "shared" / "data")


# Torch begins every process with a seed of its own; a test draws today the weights it drew yesterday.
SEEDED = torch.Generator().manual_seed(0).get_state()
torch.set_rng_state(SEEDED)  # for modules that are made when a test file is imported


@pytest.fixture(autouse=True)
def same_draws():
    """Whatever tests ran before."""
    torch.set_rng_state(SEEDED)


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Two cores, several workers: torch's own threads would only get in each other's way."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real data files; a test that needs it is skipped elsewhere."""
    if not DATA.is_dir():
        pytest.skip("needs the real data files: set DPFLBENCH_DATA")
    return DATA


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A browser for pages; a test that needs it is skipped where there is none."""
    found = find_browser()
    if isinstance(found, str):
        pytest.skip(found)
    session = Browser(*found, tmp_path_factory.mktemp("profile"))
    yield session
    session.close()


@pytest.fixture(scope="session")
def catalogue():
    """All installed plugins."""
    from dpflbench.catalogue import load

    return load()


@pytest.fixture(scope="session")
def blobs(tmp_path_factory) -> Path:
    """A small classification problem as an npz file: three Gaussian classes in four dimensions."""
    rng = np.random.default_rng(0)
    centres = np.array([[2, 0, 0, 0], [0, 2, 0, 0], [0, 0, 2, 0]], dtype=np.float32)
    y = rng.integers(0, 3, 700)
    x = (centres[y] + 0.7 * rng.normal(size=(700, 4))).astype(np.float32)
    path = tmp_path_factory.mktemp("blobs") / "blobs.npz"
    np.savez(path, x_train=x[:600], y_train=y[:600], x_test=x[600:], y_test=y[600:])
    return path


@pytest.fixture
def tiny(blobs):
    """A small suite of one's own: change it, then write or resolve it."""
    return tiny_suite(blobs)


@pytest.fixture(scope="session")
def honest(blobs, catalogue):
    """An honest folder: see tests/honest.py."""
    from honest import honest_suite, results_of

    found = results_of(honest_suite(str(blobs)), catalogue)
    assert {r.status for r in found.records.values()} == {"done"}
    return found
