"""Discretion: what goes wrong where client data is at hand is told without quoting it.

Models and transforms are plugins that see raw samples, and the text of an exception ends up in a record. So only its
type and the place in the code go on; the conformance kit shows the text, on made-up samples.
"""

import functools
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

from dpflbench.errors import DpflbenchError, PluginError

P = ParamSpec("P")
T = TypeVar("T")


def discreet(act: Callable[P, T]) -> Callable[P, T]:
    """The function, with a PluginError that quotes nobody in place of exceptions that are not ours."""

    @functools.wraps(act)
    def inner(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return act(*args, **kwargs)
        except (DpflbenchError, torch.OutOfMemoryError):
            raise
        except Exception as e:
            kind, frames = type(e).__name__, traceback.extract_tb(e.__traceback__)
        last = next((f for f in reversed(frames) if "torch" not in Path(f.filename).parts), frames[-1])
        raise PluginError(
            f"{kind} at {Path(last.filename).name}:{last.lineno} in {last.name}, while clients computed; its text "
            "may quote "
            "their data and is withheld: `dpflbench check` shows it on made-up samples"
        )

    return inner
