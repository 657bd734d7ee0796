"""Adds and changes many users at a time, with their passkeys and totals: from a file, or from a site's program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracker.errors import ClientError
from tracker.store.access.repeats import once_of
from tracker.store.client.scripts import Scripts
from tracker.store.users.copies import UserCopies
from tracker.store.users.fields import ADDITIONS, Value, checked_fields, checked_passkey, is_user_id, pack_user
from tracker.store.users.sums import UserSums

USERS_A_CALL = 50
"""Takes the store about a millisecond. Announces wait for that call."""
_ERRORS = {
    b"user": "the user with this id has another passkey",
    b"passkey": "this passkey belongs to another user: give one of them a new one",
    b"deleting": "the user with this id is being deleted: try again in a few minutes",
    b"id": "the holder of this passkey has an invalid id",
    b"error": "a key of this user is of the wrong type",
}


@dataclass(frozen=True, slots=True)
class SavedUser:
    """A user who was added, or who was known and got the fields."""

    user_id: str
    new: bool
    passkey: str  # the passkey that was generated for the user; empty if none was
    totals: tuple[int, ...] = ()
    """After adding to them: uploaded, downloaded. Else empty."""


class UserImport:
    def __init__(self, scripts: Scripts, copies: UserCopies, sums: UserSums) -> None:
        self._scripts = scripts
        self._copies = copies
        self._sums = sums

    async def save(
        self, users: Sequence[Mapping[str, Value]], *, replace_totals: bool = False, once: str = "", first_row: int = 0
    ) -> list[SavedUser | ClientError]:
        """Adds users and changes known ones, in order. Returns the outcome of each; one that fails changes nothing.

        Each has user_id or passkey, and FIELDS. A field that is missing keeps its value. A new user without a passkey
        gets a random one, and one without an id the next free one. A known user keeps their totals, which may have
        grown since they were read, unless ``replace_totals`` is set. ADDITIONS are added to the totals of a known user
        too; with ``once``, a key of Repeats, by each row only once. ``first_row``: the number of the first one in the
        request of that key.
        """
        outcomes: list[SavedUser | ClientError] = []
        for first in range(0, len(users), USERS_A_CALL):
            some = users[first : first + USERS_A_CALL]
            head = (int(replace_totals), once_of(once) if once else "", first_row + first)
            outcomes += await self._save(some, head)
        await self._copies.copy_to_all()
        if replace_totals:
            known = [each for each in outcomes if isinstance(each, SavedUser) and not each.new]
            await self._sums.save_if_possible([each.user_id for each in known])
        return outcomes

    async def _save(
        self, users: Sequence[Mapping[str, Value]], head: tuple[int | str, ...]
    ) -> list[SavedUser | ClientError]:
        packed: list[bytes | ClientError] = []
        for user in users:
            try:
                packed.append(pack_user(*checked_user(user)))
            except ClientError as error:
                packed.append(error)
        valid = [each for each in packed if isinstance(each, bytes)]
        added = {str(user.get("user_id", "")) for user in users if not user.keys().isdisjoint(ADDITIONS)}
        await self._sums.save_if_possible([*filter(is_user_id, added)])  # the bases that are added to
        answers = iter(await self._scripts.save_users([*head, *valid]) if valid else ())
        return [each if isinstance(each, ClientError) else _outcome(next(answers)) for each in packed]


def _outcome(answer: list[bytes | int]) -> SavedUser | ClientError:
    outcome, *rest = answer
    if isinstance(outcome, bytes):
        return ClientError(_ERRORS[outcome])
    user_id, passkey, *totals = (part.decode() for part in rest if isinstance(part, bytes))
    return SavedUser(user_id, outcome == 1, passkey, tuple(map(int, totals)))


def checked_user(fields: Mapping[str, Value]) -> tuple[str, str, dict[str, str]]:
    """Returns (user id or '', passkey or '', the other fields as stored). Raises ClientError if a value is invalid."""
    row = dict(fields)
    user_id, passkey = str(row.pop("user_id", "")), str(row.pop("passkey", ""))
    if not user_id and not passkey:
        raise ClientError("a user needs user_id or passkey")
    if user_id and not is_user_id(user_id):
        raise ClientError("a user id is a positive number")
    if passkey:
        checked_passkey(passkey)
    return user_id, passkey, checked_fields(row)
