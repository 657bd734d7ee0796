"""Tells event streams that the port closes."""

import asyncio

from aiohttp import web

STOPPING = web.AppKey("stopping", asyncio.Event)
"""Set when the port closes; event streams then end."""
