"""Two trackers on one store behind a balancer, each restarted in turn: nobody is to notice."""

import asyncio
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from bench.processes import free_port
from drills.drill import Skipped, drill
from drills.fleet import Fleet
from drills.scene import DrillError, Scene

STOP_DELAY_SECONDS = 2.0
_SEEN_SECONDS = 2.0
"""How long the balancer takes to see that a tracker is ready."""
_PROXY_PROTOCOL = {
    "TRACKER_HTTP__PROXY_PROTOCOL": "true",
    "TRACKER_HTTP__TRUSTED_PROXIES": "127.0.0.1/32",
}
_HAPROXY = """
defaults
    mode tcp
    timeout connect 5s
    timeout client 70s
    timeout server 70s
    retries 3
    option redispatch 1

frontend announce
    bind 127.0.0.1:{port}
    default_backend trackers

backend trackers
    balance leastconn
    option httpchk GET /ready
    http-check expect status 200
    default-server check inter 500ms fall 1 rise 2 send-proxy-v2 check-send-proxy
{servers}
"""


def behind_a_balancer(scene: Scene) -> None:
    _balanced(scene, STOP_DELAY_SECONDS)


def behind_a_balancer_without_a_delay(scene: Scene) -> None:
    _balanced(scene, 0.0)


def _balanced(scene: Scene, stop_delay: float) -> None:
    """Two trackers on one store; clients know the balancer's port only."""
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise Skipped("there is no haproxy on this system")
    scene.start_server()
    delay = {"TRACKER_HTTP__STOP_DELAY_SECONDS": f"{stop_delay:g}"}
    posts = [scene.add_tracker(**_PROXY_PROTOCOL, **delay) for _ in range(2)]
    port, servers = free_port(), ""
    for number, post in enumerate(posts):
        servers += f"    server tracker{number} 127.0.0.1:{post.port}\n"
        post.port = port
    _start_balancer(scene, program, _HAPROXY.format(port=port, servers=servers))
    time.sleep(_SEEN_SECONDS)


def _start_balancer(scene: Scene, program: str, text: str) -> None:
    conf: Path = scene.directory / "haproxy.cfg"
    conf.write_text(text)
    with (scene.directory / "haproxy.log").open("w") as log:
        balancer = subprocess.Popen([program, "-db", "-f", str(conf)], stdout=log, stderr=log)

    def end() -> None:
        balancer.kill()
        balancer.wait()

    scene.at_the_end(end)


async def _restart_each(scene: Scene, fleet: Fleet) -> None:
    """In turn, and each again; clients are to hear nothing but answers."""
    began = time.monotonic()
    for post in (*scene.posts, *scene.posts):
        tracker = post.running
        assert tracker is not None
        tracker.send(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(tracker.process.wait, 20.0)
        if tracker.process.poll() != 0:
            raise DrillError(f"the tracker ended with {tracker.process.poll()}")
        await asyncio.to_thread(post.start)
        await asyncio.sleep(_SEEN_SECONDS)
    failed = [heard for heard in fleet.heard if heard.sent > began and heard.how != "answered"]
    if failed:
        raise DrillError(f"{len(failed)} announces were not answered: {failed[0].how}, {failed[0].what}")


@drill("rolling-restart", prepare=behind_a_balancer)
async def rolling_restart(scene: Scene, fleet: Fleet) -> None:
    """Two trackers behind HAProxy are each restarted twice, in turn, with `TRACKER_HTTP__STOP_DELAY_SECONDS=2`."""
    await _restart_each(scene, fleet)


@drill("rolling-restart-at-once", prepare=behind_a_balancer_without_a_delay)
async def rolling_restart_at_once(scene: Scene, fleet: Fleet) -> None:
    """The same without a delay: the balancer has to find out by being refused a connection, and asks the other tracker."""
    await _restart_each(scene, fleet)
