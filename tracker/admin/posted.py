"""What a form brings, whatever was sent in its place."""

from aiohttp import web
from multidict import MultiDictProxy

from tracker.admin.problems import Problem

Field = str | bytes | bytearray | web.FileField


async def posted(request: web.BaseRequest) -> MultiDictProxy[Field]:
    """The fields of a form, read once however often it is asked for.

    Raises Problem for a body that is no form, and HTTPRequestEntityTooLarge.
    """
    try:
        return await request.post()
    except (Problem, web.HTTPException, ConnectionError):
        raise
    except (
        Exception
    ) as error:  # odd charsets, encodings, parts of parts: aiohttp raises all sorts, the input is to blame
        raise Problem(400, detail="the body is not a well-formed form") from error
