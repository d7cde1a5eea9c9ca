"""The pages of docs/reference, each made from the source: `python -m devtools.sync` writes them, `--check` tells what drifted.

One module a page. What a page says stands in the source beside the thing itself (a help text, a description, a catalogue of reasons
or log events); a thing without one is an error here, not an empty cell.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from devtools.reference import alerts, api, chart, commands, conditions, crd, diagnosis, events, exits, logs, metrics, settings

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/reference"
PAGES: dict[str, Callable[[], str]] = {
    "crd": crd.page,
    "settings": settings.page,
    "chart": chart.page,
    "cli": commands.page,
    "conditions": conditions.page,
    "events": events.page,
    "metrics": metrics.page,
    "alerts": alerts.page,
    "logs": logs.page,
    "doctor": diagnosis.page,
    "exit-codes": exits.page,
    "python": api.page,
}


def render() -> dict[Path, str]:
    """All pages by their paths.

    Raises:
        ValueError: something in the source has no explanation, or an explanation has lost its thing; the text names both.
    """
    return {FOLDER / f"{name}.md": page() for name, page in PAGES.items()}
