"""The image and its composition, as far as they can be looked at without Docker; deploy/image/check.sh runs the rest."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.servers import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
CHECK = (ROOT / "deploy/image/check.sh").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}")
    if hadolint is None:
        pytest.skip("hadolint has no wheel for this system")
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_run_line_is_a_script_that_the_check_runs_too() -> None:
    """What only Docker runs nobody here would ever have seen run."""
    lines = re.findall(r"^RUN (.+)$", DOCKERFILE, re.MULTILINE)
    assert lines
    for line in lines:
        (script,) = re.findall(r"\S*/(\w+\.sh)\b", line.split("&&")[0])
        assert (ROOT / "deploy/image" / script).exists()
        assert f"deploy/image/{script}" in CHECK


def test_the_image_is_nobody_s_root() -> None:
    stage = DOCKERFILE.rpartition("\nFROM ")[2]
    users = re.findall(r"^USER (\d+):(\d+)$", stage, re.MULTILINE)
    assert users and all(int(part) >= 10_000 for part in users[-1])
    for line in ("HEALTHCHECK", 'ENTRYPOINT ["tini", "--", "tracker"]', "VOLUME /data", "STOPSIGNAL SIGTERM"):
        assert line in stage
    assert len(re.findall(r'org\.opencontainers\.image\.\w+="', stage)) >= 4


def test_only_what_is_named_gets_into_the_image() -> None:
    """A .env or a data directory that lies in the checkout must not."""
    first, *rest = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert first == "*"
    for line in rest:
        assert line == "**/__pycache__" or (ROOT / line.removeprefix("!")).exists(), line


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_no_more_rights_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service and "network_mode" not in service
    assert name == "tracker" or re.search(r":v?\d+\.\d+", service["image"]), "a version that is named"


def test_images_are_named_by_version_and_can_be_named_by_digest() -> None:
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", DOCKERFILE.partition("\nFROM ")[0], re.MULTILINE))
    assert re.fullmatch(r"python:\$\{PYTHON_VERSION\}-slim-\w+", arguments["BASE"])
    assert re.fullmatch(r"3\.\d+", arguments["PYTHON_VERSION"])
    assert [base.split()[0] for base in re.findall(r"^FROM (.+)$", DOCKERFILE, re.MULTILINE)] == 2 * [
        "${BASE}"
    ]
    assert not [service["image"] for service in SERVICES.values() if service["image"].endswith(":latest")]


def test_no_password_is_one_that_everybody_knows() -> None:
    """Grafana takes its own from a file that is made by hand and is in no repository; without it there is none."""
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_SECURITY_ADMIN_PASSWORD__FILE"] == "/run/secrets/grafana_password"
    assert SERVICES["grafana"]["secrets"] == ["grafana_password"]
    kept = COMPOSE["secrets"]["grafana_password"]["file"].removeprefix(".")
    assert kept in (ROOT / ".gitignore").read_text().splitlines()
    for service in SERVICES.values():
        told = {name: str(value) for name, value in service.get("environment", {}).items()}
        assert not [name for name in told if re.search("PASSWORD|SECRET|TOKEN", name) and "FILE" not in name]
        assert not [value for value in told.values() if re.search(r"://[^/]*@", value)]


def test_only_announces_can_be_reached_from_outside() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == ["6969:6969"]


def test_the_store_is_reached_by_the_tracker_alone() -> None:
    """It asks for no password, and holds passkeys."""
    reached = {name: set(service.get("networks", ["default"])) for name, service in SERVICES.items()}
    (network,) = reached.pop("valkey")
    assert COMPOSE["networks"][network]["internal"]
    assert [name for name, networks in reached.items() if network in networks] == ["tracker"]


def test_prometheus_and_grafana_come_when_asked_for() -> None:
    assert {name for name, service in SERVICES.items() if service.get("profiles") == ["observe"]} == {
        "prometheus",
        "grafana",
    }
    assert all(
        not service.get("profiles") for name, service in SERVICES.items() if name in ("tracker", "valkey")
    )


def test_what_is_mounted_is_there() -> None:
    mounts = [volume.split(":") for service in SERVICES.values() for volume in service.get("volumes", [])]
    for source, _target, *_options in mounts:
        assert source in COMPOSE["volumes"] or (ROOT / source).exists(), source


def test_prometheus_asks_the_tracker_by_a_name_that_it_answers_to() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/compose.yml").read_text())
    command = " ".join(SERVICES["prometheus"]["command"])
    assert "--config.file=/etc/prometheus/compose.yml" in command
    (job,) = config["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert host == SERVICES["tracker"]["environment"]["TRACKER_ADMIN__HOSTS"] and host in SERVICES
    assert f":{port}" in re.findall(r"TRACKER_ADMIN__LISTEN=(\S+)", DOCKERFILE)[0]
