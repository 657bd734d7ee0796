"""/multipliers: how much of everybody's traffic is credited. Those of one user or torrent are among its fields."""

from pydantic import Field

from tracker.admin.api.contract import Body, Call, Endpoints, Reply
from tracker.admin.api.models import Factor, Moment, MultiplierEnd
from tracker.store.schema.multipliers import multiplier_text, split_ends

endpoints = Endpoints("multipliers", "Freeleech and double upload for everybody.")


class MultipliersNew(Body):
    """The multipliers for everybody. The best one counts of those of the torrent, the user and everybody."""

    upload_multiplier: Factor = Field(1, description="2: upload counts twice. 1: none.")
    upload_multiplier_until: MultiplierEnd = None
    download_multiplier: Factor = Field(1, description="0: freeleech. 1: none.")
    download_multiplier_until: MultiplierEnd = None


class Multipliers(Reply):
    """The multipliers for everybody, as they were set; after its end one no longer applies."""

    upload_multiplier: float
    upload_multiplier_until: Moment | None
    download_multiplier: float
    download_multiplier_until: Moment | None


@endpoints.get("/multipliers", "Show the multipliers for everybody")
async def show(call: Call) -> Multipliers:
    return Multipliers.model_validate(split_ends(*await call.store.multipliers.get()))


@endpoints.put("/multipliers", "Replace the multipliers for everybody")
async def replace(call: Call, body: MultipliersNew) -> Multipliers:
    """Omitted ones are reset to 1."""
    await call.store.multipliers.set(
        multiplier_text(body.upload_multiplier, body.upload_multiplier_until),
        multiplier_text(body.download_multiplier, body.download_multiplier_until),
    )
    return await show(call)
