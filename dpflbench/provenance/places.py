"""Where a module lies and whose it is, found without importing anything.

Code of one author is followed: dpflbench, the package an import stands in, what came with the same distribution, and
what lies beside it outside site-packages. Everything else is a library.
"""

import importlib.util
import os
import sys
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

HARNESS = "dpflbench"


@cache
def locate(module: str) -> Path | None:
    """The file of a module (the folder of a package without one), found without importing it; None if there is none."""
    parent, _, name = module.rpartition(".")
    if not parent:
        return _locate_top(module)
    file = locate(parent)
    if file is None or (file.suffix and not is_package(file)):
        return None
    folder = file.parent if file.suffix else file
    there = _listed(folder)
    for suffix in (".py", *EXTENSION_SUFFIXES):
        if name in there and f"__init__{suffix}" in _listed(folder / name):
            return folder / name / f"__init__{suffix}"
        if f"{name}{suffix}" in there:
            return folder / f"{name}{suffix}"
    return folder / name if name in there and (folder / name).is_dir() else None


@cache
def _listed(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def _locate_top(module: str) -> Path | None:
    there = sys.modules.get(module)
    if file := getattr(there, "__file__", None):
        return Path(file)
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin in ("built-in", "frozen"):
        return None
    places = [spec.origin] if spec.origin else [*(spec.submodule_search_locations or ())]
    return Path(places[0]) if places else None


def is_package(file: Path) -> bool:
    """Whether a file is what a package begins with."""
    return file.name.startswith("__init__.")


@cache
def home(top: str) -> Path | None:
    """The folder a top-level package or module lies in."""
    file = locate(top)
    if file is None:
        return None
    return file.parent.parent if is_package(file) else file.parent


def followed(importer: str, module: str) -> bool:
    """Whether an import leads to code of the same author."""
    return _one_author(importer.partition(".")[0], module.partition(".")[0])


@cache
def _one_author(here: str, there: str) -> bool:
    if there in (here, HARNESS):
        return True
    if here == HARNESS or there in sys.stdlib_module_names:
        return False
    if there in packages_beside.get(here, frozenset()):
        return True
    return home(here) is not None and home(there) == home(here) and not _installed(here)


def ours(top: str) -> bool:
    """Whether a package is to be read at all: dpflbench's, a plugin's, or somebody's working tree."""
    return top == HARNESS or top in packages_beside or (home(top) is not None and not _installed(top))


def _installed(top: str) -> bool:
    folder = home(top)
    library = folder is not None and not {"site-packages", "dist-packages"}.isdisjoint(folder.parts)
    return library or top in sys.stdlib_module_names


packages_beside: dict[str, frozenset[str]] = {}  # of one installed distribution


def know_distribution(name: str, package: str) -> None:
    """Remember which top-level packages came with the distribution that supplies `package`."""
    if package in packages_beside:
        return
    try:
        files = distribution(name).files or ()
    except PackageNotFoundError:
        files = ()
    tops = frozenset(f.parts[0].partition(".")[0] for f in files if f.suffix in (".py", *EXTENSION_SUFFIXES))
    packages_beside.update(dict.fromkeys(tops | {package}, tops))


@cache
def package_modules(top: str) -> tuple[str, ...]:
    """Every module of a top-level package, or the one module itself."""
    file = locate(top)
    if file is None or not is_package(file):
        return (top,)
    names = (p.relative_to(file.parent).with_suffix("").parts for p in sorted(file.parent.rglob("*.py")))
    return tuple(".".join((top, *(parts[:-1] if parts[-1] == "__init__" else parts))) for parts in names)
