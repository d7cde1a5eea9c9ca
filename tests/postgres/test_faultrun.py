"""The fault run in its short form: every kind of fault on a few hundred items; `make faults` is the long form."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from devtools.faultrun import main


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_nothing_is_lost_or_doubled_under_faults() -> None:
    result = CliRunner().invoke(main, ["--items", "1200", "--workers", "3", "--seed", "7", "--limit", "360"])
    assert result.exit_code == 0, result.output
    assert "fault run: good" in result.output
    assert "SIGKILL" in result.output
