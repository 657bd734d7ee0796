"""Fixtures of the store's tests: `store`, `private` and `make_store`."""

from tests.store.conftest import make_store, private, shards, store

__all__ = ["make_store", "private", "shards", "store"]
