"""Lending Club: the interest rate of a loan from what was known when it was priced, a regression.

From any of Lending Club's public CSV files, plain or gzip. Identifiers and columns with NULLs are dropped, categories
become whole numbers, as in the paper; principal components and scaling are the suite's features, fitted on training
data. Which columns have NULLs and which categories exist is read from the whole published file: a schema, declared
public like the rest.
"""

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from dpflbench.errors import DataError
from dpflbench.interfaces import Availability, Examples
from dpflbench.tasks import files
from dpflbench.tasks.cache import Tensors, cached

LABEL = "int_rate"
IDENTIFIERS = frozenset({"id", "member_id", "url", "desc", "emp_title", "title", "zip_code"})
# Made from the rate (grade, installment), or known only once the loan is being paid back.
LEAKS = frozenset(
    """
    grade sub_grade installment loan_status pymnt_plan out_prncp out_prncp_inv total_pymnt total_pymnt_inv
    total_rec_prncp total_rec_int total_rec_late_fee recoveries collection_recovery_fee last_pymnt_d
    last_pymnt_amnt next_pymnt_d last_credit_pull_d last_fico_range_high last_fico_range_low deferral_term
    payment_plan_start_date orig_projected_additional_accrued_interest
    """.split()  # noqa: SIM905  # one a line would fill a page
)
LEAK_PREFIXES = ("hardship", "debt_settlement", "settlement")
ROWS = 50_000  # read at a time
PAGE = "https://www.kaggle.com/datasets/wordsforthewise/lending-club (put the CSV into lending_club/)"
EVERY = 5  # there is no official split: every fifth record of the file is the test part


@dataclass(frozen=True, slots=True)
class LendingClub:
    """Loans of Lending Club, label `int_rate` in per cent; one CSV (or .csv.gz) in lending_club/ of the data folder.

    `leakage: exclude` drops columns that give the rate away (grade, sub_grade, installment, payments and other
    outcomes); `file` names the CSV where there are several.
    """

    leakage: Literal["exclude", "keep"] = "exclude"
    file: str | None = None
    test_share: ClassVar[float] = 0.2  # the paper's 80/20

    def availability(self, root: Path | None) -> Availability:
        """Present if there is one CSV, or the named one."""
        found = self._found(root)
        where = "no data folder given" if root is None else str(root / "lending_club")
        details = {0: f"missing: {self.file or 'a CSV file'}", 1: f"complete: {found[0].name}" if found else ""}
        detail = details.get(
            len(found), f"several CSV files ({', '.join(path.name for path in found)}): name one with file"
        )
        return Availability(len(found) == 1, where, detail, "none stated by Lending Club (published statistics)", PAGE)

    def digest(self, root: Path | None) -> str:
        """SHA-256 of the unpacked CSV."""
        return files.sha256(self._path(root), root)

    def load(self, root: Path | None) -> Examples:
        """Return all records as float32 columns; the test part is every fifth record of the file."""
        key = {"digest": self.digest(root), "leakage": self.leakage}
        tensors = cached("lending_club", key, lambda: _encode(self._path(root), self.leakage == "exclude"))
        x, y = tensors["x"], tensors["y"]
        test = torch.arange(len(y)) % EVERY == EVERY - 1
        return Examples(x[~test], y[~test], x[test], y[test], n_classes=0)

    def _found(self, root: Path | None) -> list[Path]:
        if root is None:
            return []
        folder = root / "lending_club"
        if self.file is not None:
            return [path for path in (folder / self.file, root / self.file) if os.path.isfile(path)][:1]
        return sorted(path for path in folder.glob("*") if path.name.endswith((".csv", ".csv.gz")))

    def _path(self, root: Path | None) -> Path:
        found = self._found(root)
        if not found:
            raise files.missing("lending_club", root, f"lending_club/{self.file or '*.csv or *.csv.gz'}", PAGE)
        if len(found) > 1:
            raise DataError(
                f"lending_club: {', '.join(path.name for path in found)} in {found[0].parent}; name one with file"
            )
        return found[0]


def _encode(path: Path, exclude: bool) -> Tensors:
    """All records as numbers: x [M, F] and y [M], float32."""
    import pandas as pd

    table = pd.concat(list(_without_nulls(path, exclude)), ignore_index=True, join="inner")
    y = _numbers(table.pop(LABEL))
    if y is None or not ((y > 0) & (y < 100)).all():
        raise DataError(f"{path}: {LABEL} holds values that are no per cent; allowed: above 0 and below 100")
    columns = {str(name): _column(table[name]) for name in table.columns}
    for name, values in columns.items():
        if not np.isfinite(values).all():
            raise DataError(f"{path}: column {name} holds values that are not finite")
    varying = [values for values in columns.values() if values.min() < values.max()]
    if not varying:
        raise DataError(f"{path}: no column without NULLs is left to learn from")
    return {"x": torch.from_numpy(np.stack(varying, 1).astype(np.float32)), "y": torch.from_numpy(y.astype(np.float32))}


def _without_nulls(path: Path, exclude: bool) -> Iterator[Any]:
    """The file in pieces: records with a rate, columns that had no NULL so far (the join of all pieces has none at
    all).
    """
    import pandas as pd

    skipped, header = _header(path)
    dropped = IDENTIFIERS | {name for name in header if exclude and (name in LEAKS or name.startswith(LEAK_PREFIXES))}
    wanted = [name for name in header if name not in dropped]
    try:
        with pd.read_csv(path, skiprows=skipped, usecols=wanted, chunksize=ROWS, low_memory=False) as pieces:
            for piece in pieces:
                kept = piece[[name for name in wanted if name in piece.columns]].dropna(subset=[LABEL])
                wanted = [name for name in wanted if not kept[name].isna().any()]
                yield kept[wanted]
    except (ValueError, OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as CSV ({error}); truncated or damaged, fetch it again") from error


def _header(path: Path) -> tuple[int, list[str]]:
    """Lines before the header (Lending Club's own downloads begin with a note) and the column names."""
    start = b""
    for block in files.blocks(path):
        start += block
        if start.count(b"\n") >= 2:
            break
    for skipped, line in enumerate(csv.reader(start.decode("utf-8", "replace").splitlines()[:2])):
        if LABEL in line:
            return skipped, line
    raise DataError(f"{path}: no column {LABEL}; expected a CSV file of Lending Club")


def _column(values: Any) -> NDArray[np.float64]:
    """One column as numbers: amounts, per cents and terms as they are, dates in months, categories as ranks of their
    names.
    """
    numbers = _numbers(values)
    if numbers is not None:
        return numbers
    months = _months(values)
    if months is not None:
        return months
    return np.unique(values.astype(str).to_numpy(dtype=object).astype(str), return_inverse=True)[1].astype(np.float64)


def _numbers(values: Any) -> NDArray[np.float64] | None:
    """Numbers, also as ' 36 months' or '10.65%'; None if any entry is something else."""
    import pandas as pd

    text = values.astype(str).str.strip().str.removesuffix("%").str.removesuffix(" months")
    numbers = pd.to_numeric(text, errors="coerce")
    return None if numbers.isna().any() else np.asarray(numbers, dtype=np.float64)


def _months(values: Any) -> NDArray[np.float64] | None:
    """Dates such as 'Dec-2011' as months; None if any entry is something else."""
    import pandas as pd

    dates = pd.to_datetime(values.astype(str), format="%b-%Y", errors="coerce")
    return None if dates.isna().any() else np.asarray(dates.dt.year * 12 + dates.dt.month, dtype=np.float64)
