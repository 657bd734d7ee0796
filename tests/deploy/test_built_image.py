"""The image, built from the Dockerfile by buildah and run: peers, health, size, and an upgrade on the same volume.

Its base is a Debian that debootstrap makes once, with Python where the official base has it. BASE names another one.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from loadtest import trackers
from loadtest.servers import ROOT, free_port
from loadtest.trackers import RunningTracker
from tests.app.test_udp import Client, udp_address
from tests.deploy.test_packages import CACHE, made_root, run
from tests.frontends.udp.harness import announce_packet

pytestmark = [pytest.mark.long, pytest.mark.once]
SUITE, PYTHON = "trixie", "3.13"
"""As in the Dockerfile."""
MAX_MEGABYTES = 170
"""Over the base."""
OF_THIS_MACHINE = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""Where packages come from, and whom to trust."""
USER = "10001:10001"
ANNOUNCED = b"\0\0\0\1"


class Buildah:
    """Its images are kept for the next run, but for those of the test."""

    def __init__(self, scratch: Path) -> None:
        storage = {"driver": "vfs", "graphroot": CACHE / "storage", "runroot": scratch}
        file = scratch / "storage.conf"
        file.write_text("\n".join(["[storage]", *(f'{name} = "{value}"' for name, value in storage.items())]))
        self.variables = {"CONTAINERS_STORAGE_CONF": str(file), "BUILDAH_ISOLATION": "chroot"}

    def __call__(self, *words: str | Path) -> str:
        return run("buildah", *words, env={**os.environ, **self.variables}).strip()

    def image_of(self, container: str, name: str) -> str:
        self("commit", "--quiet", container, name)
        self("rm", container)
        return name

    def base(self) -> str:
        if given := os.environ.get("BASE"):
            return given
        name = f"swarmkeeper-base:{SUITE}"
        if name not in self("images", "--format", "{{.Name}}:{{.Tag}}").replace("localhost/", ""):
            root = made_root(SUITE, "python3,python3-venv,ca-certificates")
            container = self("from", "scratch")
            self("copy", "--quiet", container, root, "/")
            self("run", container, "ln", "-sf", "/usr/bin/python3", "/usr/local/bin/python")
            self.image_of(container, name)
        container = self("from", "--pull-never", name)
        for file in filter(os.path.exists, OF_THIS_MACHINE):
            self("copy", "--quiet", container, file, file)
        return self.image_of(container, "swarmkeeper-base:here")

    def bytes_of(self, image: str) -> int:
        """The bytes of its layers, as a registry would store them uncompressed."""
        manifest = json.loads(self("inspect", "--type", "image", "--format", "{{.Manifest}}", image))
        return sum(int(layer["size"]) for layer in manifest["layers"])


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Buildah:
    if os.getuid() != 0 or not all(map(shutil.which, ("buildah", "debootstrap"))):
        pytest.skip("needs root, buildah and debootstrap")
    CACHE.mkdir(parents=True, exist_ok=True)
    return Buildah(tmp_path_factory.mktemp("buildah"))


@pytest.fixture(scope="module")
def images(buildah: Buildah) -> Iterator[tuple[str, str, str]]:
    """The base, an image of this version, and one that another commit would give."""
    base, image, other = buildah.base(), "swarmkeeper-test:0123456789ab", "swarmkeeper-test:next"
    buildah("build", "--network", "host", "--pull-never", "--build-arg", f"BASE={base}",
            "--build-arg", "REVISION=0123456789ab", "--tag", image, ROOT)  # fmt: skip
    container = buildah("from", "--pull-never", image)
    file = f"/opt/tracker/lib/python{PYTHON}/site-packages/tracker/commit.txt"
    buildah("run", "--user", "0:0", container, "sh", "-c", f"echo next >{file}")
    yield base, image, buildah.image_of(container, other)
    for name in (other, image, base):
        buildah("rmi", "--force", name)


class Container:
    """A container that runs, as ``docker run`` starts it: as the image's user, with the volume /data."""

    def __init__(self, buildah: Buildah, image: str, volume: Path, ports: dict[str, str]) -> None:
        self._buildah = buildah
        self.name = buildah("from", "--pull-never", image)
        buildah("config", "--volume", "/data-", self.name)  # else it would mount an empty one over ours
        self._how = ["--user", USER, "--volume", f"{volume}:/data"]
        self._how += [word for pair in ports.items() for word in ("--env", "=".join(pair))]
        self.log_file = volume.parent / f"{self.name}.log"
        with self.log_file.open("w") as log:
            self.process = subprocess.Popen(
                ["buildah", *self._run("tini", "--", "tracker", "serve")],
                env={**os.environ, **buildah.variables},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.tracker: RunningTracker = trackers.started(self.process, self.log_file)

    def _run(self, *words: str) -> list[str]:
        return ["run", *self._how, self.name, "--", *words]

    def tell(self, *words: str, code: int = 0) -> str:
        variables = {**os.environ, **self._buildah.variables}
        return run("buildah", *self._run("tracker", *words), code=code, env=variables)

    def stop(self) -> int:
        """As `docker stop` does: SIGTERM to the first process of the container."""
        pid = int(self.tracker.banner.rpartition("kill ")[2].split()[0])
        os.kill(pid, signal.SIGTERM)
        return self.process.wait(20)

    def remove(self) -> None:
        if self.process.poll() is None:
            self.stop()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._buildah("rm", self.name)


def test_the_image_adds_little_to_its_base(buildah: Buildah, images: tuple[str, str, str]) -> None:
    base, image, _ = images
    added = buildah.bytes_of(image) - buildah.bytes_of(base)
    assert 0 < added < MAX_MEGABYTES * 1_000_000
    print(f"the image adds {added / 1e6:.0f} MB to its base")  # noqa: T201


def test_the_image_serves_and_is_upgraded_on_its_volume(
    buildah: Buildah, images: tuple[str, str, str], tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o700)
    os.chown(volume, *map(int, USER.split(":")))
    port, admin = free_port(), free_port()
    ports = {"TRACKER_HTTP__LISTEN": f"127.0.0.1:{port}", "TRACKER_ADMIN__LISTEN": f"127.0.0.1:{admin}"}
    for number, image in enumerate(images[1:]):
        container = Container(buildah, image, volume, ports)
        try:
            assert image.partition(":")[2] in container.tell("--version")
            reply = container.tracker.announce(peer_id=f"-TR4000-abcdefghij{number}x", port=f"688{number}")
            assert reply[b"complete"] == number + 1  # the first one is on the volume
            container.tell("health")
            assert "TRACKER_SITE__DATABASE is not set" in container.tell("sync", "check", code=1)
            client = Client(udp_address(container.tracker))
            with closing(client):
                assert client.ask(announce_packet(client.connect()))[:4] == ANNOUNCED
            assert container.stop() == 0
        finally:
            container.remove()
    assert list(volume.glob("appendonlydir/*"))
