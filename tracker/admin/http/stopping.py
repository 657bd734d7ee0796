"""How answers without end learn that the port closes."""

import asyncio

from aiohttp import web

STOPPING = web.AppKey("stopping", asyncio.Event)
"""Set when the port closes: streams of events end then."""
