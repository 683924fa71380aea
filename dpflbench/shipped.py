"""The suites that come with the package, by name: `heterogeneity`, `paper/quick/mnist`.

In a checkout they lie in `suites` beside the package, in a wheel inside it. A file of the user's always goes first.
"""

import re
from pathlib import Path

from dpflbench.errors import DpflbenchError
from dpflbench.schema import suggest

PACKAGE = Path(__file__).parent
EXTENDS = re.compile(r"^extends:\s*(\S+)", re.MULTILINE)


def home() -> Path:
    """The folder they lie in."""
    inside = PACKAGE / "suites"
    return inside if inside.is_dir() else PACKAGE.parent / "suites"


def names() -> list[str]:
    """Every name: the path of its file in the folder, without its ending."""
    return sorted(path.relative_to(home()).with_suffix("").as_posix() for path in home().rglob("*.yaml"))


def by_name(name: str) -> Path | None:
    """The file of the suite of that name; None if there is none."""
    return home() / f"{name}.yaml" if name in names() else None


def suite_file(given: Path) -> Path:
    """The file that is meant: the one given, else the suite of that name, else the one given, which is not there."""
    known = by_name(given.as_posix())
    return given if known is None or given.is_file() else known


def nearest(given: Path) -> str | None:
    """The name most like what was given (`suites/smoke.yaml`, `paper/minst`); None if none is like it."""
    asked = given.with_suffix("") if given.suffix in (".yaml", ".yml") else given
    parts = asked.parts[1:] if asked.parts[:1] == ("suites",) else asked.parts
    found = suggest("/".join(parts), names())
    return found.split("'")[1] if found.startswith("did you mean") else None


def copy_of(name: str) -> str:
    """The text of a suite, for a file anywhere: what it extends is named, not looked for beside it."""
    file = by_name(name)
    if file is None:
        raise DpflbenchError(f"suites copy {name}: no such suite; {suggest(name, names())}")

    def named(found: re.Match[str]) -> str:
        base = (file.parent / found[1]).resolve().relative_to(home().resolve())
        return f"extends: {base.with_suffix('').as_posix()}"

    return EXTENDS.sub(named, file.read_text(encoding="utf-8"))
