"""Servers with a constant answer, under uvloop: aiohttp, or (--bare) an asyncio.Protocol.

The answer is bencoded and as long as a tracker's with 50 peers, so that the same checks pass. The benchmark also runs
nginx with it, if installed.
"""

import argparse
import asyncio
from typing import cast

import uvloop
from aiohttp import web

from loadtest.bench.population import PEERS_WANTED

_PEERS = "abcdef" * PEERS_WANTED
ANSWER = (
    "d8:completei25e10:downloadedi120e11:external ip4:abcd10:incompletei25e"
    f"8:intervali1800e12:min intervali900e5:peers{len(_PEERS)}:{_PEERS}e"
)
_WHOLE = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(ANSWER)}\r\n\r\n{ANSWER}".encode()


async def _answer(request: web.Request) -> web.Response:
    return web.Response(text=ANSWER)


def make_app() -> web.Application:
    app = web.Application()
    app.add_routes([web.get("/announce", _answer), web.get("/scrape", _answer)])
    return app


class Bare(asyncio.Protocol):
    """Parses only the end of a request, and whether the connection ends."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._read = cast(asyncio.Transport, transport), b""

    def data_received(self, data: bytes) -> None:
        *whole, self._read = (self._read + data).split(b"\r\n\r\n")
        if whole:
            self._transport.write(_WHOLE * len(whole))
            if b"Connection: close" in whole[-1]:
                self._transport.close()


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bare", action="store_true", help="an asyncio.Protocol, no aiohttp")
    asked = parser.parse_args()
    if asked.bare:
        uvloop.run(_serve(asked.port))
        return
    loop = uvloop.new_event_loop()
    web.run_app(make_app(), host="127.0.0.1", port=asked.port, access_log=None, print=None, loop=loop)


if __name__ == "__main__":
    main()
