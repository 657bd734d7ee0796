"""Restarts two trackers on one store behind a load balancer, in turn. No client may notice."""

import asyncio
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from loadtest.chaos.environment import Environment, ExperimentError
from loadtest.chaos.experiment import Skipped, experiment
from loadtest.clients.load import Load
from loadtest.servers import free_port

STOP_DELAY_SECONDS = 2.0
_SEEN_SECONDS = 2.0
"""The time in which the balancer detects that a tracker is ready."""
_PROXY_PROTOCOL = {"TRACKER_HTTP__PROXY_PROTOCOL": "true", "TRACKER_HTTP__TRUSTED_PROXIES": "127.0.0.1/32"}
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


def behind_a_balancer(environment: Environment) -> None:
    _balanced(environment, STOP_DELAY_SECONDS)


def behind_a_balancer_without_a_delay(environment: Environment) -> None:
    _balanced(environment, 0.0)


def _balanced(environment: Environment, stop_delay: float) -> None:
    """Two trackers on one store; clients know only the balancer's port."""
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise Skipped("haproxy is not installed")
    environment.start_server()
    delay = {"TRACKER_HTTP__STOP_DELAY_SECONDS": f"{stop_delay:g}"}
    trackers = [environment.add_tracker(**_PROXY_PROTOCOL, **delay) for _ in range(2)]
    port, servers = free_port(), ""
    for number, tracker in enumerate(trackers):
        servers += f"    server tracker{number} 127.0.0.1:{tracker.port}\n"
        tracker.port = port
    _start_balancer(environment, program, _HAPROXY.format(port=port, servers=servers))
    time.sleep(_SEEN_SECONDS)


def _start_balancer(environment: Environment, program: str, text: str) -> None:
    conf: Path = environment.directory / "haproxy.cfg"
    conf.write_text(text)
    with (environment.directory / "haproxy.log").open("w") as log:
        balancer = subprocess.Popen([program, "-db", "-f", str(conf)], stdout=log, stderr=log)

    def end() -> None:
        balancer.kill()
        balancer.wait()

    environment.add_cleanup(end)


async def _restart_each(environment: Environment, load: Load) -> None:
    """Restarts each tracker twice, in turn. Every announce must be answered."""
    began = time.monotonic()
    for restarted in (*environment.trackers, *environment.trackers):
        tracker = restarted.running
        assert tracker is not None
        tracker.send(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(tracker.process.wait, 20.0)
        if tracker.process.poll() != 0:
            raise ExperimentError(f"the tracker ended with {tracker.process.poll()}")
        await asyncio.to_thread(restarted.start)
        await asyncio.sleep(_SEEN_SECONDS)
    failed = [result for result in load.results if result.sent > began and result.kind != "answered"]
    if failed:
        raise ExperimentError(f"{len(failed)} announces were not answered: {failed[0].kind}, {failed[0].detail}")


@experiment("rolling-restart", prepare=behind_a_balancer)
async def rolling_restart(environment: Environment, load: Load) -> None:
    """Two trackers behind HAProxy are each restarted twice, in turn, with `TRACKER_HTTP__STOP_DELAY_SECONDS=2`."""
    await _restart_each(environment, load)


@experiment("rolling-restart-at-once", prepare=behind_a_balancer_without_a_delay)
async def rolling_restart_at_once(environment: Environment, load: Load) -> None:
    """The same without a delay: the balancer
    notices by a refused connection, and asks the other tracker."""
    await _restart_each(environment, load)
