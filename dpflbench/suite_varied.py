"""What varies in a suite, checked: axes, cases, seeds, algorithms, and the grid that all of them are tuned over."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpflbench.canonical import content_digest
from dpflbench.schema import show, suggest
from dpflbench.suite_schema import TUNABLE, TUNING_RUNS, TUNING_SEEDS, VARIED, AlgorithmEntry, Tune

MAX_SEEDS = 10_000


def axes_section(raw: Any, problems: list[str]) -> dict[str, list[Any]]:
    """Path → values of every axis."""
    wrong = "an axis varies task, federation or privacy"
    return _grid(raw, "axes", lambda path: path.split(".")[0] in VARIED, wrong, problems)


def cases_section(raw: Any, axes: Mapping[str, Any], problems: list[str]) -> dict[str, dict[str, Any]]:
    """Name → path → value: settings that vary together, such as a data set with its model and learning rate."""
    if not isinstance(raw, Mapping):
        problems.append(f"cases: expected a mapping from name to settings, found {show(raw)}")
        return {}
    cases: dict[str, dict[str, Any]] = {}
    for name, said in raw.items():
        here = f"cases.{name}"
        if not isinstance(said, Mapping) or not said:
            problems.append(f"{here}: expected a mapping from path to value, found {show(said)}")
            continue
        wrong = [path for path in said if str(path).split(".")[0] not in VARIED]
        twice = [path for path in said for axis in axes if _below(path, axis) or _below(axis, path)]
        below = [path for path in said for other in said if path != other and _below(path, other)]
        problems += [f"{here}.{path}: a case varies task, federation or privacy" for path in wrong]
        problems += [f"{here}.{path}: an axis sets it already; allowed: one of the two" for path in twice]
        problems += [f"{here}.{path}: the case sets what it is part of; allowed: one of the two" for path in below]
        cases[str(name)] = {str(path): value for path, value in said.items()}
    return cases


def tune_section(raw: Any, axes: Sequence[str], seeds: Sequence[int], report: Any, problems: list[str]) -> Tune | None:
    """The grid every algorithm may choose from; None if there is none."""
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        problems.append(f"tune: expected a mapping from path to values, found {show(raw)}")
        return None
    count = raw.get("seeds", TUNING_RUNS)
    if type(count) is not int or not 1 <= count <= MAX_SEEDS:
        problems.append(f"tune.seeds: found {show(count)}; allowed: how many, 1 to {MAX_SEEDS:,}")
        return None
    paths = {k: v for k, v in raw.items() if k != "seeds"}
    wrong = f"every algorithm gets the same budgets, data and rounds; allowed: {', '.join(TUNABLE)} and what is below"
    grid = _grid(paths, "tune", lambda path: any(_below(path, each) for each in TUNABLE), wrong, problems)
    if not paths:
        problems.append("tune: empty; expected a path such as federation.lr.initial with its values")
    problems += [
        f"tune.{path}: the axis {axis} sets it already; allowed: one of the two"
        for path in grid
        for axis in axes
        if _below(path, axis) or _below(axis, path)
    ]
    problems += [
        f"tune.{path}: {other} is tuned as well; allowed: one of the two"
        for path in grid
        for other in grid
        if path != other and _below(path, other)
    ]
    if any(seed >= TUNING_SEEDS for seed in seeds):
        problems.append(f"seeds: {max(seeds)} beside tune, whose runs have the seeds from {TUNING_SEEDS} on")
    if getattr(report, "value", "") == "utility_personal":
        problems.append(
            "report.value: utility_personal beside tune, which chooses by held-out examples; allowed: utility, "
            "utility_mean_phi"
        )
    return Tune(grid, count)


def _below(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}.")


def _grid(
    raw: Any, section: str, allowed: Callable[[str], bool], wrong: str, problems: list[str]
) -> dict[str, list[Any]]:
    """Path → different values, at least one."""
    if not isinstance(raw, Mapping):
        problems.append(f"{section}: expected a mapping from path to values, found {raw!r}")
        return {}
    grid: dict[str, list[Any]] = {}
    for path, values in raw.items():
        here = f"{section}.{path}"
        if not allowed(str(path)):
            near = f"; {suggest(str(path).split('.')[0], VARIED)}" if section == "axes" else ""
            problems.append(f"{here}: {wrong}{near}")
        elif not isinstance(values, list) or not values:
            problems.append(f"{here}: empty; expected a list of at least one value")
        elif len({content_digest(v) for v in values}) < len(values):
            problems.append(f"{here}: a value stands there twice")
        else:
            grid[str(path)] = values
    return grid


def seeds_section(raw: Any, problems: list[str]) -> list[int]:
    """The seeds of a suite, given as how many or one by one."""
    count = len(raw) if isinstance(raw, list) else raw
    if isinstance(count, int) and count > MAX_SEEDS:
        problems.append(f"seeds: more than {MAX_SEEDS:,}; allowed: up to that many")
        return []
    if isinstance(raw, int) and not isinstance(raw, bool) and raw >= 1:
        return list(range(raw))
    if (
        isinstance(raw, list)
        and raw
        and all(isinstance(s, int) and not isinstance(s, bool) for s in raw)
        and len(set(raw)) == len(raw)
    ):
        return list(raw)
    problems.append(f"seeds: found {raw!r:.60}; expected how many (1 or more) or a list of different integers")
    return []


def algorithms_section(raw: Any, problems: list[str]) -> list[AlgorithmEntry]:
    """The algorithms of a suite, each with its label."""
    if not isinstance(raw, list) or not raw:
        problems.append("algorithms: empty; expected a list of names or of {use, as, with}")
        return []
    entries: list[AlgorithmEntry] = []
    for i, item in enumerate(raw):
        path = f"algorithms[{i}]"
        if isinstance(item, str):
            item = {"use": item}
        if not isinstance(item, Mapping) or not isinstance(item.get("use"), str):
            problems.append(f"{path}: expected a name or a mapping with 'use', found {item!r:.60}")
            continue
        problems += [
            f"{path}.{k}: unknown; {suggest(k, ('use', 'as', 'with'))}" for k in item if k not in ("use", "as", "with")
        ]
        given, label = item.get("with") or {}, item.get("as")
        if not isinstance(given, Mapping):
            problems.append(f"{path}.with: expected a mapping, found {given!r:.60}")
            continue
        if label is not None and (not isinstance(label, str) or not label.strip()):
            problems.append(f"{path}.as: expected a text, found {label!r}")
            continue
        options = ", ".join(f"{k}={_short(v)}" for k, v in sorted(given.items()))
        default = item["use"] + (f"({options})" if options else "")
        entries.append(AlgorithmEntry(item["use"], given, label or default, i))
    labels = [e.label for e in entries]
    problems += [
        f"algorithms[{e.index}]: '{e.label}' stands there twice; tell them apart by 'as'"
        for e in entries
        if labels.index(e.label) < entries.index(e)
    ]
    return entries


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("name", "{…}"))
    return str(value)
