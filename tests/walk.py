"""The walk of a new user, as the tutorial has it: its blocks in a shell, in an empty folder, with what is installed in
an environment.

`python tests/walk.py FOLDER ENVIRONMENT` prints what happened and how long it took; `make release-check` does the same.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from doc_blocks import blocks, shown

PAGES = ("tutorial/first-table.md", "tutorial/your-algorithm.md")


def walk(folder: Path, environment: Path) -> list[str]:
    """The transcript; AssertionError where a command fails or does not print what its page shows."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "DPFLBENCH", "VIRTUAL_ENV"))}
    variables |= {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}", "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    variables["DPFLBENCH_CACHE"] = str(environment / "cache")
    transcript, printed = [], ""
    for page in PAGES:
        for block in blocks(page):
            if block.what == "file":
                (folder / block.file).write_text(block.text)
                transcript.append(f"# {block.file} written")
            elif block.what == "shows":
                assert shown(block, printed) == [], f"{page}: not printed: {shown(block, printed)}\n{printed[-3000:]}"
            else:
                printed = ""
                for line in block.lines:
                    began = time.monotonic()
                    done = subprocess.run(
                        line, shell=True, cwd=folder, env=variables, text=True, stdout=-1, stderr=subprocess.STDOUT
                    )
                    assert done.returncode == 0, f"{line}: exit {done.returncode}\n{done.stdout[-3000:]}"
                    printed += done.stdout
                    transcript += [f"$ {line}", done.stdout.rstrip(), f"# {time.monotonic() - began:.0f} s"]
    return transcript


if __name__ == "__main__":
    started = time.monotonic()
    print("\n".join(walk(Path(sys.argv[1]), Path(sys.argv[2]))))
    print(f"# all of it: {time.monotonic() - started:.0f} s")
