"""Many figures at once: drawing takes longer than all the rest of a report, so with more than one core a part of the
charts goes to a second process, which is this module run by itself with its work on standard input.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpflbench.report.chart import Chart
from dpflbench.report.figures import draw, figure_path

WORTH_A_PROCESS = 24  # from this much work on a second process saves more than its start costs


class Drawing:
    """Charts being drawn: a second process has begun with its share where that is quicker, `finish` draws the rest."""

    def __init__(self, charts: Sequence[Chart], names: Sequence[str], out: Path, kinds: Sequence[str]) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self._charts, self._job = list(charts), (list(names), out, list(kinds))
        theirs = _share(charts) if (os.cpu_count() or 1) > 1 else []
        self._mine = [chart for chart in charts if chart not in theirs]
        self._helper = _helper((theirs, *self._job)) if theirs else None

    def finish(self) -> list[Path]:
        """All paths, in the order of the charts."""
        names, out, kinds = self._job
        for chart in self._mine:
            draw(chart, names, out, kinds)
        if self._helper is not None:
            _, complaint = self._helper.communicate()
            if self._helper.returncode:
                text = complaint.decode(errors="replace").strip()
                if (last := text.rpartition("\n")[2]).startswith("OSError: "):  # the disk is full, not our bug
                    raise OSError(last.removeprefix("OSError: "))
                raise RuntimeError(f"drawing figures failed: {text}")
        return [figure_path(chart, out, kind) for chart in self._charts for kind in kinds]


def _share(charts: Sequence[Chart]) -> list[Chart]:
    """What a second process draws: three fifths of the work, for the first writes everything else; nothing if there is
    little.
    """
    work = {chart.key: len(chart.panels) + 4 for chart in charts}  # a file costs about as much as four panels
    if sum(work.values()) < WORTH_A_PROCESS:
        return []
    out, left = [], 0.6 * sum(work.values())
    for chart in sorted(charts, key=lambda chart: -work[chart.key]):
        if work[chart.key] <= left:
            out.append(chart)
            left -= work[chart.key]
    return out


def _helper(job: tuple[Any, ...]) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-m", "dpflbench.report.drawing"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    if process.stdin is not None:
        process.stdin.write(pickle.dumps(job))
        process.stdin.close()
        process.stdin = None  # communicate() is not to flush it again
    return process


if __name__ == "__main__":
    for one in (job := pickle.loads(sys.stdin.buffer.read()))[
        0
    ]:  # written by `_helper` of the process that started this one
        draw(one, *job[1:])
