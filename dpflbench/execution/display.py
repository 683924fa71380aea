"""What a terminal shows of a suite under way: a live view, plain lines where there is no terminal, or nothing but
warnings.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dpflbench.execution.progress import Display, Snapshot, duration
from dpflbench.execution.stopping import Stop
from dpflbench.results.record import Record

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

Clean = Callable[[object], str]
REFRESH, HEARTBEAT = 0.4, 60.0  # seconds between pictures of a live view, and between lines of a log without other news
FIRST = 2.0  # seconds after which a log without any news yet has its first line
STOPPING = "Stopping after this round; Ctrl-C once more stops at once."
ENDED = ("done", "diverged", "disqualified", "failed")


@contextmanager
def display(
    echo: Callable[[str], None], clean: Clean, terminal: bool, quiet: bool, stop: Stop | None = None
) -> Iterator[Display]:
    """The display that fits. `echo` prints a line, `clean` makes it printable whatever a plugin says."""
    if quiet or not terminal or os.environ.get("TERM") in ("dumb", "unknown"):
        yield (Quiet if quiet else Lines)(lambda line: echo(clean(line)))
        return
    from rich.console import Console
    from rich.live import Live

    stop = stop or Stop()
    console, shown = Console(), Picture(clean, stop)
    stop.aloud = False  # a line from a signal handler would push the picture up, and its upper half would stay
    try:
        # once a second by itself: between two rounds of a large model nothing else shows that it is alive
        with Live(console=console, get_renderable=shown.draw, refresh_per_second=1, transient=True) as live:
            shown.live = live
            yield shown
    finally:
        stop.aloud = True


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
        self.last = time.monotonic() - HEARTBEAT + FIRST

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

    live: "Live"

    def __init__(self, clean: Clean, stop: Stop) -> None:
        self.clean, self.stop = clean, stop
        self.began, self.last = time.monotonic(), 0.0
        self.snapshot: Callable[[], Snapshot] | None = None

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
        self.snapshot = snapshot
        if time.monotonic() - self.last >= REFRESH:
            self.last = time.monotonic()
            self.live.refresh()

    def draw(self) -> "RenderableType":
        """How it looks at this moment."""
        if self.snapshot is None:
            return ""
        note = STOPPING if self.stop.requested else f"{duration(time.monotonic() - self.began)} so far"
        return picture(self.snapshot(), self.clean, self.live.console.size.width, self.live.console.size.height, note)


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


def picture(now: Snapshot, clean: Clean, width: int, height: int, note: str = "") -> "RenderableType":
    """Running runs as a small table, the suite as a bar, counts and time left: all of it within the terminal."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    heads, rows = running_table(now.running[: max(1, height - 6)], clean, width)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for head in heads:
        table.add_column(head, justify="left" if head in ("running", "where") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    hidden = len(now.running) - len(rows)
    lines = [f"… and {hidden} more"] if hidden else []
    bar = ProgressBar(total=max(now.total, 1), completed=now.finished, width=min(60, width - 1))
    return Group(*([table] if rows else []), *lines, Group(bar, Text()), Text(summary(now)), Text(note))


def running_table(
    running: Sequence[dict[str, Any]], clean: Clean, width: int, padding: int = 2
) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of running runs within a width: where they run goes first, then the middle of their titles."""
    rows = [[clean(text) for text in running_row(row)] for row in running]
    heads = ["running", "round", "utility", "rounds/s", "where"]

    def room(count: int) -> int:
        columns = list(zip(heads, *rows, strict=True))[1:count]
        return width - padding - sum(padding + max(map(len, column)) for column in columns)

    longest = max((len(row[0]) for row in rows), default=0)
    count = 5 if any(row[4] for row in rows) and longest <= room(5) else 4
    return heads[:count], [[within(row[0], max(12, room(count))), *row[1:count]] for row in rows]


def within(text: str, width: int) -> str:
    """A title in so many letters, shortened where it says least: algorithm and seed stand at its ends."""
    if len(text) <= width:
        return text
    tail = min(width // 3, 9)
    return f"{text[: width - tail - 1]}…{text[len(text) - tail :]}"


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
