"""Text for a terminal: nothing a suite, a plugin or a record says may move the cursor, and every sign can be shown."""

import codecs
import sys

import typer

PLAINER = {"↑": "^", "↓": "v", "≈": "~", "–": "-", "−": "-", "—": "-", "…": "...", "ε": "epsilon", "∞": "inf", "×": "x"}


def printable(text: object) -> str:
    """The text with control and formatting characters shown as escapes; line breaks and tabs too."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def say(line: object = "") -> None:
    """Print one line."""
    typer.echo(printable(line))


def say_what_the_terminal_can() -> None:
    """From now on a sign that the terminal's encoding lacks (Latin-1 has no arrow) is written as a plainer one."""
    codecs.register_error("plainer", _plainer)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # not where a test has put something else
            stream.reconfigure(errors="plainer")


def _plainer(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(PLAINER.get(c, "?") for c in error.object[error.start : error.end]), error.end
