"""Text for a terminal: nothing a suite, a plugin or a record says may move the cursor, and every sign can be shown."""

import codecs
import json
import math
import os
import shutil
import sys
import textwrap
from typing import Any, TextIO

import typer

from dpflbench.results.titles import printable as printable  # for commands that print what is no line

PLAINER = {"↑": "^", "↓": "v", "≈": "~", "–": "-", "−": "-", "—": "-", "…": "...", "ε": "epsilon", "∞": "inf", "×": "x"}


def say(line: object = "", err: bool = False) -> None:
    """Print one line; a terminal gets it broken at words."""
    text = printable(line)
    if (sys.stderr if err else sys.stdout).isatty():
        text = folded(text, shutil.get_terminal_size().columns)
    typer.echo(text, err=err)


def say_json(value: object) -> None:
    """Print a value as JSON, in ASCII; numbers that JSON has not (NaN, infinity) are null."""
    typer.echo(json.dumps(_finite(value), indent=1, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def folded(line: str, width: int) -> str:
    """A line broken at words into lines of so many letters, each as far in as the first."""
    start = line[: len(line) - len(line.lstrip())]
    parts = textwrap.wrap(line, max(width, 20), subsequent_indent=start, break_long_words=False, break_on_hyphens=False)
    return "\n".join(parts)


def say_what_the_terminal_can() -> None:
    """From now on a sign that the terminal's encoding lacks (Latin-1 has no arrow) is written as a plainer one."""
    codecs.register_error("plainer", _plainer)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # not where a test has put something else
            stream.reconfigure(errors="plainer")


def refused(stream: TextIO) -> str:
    """Why nothing can be written there, tried by an empty line; empty if it can. Then what is said goes nowhere from
    now on, for at the end Python would try once more.
    """
    try:
        stream.write("\n")
        stream.flush()
    except OSError as e:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        return e.strerror or type(e).__name__
    return ""


def _plainer(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAINER.get(c, "?") for c in error.object[error.start : error.end]), error.end
