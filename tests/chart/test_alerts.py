"""The alerts: form, runbooks, and with promtool when they fire and when they do not."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from devtools.alertrun.panels import filled
from devtools.dashboard import dashboard
from leasequeue.cli.app import cli
from tests.chart.alert_cases import CASES, OPERATOR, TEAM_A, Case, Series, queue
from tests.chart.support import CHART, ROOT, Render, one, run_helm

FILES = sorted((CHART / "alerts").glob("*.yaml"))
NAMES = [file.stem for file in FILES]
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
Rules = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def group() -> dict[str, Any]:
    """The chart's rule group."""
    result = run_helm("template", "leasequeue", str(CHART), "--set", "prometheusRule.enabled=true")
    assert result.returncode == 0, result.stderr
    rule = one([document for document in yaml.safe_load_all(result.stdout) if document], "PrometheusRule")
    (found,) = rule["spec"]["groups"]
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def rules(group: dict[str, Any]) -> Rules:
    """Its alerts by name, without the prefix."""
    return {rule["alert"].removeprefix("LeaseQueue"): rule for rule in group["rules"]}


def promtool(program: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=120)


def test_there_is_one_rule_a_file(rules: Rules) -> None:
    assert sorted(rules) == NAMES
    assert len(NAMES) == 14


@pytest.mark.parametrize("name", NAMES)
def test_form(name: str, rules: Rules) -> None:
    rule = rules[name]
    assert rule["alert"] == f"LeaseQueue{name}", "a name of ours: routes that silence Kube… must not swallow it"
    assert re.fullmatch(r"\d+[smh]", rule["for"])
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    if name != "OperatorDown":
        assert "{{ $labels.queue_namespace }}/{{ $labels.queue }}" in rule["annotations"]["summary"]
        # Labels of the scrape (pod, instance, namespace) change with the operator's pod and must not be in the alert.
        assert "by (queue_namespace, queue)" in rule["expr"]


@pytest.mark.parametrize("name", NAMES)
def test_runbook(name: str, rules: Rules) -> None:
    url = rules[name]["annotations"]["runbook_url"]
    page = ROOT / "docs/runbooks" / f"{url.rpartition('/')[2]}.md"
    text = page.read_text()
    assert text.startswith(f"# LeaseQueue{name}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    for section in text.split("\n## ")[1:]:
        assert len(section.split("\n", 1)[1].strip()) > 60, f"{page.name}: {section.split()[0]} says too little"


def test_commands_of_the_runbooks_exist() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs/runbooks").glob("LeaseQueue*.md"))
    found = set(re.findall(r"(?:`|^ *)leasequeue ([a-z]+)((?: --[a-z-]+(?: [A-Z]+)?)*)", pages, re.MULTILINE))
    assert len(found) >= 6
    for name, options in found:
        command = cli.commands[name]
        known = {flag for parameter in command.params for flag in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", options)) <= known, name


def test_the_index_lists_every_runbook_with_its_defaults(rules: Rules) -> None:
    text = (ROOT / "docs/runbooks/README.md").read_text()
    for name, rule in rules.items():
        alert = f"LeaseQueue{name}"
        assert f"| [{alert}]({alert}.md) | {rule['labels']['severity']} | {rule['for']} |" in text


def test_no_runbook_without_alert() -> None:
    pages = {page.stem for page in (ROOT / "docs/runbooks").glob("LeaseQueue*.md")}
    assert pages == {f"LeaseQueue{name}" for name in NAMES}


def test_for_severity_labels_and_address_are_values(render: Render) -> None:
    values = {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "alertLabels": {"team": "payments"},
        "runbookBaseUrl": "https://wiki.example/lq/",
        "operatorSelector": 'job="ops/lq"',
        "alerts": {"InflightHigh": {"for": "1h", "severity": "page"}, "AtCeiling": {"enabled": False}},
    }
    rule = one(render({"prometheusRule": values}), "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    alerts = {r["alert"]: r for r in rule["spec"]["groups"][0]["rules"]}
    high = alerts["LeaseQueueInflightHigh"]
    assert (high["for"], high["labels"]) == ("1h", {"severity": "page", "team": "payments"})
    assert high["annotations"]["runbook_url"] == "https://wiki.example/lq/LeaseQueueInflightHigh"
    assert alerts["LeaseQueueOperatorDown"]["expr"] == 'absent(leasequeue_operator_acting{job="ops/lq"} == 1)'
    assert "LeaseQueueAtCeiling" not in alerts
    assert "OPERATOR_SELECTOR" not in str(rule)


def test_windows_and_rates_are_values(render: Render) -> None:
    alerts: dict[str, Any] = {
        "AtCeiling": {"window": "7m"},
        "LeasesNotReclaimed": {"fallbackSeconds": 1234567},
        "LockContention": {"window": "9m", "perSecond": 0.05},
        "RepairGrowing": {"window": "3h"},
        "MetricsStale": {"slackSeconds": 11},
    }
    rule = one(render({"prometheusRule": {"enabled": True, "alerts": alerts}}), "PrometheusRule")
    text = {r["alert"].removeprefix("LeaseQueue"): r["expr"] for r in rule["spec"]["groups"][0]["rules"]}
    assert "leasequeue_assigned[7m]" in text["AtCeiling"]
    assert re.search(r"reclaim_after_seconds \+ 1\.?234567", text["LeasesNotReclaimed"])
    assert '{kind="busy"}[9m])) > 0.05' in text["LockContention"]
    assert "[3h]" in text["RepairGrowing"]
    assert "11 + 3 *" in text["MetricsStale"]
    assert not re.search("WINDOW|PER_SECOND|_SECONDS", str(rule)), "a placeholder stayed"


EXPORTERS = ("operator/leasequeue_operator/metrics.py", "worker/leasequeue_worker/metrics.py")


def test_every_metric_of_the_rules_is_exported(rules: Rules) -> None:
    """By the exporters' sources: a renamed metric would leave its alert silent for ever."""
    used = {name for rule in rules.values() for name in re.findall(r"\bleasequeue_[a-z_]+", rule["expr"])}
    sources = "".join((ROOT / file).read_text() for file in EXPORTERS)
    texts = set(re.findall(r'"([a-z_]+)"', sources))
    exported = {name if name.startswith("leasequeue_") else f"leasequeue_{name}" for name in texts}
    assert {name for name in used if name.removesuffix("_total") not in exported} == set()
    assert len(used) >= 18


def test_promtool_takes_the_rules(group: dict[str, Any], tmp_path: Path, promtool_path: str) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [group]}))
    result = promtool(promtool_path, tmp_path, "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_has_cases_of_both_kinds(name: str) -> None:
    fires = [case.fires for case in CASES if case.alert == name]
    assert True in fires
    assert fires.count(False) >= 2


def run_tests(program: str, folder: Path, group: dict[str, Any], tests: list[dict[str, Any]]) -> str:
    """promtool's output, or "" where all of `tests` hold."""
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": [group]}))
    file = {"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": tests}
    (folder / "tests.yaml").write_text(yaml.safe_dump(file))
    result = promtool(program, folder, "test", "rules", "tests.yaml")
    return "" if result.returncode == 0 else result.stdout + result.stderr


def as_test(series: dict[str, str], minute: int, expression: str, samples: list[str]) -> dict[str, Any]:
    """One promtool test: at `minute` the `expression` gives exactly `samples`, each 1."""
    check = {
        "expr": expression,
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": sample, "value": 1} for sample in samples],
    }
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [check],
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.alert}-{case.title.replace(' ', '_')}")
def test_case(case: Case, group: dict[str, Any], rules: Rules, tmp_path: Path, promtool_path: str) -> None:
    own = f'alertname="LeaseQueue{case.alert}",alertstate="firing"'
    rest = f'severity="{rules[case.alert]["labels"]["severity"]}"'
    queues = [f',queue_namespace="{namespace}",queue="{name}"' for namespace, name in case.names]
    samples = [f"ALERTS{{{own},{rest}{labels}}}" for labels in ([""] if case.bare else queues)]
    test = as_test(case.series, case.minute, f"ALERTS{{{own}}}", samples)
    assert run_tests(promtool_path, tmp_path, group, [test]) == ""


def expanded(values: str) -> list[str]:
    """A series in promtool's notation, one word a sample."""
    found: list[str] = []
    for word in values.split():
        parts = re.fullmatch(r"(-?[\d.]+|_)(?:([+-])([\d.]+))?x(\d+)", word)
        if parts is None:
            found.append(word)
            continue
        first, sign, step, times = parts.groups()
        # `axN` is N+1 samples, as `a+bxN` is; but `_xN` is N.
        count = int(times) if first == "_" else int(times) + 1
        slope = float(f"{sign or '+'}{step or 0}")
        found += [first if first == "_" else f"{float(first) + slope * number:g}" for number in range(count)]
    return found


def relabelled(series: Series) -> Series:
    """As a scrape without honorLabels and with labels of its own would give it."""
    return {
        name.replace('namespace="ops",pod=', 'exported_pod="x",instance="10.0.0.1:8080",pod='): v for name, v in series.items()
    }


def doubled(series: Series) -> Series:
    """As two pods of the operator give it while one replaces the other."""
    return series | {name.replace('pod="op-1"', 'pod="op-9"'): values for name, values in series.items()}


def neighboured(series: Series) -> Series:
    """With a healthy queue of the same name in another namespace."""
    return series | queue(of=("team-z", TEAM_A[1]))


def deleted(series: Series, minute: int) -> Series:
    """With every series gone from `minute` on."""
    return {name: " ".join([*expanded(values)[:minute], "stale"]) for name, values in series.items()}


VARIANTS = {"relabelled": relabelled, "two pods of the operator": doubled, "a namesake elsewhere": neighboured}


def first_firing(name: str) -> Case:
    """The first case in which an alert of a queue fires for that one queue."""
    return next(case for case in CASES if case.alert == name and case.names == (TEAM_A,))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_alert_names_its_queue_once_however_it_is_scraped(
    variant: str, group: dict[str, Any], rules: Rules, tmp_path: Path, promtool_path: str
) -> None:
    tests = []
    for name in (n for n in NAMES if n != "OperatorDown"):
        case = first_firing(name)
        own = f'alertname="LeaseQueue{name}",alertstate="firing"'
        rest = f'severity="{rules[name]["labels"]["severity"]}",queue_namespace="{TEAM_A[0]}",queue="{TEAM_A[1]}"'
        tests.append(as_test(VARIANTS[variant](case.series), case.minute, f"ALERTS{{{own}}}", [f"ALERTS{{{own},{rest}}}"]))
    assert len(tests) == 13
    assert run_tests(promtool_path, tmp_path, group, tests) == ""


def test_every_alert_of_a_queue_ends_with_it(group: dict[str, Any], tmp_path: Path, promtool_path: str) -> None:
    """Two minutes after a queue is deleted nothing fires for it, whatever fired before."""
    tests = []
    for name in (n for n in NAMES if n != "OperatorDown"):
        case = first_firing(name)
        own = f'ALERTS{{alertname="LeaseQueue{name}",alertstate="firing"}}'
        tests.append(as_test(deleted(case.series, case.minute + 1) | OPERATOR, case.minute + 3, own, []))
    assert run_tests(promtool_path, tmp_path, group, tests) == ""


def test_the_depth_is_the_databases_however_many_pods_tell(group: dict[str, Any], tmp_path: Path, promtool_path: str) -> None:
    """Ten workers and two operators: the dashboard shows the rows, not a multiple of them."""
    (panel,) = (p for p in dashboard()["panels"] if p["title"] == "Depth by state")
    expression = filled(panel["targets"][0]["expr"], {"queue_namespace": TEAM_A[0], "queue": TEAM_A[1]})
    series = doubled(queue({"leasequeue_items{state='PENDING'}": "7x90", "leasequeue_items{state='ASSIGNED'}": "5x20 0x70"}))
    for number in range(10):
        series |= queue({"leasequeue_busy_seconds_total": "0+1x90"}, pod=f"worker-{number}")
    check = {
        "expr": expression, "eval_time": "30m",
        "exp_samples": [{"labels": f'{{state="{s}"}}', "value": v} for s, v in (("ASSIGNED", 0), ("PENDING", 7), ("REPAIR", 3))],
    }  # fmt: skip
    test = {
        "interval": "1m", "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [check],
    }  # fmt: skip
    assert run_tests(promtool_path, tmp_path, group, [test]) == ""


def test_a_healthy_queue_has_no_alert(group: dict[str, Any], tmp_path: Path, promtool_path: str) -> None:
    series = queue() | queue(of=("team-b", "pages")) | OPERATOR
    tests = [as_test(series, minute, "ALERTS", []) for minute in (1, 10, 60, 89)]
    assert run_tests(promtool_path, tmp_path, group, tests) == ""


def test_a_cluster_without_queues_has_no_alert(group: dict[str, Any], tmp_path: Path, promtool_path: str) -> None:
    assert run_tests(promtool_path, tmp_path, group, [as_test(dict(OPERATOR), 60, "ALERTS", [])]) == ""


def test_the_text_names_queue_and_value(group: dict[str, Any], tmp_path: Path, promtool_path: str) -> None:
    namespace, name = TEAM_A
    expected = {
        "exp_labels": {"severity": "warning", "queue_namespace": namespace, "queue": name},
        "exp_annotations": {
            "summary": "An item of LeaseQueue team-a/orders waits too long.",
            "description": (
                "The oldest due item of LeaseQueue team-a/orders has waited 30m 0s, longer than"
                " spec.alerts.oldestPendingSeconds."
            ),
            "runbook_url": "https://leasequeue.dev/runbooks/LeaseQueueOldestItemTooOld",
        },
    }
    series = queue({"leasequeue_oldest_pending_timestamp_seconds": "0x90"})
    test = {
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "alert_rule_test": [{"eval_time": "30m", "alertname": "LeaseQueueOldestItemTooOld", "exp_alerts": [expected]}],
    }
    assert run_tests(promtool_path, tmp_path, group, [test]) == ""
