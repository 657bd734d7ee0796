"""Fixtures of the store's tests."""

from tests.store.conftest import make_store, store

__all__ = ["make_store", "store"]
