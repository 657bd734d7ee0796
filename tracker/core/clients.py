"""Decides which client programs may announce, by the allow-list and the deny list."""

from collections.abc import Callable

from tracker.bittorrent import PeerId
from tracker.refusals import Refusal
from tracker.settings.public import ClientSettings
from tracker.store.access.client_lists import AllowListCache, DenyListCache

Check = Callable[[PeerId], bool | None]
"""Whether a peer's client may announce; None if the store must be asked."""


class ClientRules:
    """The lists, as far as the settings use them. A client on both is refused."""

    def __init__(self, allow_list: AllowListCache, deny_list: DenyListCache) -> None:
        self._allow_list = allow_list
        self._deny_list = deny_list
        self._uses_deny_list = False

    def apply_settings(self, clients: ClientSettings) -> Check | None:
        """Returns the function to ask for each announce; None if every client may announce."""
        self._uses_deny_list = clients.deny_list
        if clients.deny_list:
            return self._is_on_the_right_list if clients.allow_list else self._is_not_denied
        return self._allow_list.known if clients.allow_list else None

    def _is_not_denied(self, peer_id: PeerId) -> bool:
        return not self._deny_list.denies(peer_id)

    def _is_on_the_right_list(self, peer_id: PeerId) -> bool | None:
        return False if self._deny_list.denies(peer_id) else self._allow_list.known(peer_id)

    async def ask(self, peer_id: PeerId) -> None:
        """Asks the store, so that the function of ``apply_settings`` knows. Raises StoreUnavailable."""
        await self._allow_list.allows(peer_id)

    def refusal(self, peer_id: PeerId) -> Refusal:
        if self._uses_deny_list and self._deny_list.denies(peer_id):
            return Refusal("client denied", self._deny_list.reason(peer_id))
        return Refusal("your client is not allowed on this tracker")
