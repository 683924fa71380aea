"""Checks of trackers: what can be seen without sending anything anywhere."""

from typing import Any

from dpflbench.errors import DpflbenchError
from dpflbench.interfaces import Tracker
from dpflbench.testing.factories import named, obtain
from dpflbench.testing.rules import frozen, needs_methods, pickled, refuse


def check_tracker(part: Any, who: str = "") -> None:
    """Raise ConformanceError at the first broken rule."""
    who = named(part, "tracker", who)
    tracker = obtain(part, who)
    needs_methods(who, tracker, Tracker, {"ready": 0, "track": 1})
    frozen(who, tracker)
    pickled(who, tracker)
    try:
        tracker.ready()
    except DpflbenchError as e:
        if len(str(e).splitlines()) != 1:
            refuse(who, f"ready() says {str(e)!r:.80}", "one line", "say what is missing and how to get it")
    except Exception as e:  # a stranger's code may raise anything
        refuse(who, f"ready() raises {type(e).__name__}: {e}"[:300], "DpflbenchError", "import its library inside")
