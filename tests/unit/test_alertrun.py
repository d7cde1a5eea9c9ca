"""The parts of the alert run that decide something."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from devtools.alertrun.drill import Drill, Step, play
from devtools.alertrun.monitors import targets
from devtools.alertrun.panels import evaluate, filled, legend
from devtools.alertrun.receiver import Inbox
from devtools.alertrun.report import problems, table


def alert(name: str, status: str = "firing", queue: str = "q") -> dict[str, Any]:
    labels = {"alertname": f"LeaseQueue{name}", "severity": "warning", "queue": queue}
    return {"labels": labels, "annotations": {}, "status": status}


def test_an_alert_is_told_once_and_its_end_is_kept() -> None:
    inbox = Inbox()
    for moment, status in ((1.0, "firing"), (2.0, "firing"), (3.0, "resolved"), (4.0, "resolved")):
        inbox.take(alert("A", status), moment)
    told = inbox.told["A", "q"]
    assert (told.fired_at, told.resolved_at, told.firings) == (1.0, 3.0, 1)
    inbox.take(alert("A"), 5.0)
    assert (told.resolved_at, told.firings, told.firing) == (3.0, 2, True)
    assert not inbox.resolved(("A", "q"))


def test_an_end_without_a_beginning_is_nothing() -> None:
    inbox = Inbox()
    inbox.take(alert("A", "resolved"), 1.0)
    assert not inbox.fired(("A", "q"))


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=2) as made:
        yield made


def drill(inbox: Inbox, done: list[str], mending: bool = True) -> Drill:
    def step(name: str) -> Step:
        def do() -> None:
            done.append(name)
            inbox.take(alert(name), 1.0)

        return Step(name, do, (name,))

    def mend() -> None:
        done.append("mend")
        for name in ("A", "B") if mending else ("A",):
            inbox.take(alert(name, "resolved"), 2.0)

    return Drill("q", [step("A"), step("B")], "mended", mend, seconds=0.0 if not mending else 60.0)


def test_a_drill_goes_step_by_step_and_ends_when_all_is_resolved(pool: ThreadPoolExecutor) -> None:
    inbox, done = Inbox(), list[str]()
    assert play([drill(inbox, done)], inbox, lambda _: None, pool) == []
    assert done == ["A", "B", "mend"]


def test_a_drill_whose_alert_stays_is_a_problem(pool: ThreadPoolExecutor) -> None:
    inbox = Inbox()
    (problem,) = play([drill(inbox, [], mending=False)], inbox, lambda _: None, pool)
    assert "resolve" in problem


def test_a_drill_that_cannot_be_done_hides_no_other(pool: ThreadPoolExecutor) -> None:
    inbox, done = Inbox(), list[str]()

    def fails() -> None:
        raise RuntimeError("no")

    broken = Drill("other", [Step("x", fails, ("X",))], "mended", lambda: None)
    problem = play([broken, drill(inbox, done)], inbox, lambda _: None, pool)
    assert problem == ["other: RuntimeError: no"]
    assert done[-1] == "mend"


def pod(name: str, namespace: str = "team", **status: str) -> dict[str, Any]:
    container = {"name": "worker", "ports": [{"name": "metrics", "containerPort": 8080}]}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"a": "b", "c": "d"}},
        "spec": {"containers": [container]}, "status": {"podIP": "10.0.0.1", "phase": "Running", **status},
    }  # fmt: skip


MONITOR = {
    "metadata": {"name": "m", "namespace": "team"},
    "spec": {"selector": {"matchLabels": {"a": "b"}}, "podMetricsEndpoints": [{"port": "metrics", "path": "/metrics"}]},
}


def test_targets_are_the_running_pods_that_a_monitor_selects() -> None:
    pods = [pod("one"), pod("elsewhere", "other"), pod("ended", phase="Succeeded"), pod("new", podIP="")]
    (found,) = targets([MONITOR], pods)
    assert found["targets"] == ["10.0.0.1:8080"]
    assert found["labels"] == {
        "__metrics_path__": "/metrics", "job": "team/m", "namespace": "team", "pod": "one", "container": "worker",
    }  # fmt: skip


def test_a_monitor_of_another_namespace_and_one_of_a_wrong_port() -> None:
    spec: dict[str, Any] = MONITOR["spec"]  # type: ignore[assignment]
    elsewhere = {**MONITOR, "spec": {**spec, "namespaceSelector": {"matchNames": ["other"]}}}
    assert [t["labels"]["pod"] for t in targets([elsewhere], [pod("one"), pod("two", "other")])] == ["two"]
    wrong = {**MONITOR, "spec": {**spec, "podMetricsEndpoints": [{"port": "http"}]}}
    with pytest.raises(KeyError):
        targets([wrong], [pod("one")])


def test_variables_and_legends() -> None:
    assert filled('m{q="$queue"}[$__rate_interval] ${queue}', {"queue": "a", "__rate_interval": "1m"}) == 'm{q="a"}[1m] a'
    with pytest.raises(KeyError):
        filled("m{x='$other'}", {})
    assert legend("{{state}} of {{ queue }}{{gone}}", {"state": "PENDING", "queue": "q"}) == "PENDING of q"


class Source:
    def query_range(self, expression: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        return [{"metric": {"state": "A"}, "values": [[1.0, "2"], [2.0, "NaN"], [3.0, "4"]]}]


def test_panels_keep_numbers_alone() -> None:
    defaults = {"unit": "s", "custom": {"stacking": {"mode": "normal"}}}
    target = {"expr": 'm{queue="$queue"}', "legendFormat": "{{state}}"}
    board = {
        "panels": [
            {"type": "row", "title": "R"},
            {"type": "timeseries", "title": "P", "fieldConfig": {"defaults": defaults}, "targets": [target]},
        ]
    }
    (panel,) = evaluate(board, Source(), 0, 10, 1, "q")
    assert (panel.title, panel.row, panel.stacked) == ("P", "R", True)
    assert panel.series == [("A", [(1.0, 2.0), (3.0, 4.0)])]


def evidence(**changes: Any) -> dict[str, Any]:
    told = {
        "alert": "A",
        "queue": "q",
        "labels": {"severity": "warning", "team": "t"},
        "fired_at": 0.0,
        "resolved_at": 12.0,
        "firings": 1,
    }
    plain: dict[str, Any] = {
        "alerts": [told], "rules": ["LeaseQueueA"], "panels": [{"title": "P", "series": [["s", [[1, 2]]]]}], "problems": [],
    }  # fmt: skip
    return {**plain, **changes}


def test_a_run_is_good_when_all_fired_resolved_and_was_drawn() -> None:
    assert problems(evidence()) == []
    assert "00:00:12" in table(evidence())
    assert "team=t" in table(evidence())


def test_what_is_missing_is_told() -> None:
    assert problems(evidence(rules=["LeaseQueueA", "LeaseQueueB"])) == ["LeaseQueueB was never received"]
    assert problems(evidence(panels=[{"title": "P", "series": [["s", []]]}])) == ["panel 'P' has no data"]
    stays = {**evidence()["alerts"][0], "resolved_at": None}
    assert problems(evidence(alerts=[stays])) == ["A of q did not resolve"]
