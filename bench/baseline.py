"""The price of a server that does nothing: aiohttp under uvloop with one constant answer.

The answer is as long as a tracker's with 50 peers, and bencode, so that the same checks pass. The
benchmark also runs nginx with it where nginx is installed.
"""

import argparse

import uvloop
from aiohttp import web

from bench.population import PEERS_WANTED

_PEERS = "abcdef" * PEERS_WANTED
ANSWER = (
    "d8:completei25e10:downloadedi120e11:external ip4:abcd10:incompletei25e"
    f"8:intervali1800e12:min intervali900e5:peers{len(_PEERS)}:{_PEERS}e"
)


async def _answer(request: web.Request) -> web.Response:
    return web.Response(text=ANSWER)


def make_app() -> web.Application:
    app = web.Application()
    app.add_routes([web.get("/announce", _answer), web.get("/scrape", _answer)])
    return app


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    port: int = parser.parse_args().port
    loop = uvloop.new_event_loop()
    web.run_app(make_app(), host="127.0.0.1", port=port, access_log=None, print=None, loop=loop)


if __name__ == "__main__":
    main()
