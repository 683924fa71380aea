"""The examples of the documentation that are carried out: a comment before a fenced block says how.

`<!-- run -->`   carried out by the tests and in the walk of a release
`<!-- walk -->`  carried out in the walk alone: it installs something
`<!-- file X -->` the content of a file, written then
`<!-- shows -->` lines that what ran last must have printed, in this order; `…` stands for anything, and with `roughly`
                 every number for any number, with or without a mark: noise is drawn anew
"""

import re
from dataclasses import dataclass
from pathlib import Path

PAGES = Path(__file__).parent.parent / "docs" / "pages"
BLOCK = re.compile(r"^<!-- (run|walk|file|shows)(?: ([^ ]+))? -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    what: str
    file: str
    language: str
    text: str

    @property
    def lines(self) -> list[str]:
        return [line for line in self.text.splitlines() if line.strip()]


def blocks(page: str) -> list[Block]:
    text = (PAGES / page).read_text()
    found = [Block(what, file or "", language, body) for what, file, language, body in BLOCK.findall(text)]
    marks = re.findall(r"^<!-- (?:run|walk|file|shows)\b", text, re.MULTILINE)
    assert len(marks) == len(found), f"{page}: a mark without a block"
    return found


def shown(block: Block, printed: str) -> list[str]:
    """The lines of a block that were not printed."""
    rest = [plainly(line, block) for line in printed.splitlines()]
    missing = []
    for line in block.lines:
        wanted = re.compile(r".*".join(re.escape(part) for part in plainly(line, block).split("…")))
        at = next((i for i, each in enumerate(rest) if wanted.fullmatch(each)), None)
        if at is None:
            missing.append(line)
        else:
            rest = rest[at + 1 :]
    return missing


def plainly(line: str, block: Block) -> str:
    """A line as it is compared: one space between words, and no numbers where any will do."""
    if block.file == "roughly":
        line = re.sub(r"\d+(?:\.\d+)?( [*≈](?= |$))?", "0", line)
    return " ".join(line.split())
