"""A suite in Python: from a name, a file or a mapping, changed key by key, checked after every change."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpflbench import shipped
from dpflbench.suite_reading import changed, extended, source
from dpflbench.suite_schema import Raw, Suite


@dataclass(frozen=True, slots=True, eq=False)
class SuiteDraft:
    """A suite that can still be changed; every change makes a new one."""

    said: Raw  # as files and changes have it
    checked: Suite

    @property
    def name(self) -> str:
        """Its name, which is that of its results folder."""
        return self.checked.name

    def set(self, keys: Mapping[str, Any] | None = None, /, **sections: Any) -> "SuiteDraft":
        """The suite with other values: `set({"federation.rounds": 50}, seeds=3)`; SuiteError lists every problem."""
        changes = [(key, plainly(value)) for key, value in {**(keys or {}), **sections}.items()]
        return SuiteDraft(*changed(self.said, self.checked.where, changes, who="set "))

    def yaml(self) -> str:
        """The suite as a file would say it, with all that it extends written out."""
        import yaml

        return str(yaml.safe_dump(dict(self.said), sort_keys=False, allow_unicode=True))

    def __repr__(self) -> str:
        s = self.checked
        axes = " × ".join(f"{len(values)} {path}" for path, values in s.axes.items()) or "one setting"
        rows = ", ".join(entry.label for entry in s.entries)
        return f"suite {s.name}: {axes}, {len(s.seeds)} seed{'s' * (len(s.seeds) != 1)}; {rows}"


def suite(given: "str | Path | Mapping[str, Any] | SuiteDraft") -> SuiteDraft:
    """The suite of a name that `suites()` lists, of a YAML file, or that a mapping describes; SuiteError lists every
    problem.

    Paths in a mapping or in a suite of a name start at the current folder, those in a file at that file.
    """
    if isinstance(given, SuiteDraft):
        return given
    if isinstance(given, Mapping):
        here = Path("suite")
        return SuiteDraft(*changed(extended(plainly(given), here), str(here), ()))
    raw, where = source(Path(given))
    return SuiteDraft(*changed(raw, where, ()))


def suites() -> list[str]:
    """The names of the suites that come with the package."""
    return shipped.names()


def plainly(value: Any) -> Any:
    """The value as YAML has it: tuples and ranges as lists, paths as texts."""
    if isinstance(value, Mapping):
        return {key: plainly(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [plainly(item) for item in value]
    return str(value) if isinstance(value, Path) else value
