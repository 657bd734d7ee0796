"""Two processes on one port: with one inherited listening socket, and with one each (SO_REUSEPORT).

`python -m loadtest.bench.sockets` alternates the two, with one connection per request. It prints CPU per request of
both processes, requests per second, and the share of the busier one. The processes give a constant answer
(loadtest.bench.baseline), so that only accepting differs. They share all cores with wrk.
"""

import argparse
import asyncio
import multiprocessing
import os
import socket
import statistics
import subprocess
import time
from pathlib import Path

import uvloop

from loadtest.bench.baseline import Bare
from loadtest.bench.loader import BenchError

WAYS = ("inherited", "SO_REUSEPORT")
PROCESSES = 2
_BACKLOG = 1024
_REQUEST = "/announce?info_hash=x"
_TICKS = os.sysconf("SC_CLK_TCK")


def _listen(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen(_BACKLOG)
    return sock


async def _accept(sock: socket.socket) -> None:
    server = await asyncio.get_running_loop().create_server(Bare, sock=sock, backlog=_BACKLOG)
    await server.serve_forever()


def _serve(sock: socket.socket) -> None:
    uvloop.run(_accept(sock))


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def measure(way: str, seconds: int, connections: int) -> tuple[float, float, float]:
    """(CPU µs per request, requests per second, share of the busier process)"""
    first = _listen(0)
    port = first.getsockname()[1]
    sockets = [first] * PROCESSES if way == "inherited" else [first, *(_listen(port) for _ in range(PROCESSES - 1))]
    fork = multiprocessing.get_context("fork")
    servers = [fork.Process(target=_serve, args=(sock,), daemon=True) for sock in sockets]
    for server in servers:
        server.start()
    for sock in sockets:
        sock.close()
    try:
        time.sleep(0.5)
        before = [_cpu(server.pid or 0) for server in servers]
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-H", "Connection: close"]
        run = subprocess.run(
            [*command, f"http://127.0.0.1:{port}{_REQUEST}"], capture_output=True, text=True, check=True
        )
        used = [_cpu(server.pid or 0) - was for server, was in zip(servers, before, strict=True)]
    finally:
        for server in servers:
            server.terminate()
            server.join()
    line = next((line for line in run.stdout.splitlines() if "requests in" in line), None)
    if line is None:
        raise BenchError(f"wrk printed no number of requests:\n{run.stdout}")
    requests = int(line.split()[0])
    return sum(used) / requests * 1e6, requests / seconds, max(used) / sum(used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--connections", type=int, default=64)
    options = parser.parse_args()
    found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
    for _ in range(options.runs):
        for way in WAYS:
            found[way].append(measure(way, options.seconds, options.connections))
    for way, runs in found.items():
        cpu, rate, share = (statistics.median(column) for column in zip(*runs, strict=True))
        minimum, maximum = min(run[0] for run in runs), max(run[0] for run in runs)
        print(
            f"{way}: CPU {cpu:.1f} µs per request ({minimum:.1f} to {maximum:.1f}), "
            f"{rate:,.0f} requests/s, busier {share:.0%}"
        )


if __name__ == "__main__":
    main()
