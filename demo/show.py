"""What a person sees: a progress bar on a terminal, plain lines elsewhere, and the summary."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

PLAIN_SECONDS = 5.0


class Screen:
    """Prints steps as they happen, with the seconds since the start."""

    def __init__(self, console: Console | None = None, began: float | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self.began = time.monotonic() if began is None else began

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.began

    def step(self, text: str) -> None:
        """One line about something that is done or seen."""
        self.console.print(f"[dim]{self.seconds:5.0f} s[/dim]  {text}")

    @contextmanager
    def progress(self, total: int) -> Iterator[Bar]:
        """A bar of items; `Bar.update` moves it."""
        if not self.console.is_terminal:
            yield Bar(self, None, total)
            return
        columns = (
            TextColumn("         resolved"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"),
            TimeElapsedColumn(),
        )  # fmt: skip
        with Progress(*columns, console=self.console, transient=True) as progress:
            yield Bar(self, progress, total)

    def summary(self, rows: Sequence[tuple[str, str]], problems: Sequence[str]) -> None:
        """The end: a table on a terminal, `name: value` lines elsewhere; and what is off."""
        if self.console.is_terminal:
            table = Table("what", "seen", title="Summary", title_justify="left")
            for name, value in rows:
                table.add_row(name, value)
            self.console.print(table)
        else:
            self.console.print("Summary")
            for name, value in rows:
                self.console.print(f"{name}: {value}")
        for problem in problems:
            self.console.print(f"[bold red]not as promised:[/bold red] {problem}")
        if not problems:
            self.console.print("[bold green]All as promised.[/bold green]")


class Bar:
    """Progress of the load: a bar that moves, or a line every few seconds."""

    def __init__(self, screen: Screen, progress: Progress | None, total: int) -> None:
        self._screen, self._progress, self._total = screen, progress, total
        self._task = None if progress is None else progress.add_task("", total=total)
        self._last = float("-inf")

    def update(self, resolved: int, note: str) -> Self:
        """Show `resolved` items and a note on the rest."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=resolved, description=note)
        elif time.monotonic() - self._last >= PLAIN_SECONDS:
            self._last = time.monotonic()
            self._screen.step(f"resolved {resolved} of {self._total}; {note}")
        return self
