"""The manifests fit the schemas of Kubernetes, each other and the image."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from loadtest.servers import ROOT
from tracker import __version__
from tracker.settings.model import FIELDS, variable

FOLDER = ROOT / "deploy/kubernetes"
SUPPORTED = ("1.29", "1.34")
"""The oldest and the newest Kubernetes that they are checked with."""


def objects() -> list[dict[str, Any]]:
    return [each for file in sorted(FOLDER.glob("*.yaml")) for each in yaml.safe_load_all(file.read_text())]


OBJECTS = objects()


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in OBJECTS if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


PODS = {each["metadata"]["name"]: each["spec"]["template"] for each in OBJECTS if "template" in each.get("spec", {})}


@pytest.mark.once
@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize("each", OBJECTS, ids=[f"{e['kind']} {e['metadata']['name']}" for e in OBJECTS])
def test_each_object_fits_the_schema(each: dict[str, Any], version: str) -> None:
    from kubernetes_validate import validate  # noqa: PLC0415  # each process of a run would take a second for it

    validate(each, version, strict=True)


def test_selectors_and_references_name_what_there_is() -> None:
    labels = [pod["metadata"]["labels"] for pod in PODS.values()]
    for each in OBJECTS:
        if each["kind"] == "Service":
            assert each["spec"]["selector"] in labels
            ports = PODS[each["spec"]["selector"]["app"]]["spec"]["containers"][0]["ports"]
            assert {port["targetPort"] for port in each["spec"]["ports"]} <= {port["name"] for port in ports}
        if each["kind"] in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
            assert each["spec"]["selector"]["matchLabels"] in labels
        if each["kind"] == "NetworkPolicy":
            assert each["spec"]["podSelector"]["matchLabels"] in labels
    assert {each["metadata"]["name"] for each in OBJECTS if each["kind"] == "NetworkPolicy"} == set(PODS)


@pytest.mark.parametrize("name", PODS)
def test_each_pod_has_minimal_rights_and_probes(name: str) -> None:
    pod = PODS[name]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    (container,) = pod["containers"]
    context = container["securityContext"]
    assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
    assert "memory" in container["resources"]["limits"]


def test_the_tracker_is_the_image_of_this_version_with_settings_that_exist() -> None:
    pod = PODS["tracker"]["spec"]
    (container,) = pod["containers"]
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert container["image"] == f"swarmkeeper:{__version__}"
    user = pod["securityContext"]
    assert f"\nUSER {user['runAsUser']}:{user['runAsGroup']}\n" in dockerfile
    assert "\nEXPOSE 6969 6969/udp 6970\n" in dockerfile
    exposed = {(port["containerPort"], port.get("protocol", "TCP")) for port in container["ports"]}
    assert exposed == {(6969, "TCP"), (6969, "UDP"), (6970, "TCP")}
    names = {*named("ConfigMap", "tracker")["data"], *(each["name"] for each in container["env"])}
    assert names - {"STORE_PASSWORD"} <= {variable(*field) for field in FIELDS}
    delay = int(named("ConfigMap", "tracker")["data"]["TRACKER_HTTP__STOP_DELAY_SECONDS"])
    assert pod["terminationGracePeriodSeconds"] >= delay + 15


def test_only_trackers_reach_the_store() -> None:
    (rule,) = named("NetworkPolicy", "store")["spec"]["ingress"]
    assert rule == {"from": [{"podSelector": {"matchLabels": {"app": "tracker"}}}], "ports": [{"port": 6379}]}


def test_the_page_names_every_object_that_must_be_made_by_hand() -> None:
    page = (ROOT / "docs/kubernetes.md").read_text()
    assert "create secret generic store --from-literal=password=" in page
    assert "create configmap store --from-file=redis.conf" in page and Path(ROOT / "redis.conf").exists()
