"""/settings, /health and /doctor: configuration and health of the tracker."""

from dataclasses import asdict
from typing import Literal

from pydantic import Field

from tracker import __version__
from tracker.admin.api.contract import Call, Endpoints, Reply
from tracker.admin.api.models import Items, copy_of
from tracker.admin.context import AdminContext
from tracker.doctor import DoctorContext, Finding
from tracker.doctor.checks import run_checks
from tracker.settings.reference import Described, describe

endpoints = Endpoints("system", "Configuration and health of the tracker.")


@copy_of(Described, reloaded=None)
class SettingRow(Reply):
    """A setting and its current value. Passwords and tokens are masked."""

    reloaded: bool = Field(description="true: SIGHUP reloads it; false: a restart is needed.")
    waiting: bool = Field(description="true: changed since the start; a restart is needed.")


class SettingList(Items[SettingRow]):
    """All settings."""


class Health(Reply):
    """Health of the tracker."""

    ready: bool
    problems: list[str] = Field(description="Why it is not ready; empty if ready.")
    shards_unavailable: list[int] = Field(description="Unavailable shards of the store; the others are served.")
    main_unavailable: bool = Field(
        description="Whether the main store of several shards is unavailable. Announces are served meanwhile."
    )
    version: str
    store: str = Field(description="Server software of the store and its version.")
    geoip: str = Field(description="The GeoIP database, or why it is not usable; empty if none is set.")
    dht: Literal["off", "waiting", "up", "down"] = Field(
        description="The node of the DHT. `waiting`: another tracker runs the node of this name. `down`: no node has "
        "answered for 60 s. It does not affect `ready`."
    )


@copy_of(Finding)
class FindingRow(Reply):
    """The result of one check."""


class Findings(Items[FindingRow]):
    """The results of all checks, as of `tracker doctor`."""


@endpoints.get("/settings", "List settings")
async def settings(call: Call) -> SettingList:
    last = call.context.last_reload()
    waiting = last.waiting if last else ()
    return SettingList(
        items=[SettingRow(**asdict(each), waiting=each.name in waiting) for each in describe(call.context.settings)]
    )


@endpoints.get("/health", "Show health")
async def health(call: Call) -> Health:
    """Always 200 if the tracker responds; `ready` says whether it serves peers."""
    context = call.context
    problems = list(context.problems())
    database = context.places.describe()
    return Health(
        ready=not problems,
        problems=problems,
        shards_unavailable=context.store.shards.unavailable,
        main_unavailable=context.store.shards.main_is_unavailable,
        version=__version__,
        store=context.server,
        geoip=str(database) if database else context.places.problem,
        dht=_dht(context),
    )


def _dht(context: AdminContext) -> Literal["off", "waiting", "up", "down"]:
    if not context.settings.dht.enabled:
        return "off"
    up = context.telemetry().gauges.get("dht_up")
    return "waiting" if up is None else "up" if up else "down"


@endpoints.get("/doctor", "Run health checks")
async def examine(call: Call) -> Findings:
    """Checks the store and the settings. Changes nothing."""
    context, store = call.context, call.store
    checked = DoctorContext(store, context.settings, context.clock)
    found = [each async for each in run_checks(checked)]
    return Findings(items=[FindingRow.from_record(f) for f in found])
