"""The exhibition of faults: every code has one, and the doctor finds it."""

from __future__ import annotations

from click.testing import CliRunner

from devtools.doctor_show import FAULTS, main
from leasequeue.doctor import Code


def test_every_code_has_a_fault() -> None:
    assert set(FAULTS) == set(Code)


def test_what_is_made_is_found() -> None:
    """Three of them here; `python -m devtools.doctor_show` shows all."""
    codes = [Code.LEASE_LEAK, Code.POISON, Code.COULD_NOT_LOOK]
    ran = CliRunner().invoke(main, [str(code) for code in codes])
    assert ran.exit_code == 0, ran.output
    assert "3 of 3 faults found" in ran.output
