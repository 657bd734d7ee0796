"""/multipliers: how much of the traffic of all users is credited. Those of one user or torrent are among its fields."""

from pydantic import Field

from tracker.admin.api.contract import Body, Call, Endpoints, Reply
from tracker.admin.api.models import Moment, MultiplierEnd, RulesValue, StoredRules
from tracker.store.schema.multipliers import join_ends, refuse_ended, split_ends

endpoints = Endpoints("multipliers", "Freeleech and double upload for all users.")


class MultipliersNew(Body):
    """The multipliers for all users. The best one counts of those of the torrent, the user and all users."""

    upload_multiplier: RulesValue = Field("1", description="2: upload counts twice. 1: none. Text is all its rules.")
    upload_multiplier_until: MultiplierEnd = None
    download_multiplier: RulesValue = Field("1", description="0: freeleech. 1: none.")
    download_multiplier_until: MultiplierEnd = None


class Multipliers(Reply):
    """The multipliers for all users, as they were set; after its end one no longer applies."""

    upload_multiplier: StoredRules
    upload_multiplier_until: Moment | None
    download_multiplier: StoredRules
    download_multiplier_until: Moment | None


@endpoints.get("/multipliers", "Show the multipliers for all users")
async def show(call: Call) -> Multipliers:
    return Multipliers.model_validate(split_ends(*await call.store.multipliers.get()))


@endpoints.put("/multipliers", "Replace the multipliers for all users", "multipliers.set", role="admin")
async def replace(call: Call, body: MultipliersNew) -> Multipliers:
    """Omitted ones are reset to 1."""
    upload, download = join_ends(body.model_dump()).values()
    refuse_ended((upload, download), call.context.clock())
    await call.store.multipliers.set(upload, download)
    return await show(call)
