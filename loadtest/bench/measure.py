"""One wrk run against one server, and its cost to that server."""

import contextlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import redis

from loadtest.bench.loader import BenchError
from loadtest.bench.processes import LOAD_CORE, Cpu, cpu_by_part, pinned, resident_by_part
from loadtest.bench.targets import Target

# The headers of libtorrent; the connection modes differ only in these.
HEADERS = {
    "keep-alive": " HTTP/1.1|Host: 127.0.0.1|User-Agent: libtorrent/2.0.8.0|Accept-Encoding: gzip||",
    "close": " HTTP/1.1|Host: 127.0.0.1|User-Agent: libtorrent/2.0.8.0|Accept-Encoding: gzip|Connection: close||",
}
CHECK_SECONDS = 2
BYTES_TOLERANCE = 0.1

Measurements = dict[str, float]
"""Measurements of one run by name; names end in their unit, CPU in µs per request."""


@dataclass(frozen=True, slots=True)
class Load:
    """Parameters of wrk."""

    targets_file: Path
    connections: int
    seconds: int


def check(target: Target, mode: str, load: Load, seconds: int = CHECK_SECONDS) -> None:
    """A short run that warms up and reads every answer. Raises BenchError if one is a failure."""
    result = _wrk(target, mode, load, seconds, searching=True)
    if result["failures"] or not result["requests"]:
        raise BenchError(
            f"{target.name}, {mode}: {result['failures']} of {result['requests']} answers are failures, "
            f"the first: {result['first_failure']}"
        )
    target.answer_bytes[mode] = result["bytes"] / result["requests"]


def measure(target: Target, mode: str, load: Load) -> Measurements:
    """A timed run. Raises BenchError if the answers differ from those of the check run."""
    cpu, scripts = cpu_by_part(target.pids), _scripts(target.store)
    result = _wrk(target, mode, load, load.seconds, searching=False)
    used = {part: now - cpu[part] for part, now in cpu_by_part(target.pids).items()}
    calls, script_us = (now - before for now, before in zip(_scripts(target.store), scripts, strict=True))
    requests = result["requests"]
    answer_bytes = result["bytes"] / max(requests, 1)
    expected = target.answer_bytes[mode]
    if result["non_2xx"] or abs(answer_bytes - expected) > BYTES_TOLERANCE * expected:
        raise BenchError(
            f"{target.name}, {mode}: {result['non_2xx']} answers are not 200; {answer_bytes:.0f} bytes an answer, "
            f"{expected:.0f} in the check run"
        )
    measured = {"requests": requests, "requests_per_s": requests / result["seconds"], "answer_bytes": answer_bytes}
    measured |= _cpu_measurements(used, requests)
    measured |= {f"{part}_bytes": float(size) for part, size in resident_by_part(target.pids).items()}
    if target.store:
        measured |= {"requests_per_script_call": requests / max(calls, 1), "script_us": script_us / requests}
    return measured | {name: result[name] for name in result if name.endswith("_ms") or name in _TROUBLE}


_TROUBLE = ("socket_errors", "timeouts")


def _cpu_measurements(used: dict[str, Cpu], requests: float) -> Measurements:
    measured = {}
    for part, cpu in used.items():
        measured[f"{part}_user_us"] = cpu.user / requests * 1e6
        measured[f"{part}_kernel_us"] = cpu.kernel / requests * 1e6
        measured[f"{part}_us"] = (cpu.user + cpu.kernel) / requests * 1e6
    return measured | {"total_us": measured["server_us"] + measured["store_us"]}


def _scripts(store: "redis.Redis | None") -> tuple[float, float]:
    """Script calls so far, and the microseconds that the store spent on them."""
    if store is None:
        return 0.0, 0.0
    statistics = store.info("commandstats")
    by_command = [statistics.get(f"cmdstat_{name}", {}) for name in ("evalsha", "eval", "fcall")]
    return sum(c.get("calls", 0) for c in by_command), sum(c.get("usec", 0) for c in by_command)


def _wrk(target: Target, mode: str, load: Load, seconds: int, *, searching: bool) -> dict[str, float]:
    variables = {
        "BENCH_TARGETS": str(load.targets_file),
        "BENCH_HEADERS": HEADERS[mode],
        "BENCH_OFFSET": str(target.sent),
        "BENCH_CHECK": "1" if searching else "0",
    }
    command = ["wrk", "-t1", f"-c{load.connections}", f"-d{seconds}s", "--timeout", "10s"]
    command += ["-s", str(Path(__file__).with_name("wrk.lua")), f"http://127.0.0.1:{target.port}"]
    with contextlib.nullcontext() if target.spread else pinned(LOAD_CORE):
        run = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    line = next((line for line in run.stdout.splitlines() if line.startswith("BENCH ")), None)
    if line is None:
        raise BenchError(f"wrk failed ({run.returncode}):\n{run.stdout}{run.stderr}")
    result: dict[str, float] = json.loads(line.removeprefix("BENCH "))
    target.sent += int(result["requests"])
    return result
