"""The configuration, alerts and dashboard for Prometheus and Grafana match the tracker's metrics."""

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest.servers import ROOT
from tests.admin.scraping import PROMTOOL, Scrapes, needs_promtool, samples_of, scraped
from tracker.admin.metrics.table import METRICS
from tracker.settings.model import FIELDS, variable

pytestmark = pytest.mark.once
PROMETHEUS = ROOT / "deploy" / "prometheus"
ALERTS = PROMETHEUS / "alerts.yml"
UNIT_TESTS = ROOT / "tests" / "prometheus" / "alerts.test.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "tracker.json"
METRIC = re.compile(r"\b(?:tracker|process|python)_[a-z_]+\b")
SELECTOR = re.compile(r"((?:tracker|process|python)_[a-z_]+)\{([^}]*)\}")
BY_PROMETHEUS = {"job", "instance"}
"""Labels that Prometheus adds to every series."""


@pytest.fixture(scope="module")
def scrapes() -> Scrapes:
    return scraped()


def promtool(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([PROMTOOL, *words], capture_output=True, text=True, timeout=60, check=False)


def alert_expressions() -> list[str]:
    """Returns the ``expr`` of each rule; it may have one or several lines."""
    text = ALERTS.read_text(encoding="utf-8")
    found = re.findall(r"^        expr: (?:\|\n((?:          .*\n)+)|(.*)\n)", text, re.MULTILINE)
    assert len(found) == len(alert_names())
    return [" ".join((block or line).split()) for block, line in found]


def alert_names() -> list[str]:
    return re.findall(r"^      - alert: (\w+)$", ALERTS.read_text(encoding="utf-8"), re.MULTILINE)


def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text(encoding="utf-8"))


def dashboard_expressions() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]


# Metrics and labels exist


def labels_by_name(scrapes: Scrapes) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, labels in samples_of(scrapes.used):
        found.setdefault(name, set()).update(dict(labels))
    return found


@pytest.mark.parametrize("source", ["alerts", "dashboard"])
def test_every_used_metric_exists_with_its_labels(scrapes: Scrapes, source: str) -> None:
    expressions = alert_expressions() if source == "alerts" else list(dashboard_expressions())
    known = labels_by_name(scrapes)
    for expression in expressions:
        assert set(METRIC.findall(expression)) <= set(known), expression
        for name, selector in SELECTOR.findall(expression):
            used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
            assert used <= known[name] | BY_PROMETHEUS, expression
        grouped = {
            label.strip()
            for labels in re.findall(r"\b(?:by|on) ?\(([^)]*)\)", expression)
            for label in labels.split(",")
        }
        there = set().union(*(known[name] for name in METRIC.findall(expression)), BY_PROMETHEUS)
        assert grouped <= there, expression


def test_every_used_label_value_exists(scrapes: Scrapes) -> None:
    """An alert with a misspelt value never fires."""
    values: dict[tuple[str, str], set[str]] = {}
    for name, labels in samples_of(scrapes.used):
        for label, value in labels:
            values.setdefault((name, label), set()).add(value)
    for expression in [*alert_expressions(), *dashboard_expressions()]:
        for name, selector in SELECTOR.findall(expression):
            for label, wanted in re.findall(r'(\w+)=~?"([^"$]*)"', selector):
                if label not in BY_PROMETHEUS:
                    assert set(wanted.split("|")) <= values[name, label], expression


def test_every_metric_is_on_a_panel_or_in_an_alert() -> None:
    """Except a few, which are listed here."""
    used = {
        each
        for expression in [*alert_expressions(), *dashboard_expressions()]
        for name in METRIC.findall(expression)
        for each in (name, re.sub(r"_(bucket|count|sum)$", "", name))
    }
    exceptions = {"tracker_torrents_forgotten_total", "tracker_software_dropped_total", "tracker_scores_oldest_seconds"}
    assert {metric.name for metric in METRICS} - used == exceptions


# Prometheus


@needs_promtool
@pytest.mark.parametrize("name", ["prometheus.yml", "compose.yml"])
def test_prometheus_accepts_the_configuration(tmp_path: Path, name: str) -> None:
    for path in PROMETHEUS.glob("*.yml"):
        shutil.copy(path, tmp_path)
    (tmp_path / "token").write_text("secret")
    checked = promtool("check", "config", str(tmp_path / name))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(alert_names())} rules found" in checked.stdout


@needs_promtool
def test_the_unit_tests_of_the_alerts_pass() -> None:
    checked = promtool("test", "rules", str(UNIT_TESTS))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_alert_has_a_unit_test_and_an_action() -> None:
    tests, text = UNIT_TESTS.read_text(encoding="utf-8"), ALERTS.read_text(encoding="utf-8")
    names = alert_names()
    assert len(names) == len(set(names)) > 15
    for name, rule in zip(names, text.split("- alert: ")[1:], strict=True):
        assert re.search(rf'alertname(: |="){name}\b', tests), name
        for field in ("severity: ", "summary: ", "description: ", "action: "):
            assert field in rule, (name, field)
        assert rule.count("severity: page") + rule.count("severity: ticket") == 1


def test_each_alert_is_in_the_document() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (\w+) \|", page.partition("## Alerts")[2], re.MULTILINE)[1:] == alert_names()


def test_settings_named_in_alerts_exist() -> None:
    known = {variable(*field) for field in FIELDS}
    assert set(re.findall(r"TRACKER_[A-Z_]+", ALERTS.read_text(encoding="utf-8"))) <= known


# Grafana


def test_every_panel_queries_the_selected_data_source() -> None:
    board = dashboard()
    names = [variable["name"] for variable in board["templating"]["list"]]
    assert names == ["datasource", "job", "instance"]
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len(panels) > 20
    for panel in panels:
        assert panel["title"] and panel["description"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        references = [target["refId"] for target in panel["targets"]]
        assert references and len(references) == len(set(references))
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            assert 'job="$job"' in target["expr"] and 'instance=~"$instance"' in target["expr"]
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(board)))
    assert used <= {*names, "__rate_interval", "__interval", "__all"}


def test_panels_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24
    for one, other in itertools.combinations(panels, 2):
        a, b = one["gridPos"], other["gridPos"]
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        below = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert beside or below, (one["title"], other["title"])


@needs_promtool
def test_the_expressions_of_panels_are_valid(tmp_path: Path) -> None:
    lines = ["groups:", "  - name: panels", "    rules:"]
    for number, expression in enumerate(dashboard_expressions()):
        filled = expression.replace("$__rate_interval", "1m").replace("$job", "x").replace("$instance", ".*")
        lines += [f"      - record: panel:number{number}", f"        expr: {json.dumps(filled)}"]
    (tmp_path / "panels.yml").write_text("\n".join(lines) + "\n")
    checked = promtool("check", "rules", str(tmp_path / "panels.yml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr
