"""What a terminal shows of a suite under way: a live view, plain lines where there is no terminal, or nothing but
warnings.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dpflbench.execution.progress import Display, Snapshot, duration
from dpflbench.results.record import Record

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

Clean = Callable[[object], str]
REFRESH, HEARTBEAT = 0.4, 60.0  # seconds between pictures of a live view, and between lines of a log without other news
ENDED = ("done", "diverged", "disqualified", "failed")


@contextmanager
def display(echo: Callable[[str], None], clean: Clean, terminal: bool, quiet: bool) -> Iterator[Display]:
    """The display that fits. `echo` prints a line, `clean` makes it printable whatever a plugin says."""
    if quiet or not terminal:
        yield (Quiet if quiet else Lines)(lambda line: echo(clean(line)))
    else:
        from rich.console import Console
        from rich.live import Live

        # no thread of its own: a run in this process shall have the core to itself
        with Live(console=Console(), auto_refresh=False, transient=True) as live:
            yield Picture(live, clean)


class Quiet:
    """Only what went wrong."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self.echo = echo

    def say(self, line: str) -> None:
        """Print a line."""
        self.echo(line)

    def finished(self, now: Snapshot, record: Record, label: str, reused: bool) -> None:
        """Nothing: the table will say it."""

    def poll(self, snapshot: Callable[[], Snapshot]) -> None:
        """Nothing."""


class Lines(Quiet):
    """A line a run, and one a minute while none ends: for logs."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        super().__init__(echo)
        self.last = time.monotonic()

    def say(self, line: str) -> None:
        """Print a line."""
        self.last = time.monotonic()
        self.echo(line)

    def finished(self, now: Snapshot, record: Record, label: str, reused: bool) -> None:
        """The run in one line."""
        self.say(finished_line(now, record, label, reused))

    def poll(self, snapshot: Callable[[], Snapshot]) -> None:
        """A sign of life for logs that are watched from afar."""
        if time.monotonic() - self.last >= HEARTBEAT:
            now = snapshot()
            busy = ", ".join(f"{r['label']} round {r['round']}/{r['rounds']}" for r in now.running)
            self.say(f"{summary(now)}{'; running: ' + busy if busy else ''}")


class Picture:
    """A line a running run and a bar for the suite, drawn over themselves."""

    def __init__(self, live: "Live", clean: Clean) -> None:
        self.live, self.clean, self.last = live, clean, 0.0

    def say(self, line: str) -> None:
        """Print a line above the picture."""
        from rich.text import Text

        self.live.console.print(Text(self.clean(line)))

    def finished(self, now: Snapshot, record: Record, label: str, reused: bool) -> None:
        """A line for what did not go well; the rest is in the counts."""
        if record.status != "done" and not reused:
            self.say(finished_line(now, record, label, reused))

    def poll(self, snapshot: Callable[[], Snapshot]) -> None:
        """Draw again."""
        if time.monotonic() - self.last >= REFRESH:
            self.last = time.monotonic()
            self.live.update(picture(snapshot(), self.clean), refresh=True)


def finished_line(now: Snapshot, record: Record, label: str, reused: bool) -> str:
    """What became of a run."""
    value = record.final.get("utility_global")
    shown = "" if value is None else f" {record.metric.name} {value:.2f}{record.metric.unit}"
    took = " (reused)" if reused else f" ({duration(float(record.measured.get('seconds', 0.0)))})"
    reason = f" – {record.reason}" if record.reason else ""
    return f"[{now.finished}/{now.total}] {record.id} {label}: {record.status}{shown}{took}{reason}"


def summary(now: Snapshot) -> str:
    """Counts and time left in one line."""
    counts = [f"{now.counts[status]} {status}" for status in ENDED if now.counts.get(status)]
    parts = [f"{now.finished} of {now.total} runs", *([f"{now.reused} reused"] if now.reused else []), *counts]
    left = "" if now.seconds_left is None or now.finished >= now.total else f", about {duration(now.seconds_left)} left"
    return ", ".join(parts) + left


def picture(now: Snapshot, clean: Clean) -> "RenderableType":
    """Running runs as a small table, and the suite as a bar."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("running", "round", "utility", "rounds/s", "where"):
        table.add_column(name, justify="left" if name in ("running", "where") else "right", no_wrap=True)
    for row in now.running:
        table.add_row(*(Text(clean(text)) for text in running_row(row)))
    bar = ProgressBar(total=max(now.total, 1), completed=now.finished, width=60)
    return Group(*([table] if now.running else []), bar, Text(summary(now)))


def running_row(row: dict[str, Any]) -> list[str]:
    """A running run as texts: what, round, utility so far, speed, where."""
    utility = "–" if row.get("utility") is None else f"{row['utility']:.2f}"
    speed = f"{row['speed']:.1f}" if row.get("speed") else "–"
    return [
        str(row.get("label", "?")),
        f"{row.get('round', 0)}/{row.get('rounds', '?')}",
        utility,
        speed,
        str(row.get("where", "")),
    ]
