"""Who does too much: what the processes of all hosts have counted is added up here, and who is over a limit is known to all.

Nothing here grows without bound, whoever attacks from however many addresses: at most MOST_SUBJECTS are counted in
a minute, and at most MOST_VERDICTS hold at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from tracker.store.connection import Connection
from tracker.store.keys import Keys
from tracker.store.scripts import Scripts

WINDOW_SECONDS = 60
HOLD_SECONDS = 120
"""How long a verdict holds after the last time it was deserved."""
MOST_SUBJECTS = 20_000
MOST_VERDICTS = 4096


class Charge(NamedTuple):
    """``number`` times more, by the subject as limits.py writes it."""

    limit: str
    subject: str
    number: int


class Verdict(NamedTuple):
    """``stage`` 1 to 3 (see limits.py) holds ``until`` then, epoch s."""

    stage: int
    limit: str
    subject: str
    until: float


class Offences:
    """The offences of one prefix. ``most`` is how often each limit allows in a minute; ``clock`` gives epoch seconds."""

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        clock: Callable[[], float],
        most: Mapping[str, int],
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._clock = clock
        self._most = most

    async def charge(self, charges: Sequence[Charge]) -> list[Verdict]:
        """Adds charges up; all verdicts that hold now. Raises StoreAway; charges that got lost with it stay lost."""
        argv: list[str | bytes | int | float] = [
            int(self._clock()),
            WINDOW_SECONDS,
            HOLD_SECONDS,
            MOST_SUBJECTS,
            MOST_VERDICTS,
        ]
        for charge in charges:
            argv += (f"{charge.limit} {charge.subject}", charge.number, self._most[charge.limit])
        return _verdicts(await self._scripts.charge(argv))


def _verdicts(listed: Sequence[bytes]) -> list[Verdict]:
    """What stands there and is none, because somebody else wrote it, is passed over."""
    found = []
    for member, until in zip(listed[::2], listed[1::2], strict=True):
        read = _read(member)
        if read is not None:
            found.append(Verdict(*read, float(until)))
    return found


@lru_cache(MOST_VERDICTS)
def _read(member: bytes) -> tuple[int, str, str] | None:
    """Remembered: most of what holds in one second held in the one before."""
    stage, _, rest = member.decode("utf-8", "replace").partition(" ")
    limit, _, subject = rest.partition(" ")
    return (int(stage), limit, subject) if stage in ("1", "2", "3") else None
