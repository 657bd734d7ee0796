"""Fixtures of the store's tests."""

from tests.store.conftest import make_store, shards, store

__all__ = ["make_store", "shards", "store"]
