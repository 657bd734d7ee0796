"""Workers are tested on the same stores as what they call: `store` and `make_store`."""

from tests.store.conftest import make_store, store

__all__ = ["make_store", "store"]
