"""Fixtures of the store's tests: `store` and `make_store`."""

from tests.store.conftest import make_store, store

__all__ = ["make_store", "store"]
