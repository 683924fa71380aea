"""A stranger's YAML as plain data: mappings with text keys, lists, texts, numbers, true, false and null; nothing else
comes out.

No object is constructed, nothing is interpolated, and neither a huge file, a device nor a nest of aliases can exhaust
the memory.
"""

import difflib
import io
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpflbench.errors import DpflbenchError, SuiteError
from dpflbench.schema import MAX_INTEGER, join, show, too_large
from dpflbench.shipped import nearest
from dpflbench.suite_schema import Raw

MAX_BYTES = 1 << 20
# values of a file after its aliases are written out; OmegaConf stops at 10,000 with advice to switch that off
MAX_NODES = 9_000
OWN_FILES = ("npz", "huggingface")  # data sets with a `path` that starts at the suite
PLAIN = (str, int, float, bool, type(None))


def parse_file(path: Path) -> Raw:
    """The mapping in a YAML file; DpflbenchError says what is wrong with it."""
    raw = _plain(_text(path), str(path))
    if not isinstance(raw, dict):
        raise SuiteError([f"{path}: expected a mapping with name, task, federation, privacy, ..., found {show(raw)}"])
    return Raw({str(k): v for k, v in raw.items()})


def parse_value(text: str) -> Any:
    """The YAML value of a command-line text; the text itself if it is none."""
    try:
        value = _plain(f"value: {text}", "--set")
    except DpflbenchError:
        return text
    return value["value"] if isinstance(value, dict) and set(value) == {"value"} else text


def strange(value: Any, path: str = "") -> list[str]:
    """A problem for each thing no suite may hold: keys that are no texts, dates, interpolations, huge integers."""
    if isinstance(value, Mapping):
        found = []
        for key, item in value.items():
            if not isinstance(key, str):
                found.append(f"{join(path, key)}: a key must be a text, found {show(key)}")
            elif "${" in key:
                found.append(f"{join(path, key)}: interpolation '${{...}}' is not available in a suite")
            found += strange(item, join(path, key))
        return found
    if isinstance(value, list):
        return [problem for i, item in enumerate(value) for problem in strange(item, f"{path}[{i}]")]
    if isinstance(value, str) and "${" in value:
        return [f"{path}: interpolation '${{...}}' is not available in a suite"]
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return [f"{path}: {too_large(value)}"]
    if not isinstance(value, PLAIN):
        return [f"{path}: expected a text, a number, true, false or null, found {show(value)}"]
    return []


def moved(key: str, value: Any, start: Path, end: Path) -> Any:
    """The value at a key of a suite with the paths of a user's own files in it, which start at one folder, written so
    that they start at another: a run's id has them as they are written, and must not depend on where all of it lies.
    """
    if key == "task.dataset.path" and isinstance(value, str):
        here = Path(value).expanduser()
        return value if here.is_absolute() else os.path.relpath(start.resolve() / here, end.resolve())
    if isinstance(value, list):
        return [moved(key, item, start, end) for item in value]
    if isinstance(value, Mapping) and (key != "task.dataset" or value.get("name", "npz") in OWN_FILES):
        if key == "cases":
            return {name: moved("axes", said, start, end) for name, said in value.items()}
        return {k: moved(str(k) if key == "axes" else join(key, k), v, start, end) for k, v in value.items()}
    return value


def _text(path: Path) -> str:
    """The text of a regular file of reasonable size."""
    try:
        if path.exists() and not path.is_file():
            raise DpflbenchError(f"{path}: cannot be read (not a regular file)")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise DpflbenchError(f"{path}: no such file; {_instead(path)}") from None
    except (OSError, ValueError) as e:  # ValueError: not UTF-8, or a NUL in the path
        raise DpflbenchError(f"{path}: cannot be read ({_line(e)})") from None
    if len(content) > MAX_BYTES:
        raise DpflbenchError(f"{path}: larger than {MAX_BYTES >> 10} KB; a suite is a page of YAML")
    return text


def _instead(path: Path) -> str:
    """What to give in place of a file that is not there: a suite of that name or one like it, here or in `suites`."""
    near = [path.parent, path.parent / "suites", path.parent / "suites" / "paper"]
    known = {p.name: p for folder in reversed(near) for p in sorted(folder.glob("*.yaml"))}
    like = [path.name + ".yaml", *difflib.get_close_matches(path.name, known, n=1)]
    found = next((known[name] for name in like if name in known), None)
    if found is not None:
        return f"did you mean '{found}'?"
    if (name := nearest(path)) is not None:
        return f"did you mean '{name}', a suite that comes with dpflbench?"
    here = f", found here: {', '.join(str(known[name]) for name in sorted(known)[:8])}" if known else ""
    return f"give the path of a suite, a YAML file, or a name that `dpflbench suites` lists, such as smoke{here}"


def _plain(text: str, where: str) -> Any:
    """The value a YAML text describes."""
    import yaml
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        size = 0 if tree is None else _size(tree, {}, set())
        if size > MAX_NODES:
            raise SuiteError([f"{where}: {size:,} values once aliases are written out; allowed: {MAX_NODES:,}"])
        if isinstance(tree, yaml.ScalarNode):  # a lone word would become a key
            return tree.value
        return OmegaConf.to_container(OmegaConf.load(io.StringIO(text)), resolve=False)
    except (
        yaml.YAMLError,
        OmegaConfBaseException,
        ValueError,
        TypeError,
        RecursionError,
        AttributeError,
        LookupError,
        ArithmeticError,
        OSError,
    ) as e:  # OSError: what OmegaConf calls a document that is neither mapping nor list
        raise SuiteError([f"{where}: not a YAML suite ({_line(e)})"]) from None


def _size(node: Any, known: dict[int, int], above: set[int]) -> int:
    """How many nodes a YAML node stands for; an alias counts as all it refers to."""
    if id(node) in above:
        raise ValueError("an alias that contains itself")
    if id(node) not in known:
        content = node.value if isinstance(node.value, list) else []
        parts = [part for item in content for part in (item if isinstance(item, tuple) else (item,))]
        known[id(node)] = 1 + sum(_size(part, known, above | {id(node)}) for part in parts)
    return known[id(node)]


def _line(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error)).strip()[:300]
