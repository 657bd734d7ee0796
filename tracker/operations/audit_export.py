"""Entries of the audit log as CSV and as JSON lines."""

from collections.abc import AsyncIterator, Iterable

from tracker.operations import export as lines
from tracker.store.access.audit import Audit, AuditEntry, AuditFilter, row_of

COLUMNS = ("id", "at", "actor", "token_id", "role", "way", "address", "operation", "objects", "counts", "details")
_PAGE = 500


async def entries(audit: Audit, wanted: AuditFilter, limit: int) -> AsyncIterator[list[AuditEntry]]:
    """The newest ``limit`` entries that match, in pages."""
    cursor, left = "", limit
    while left:
        page, cursor = await audit.page(wanted, cursor, min(left, _PAGE))
        if page:
            yield page
        left -= len(page)
        if not cursor:
            return


def json_lines(found: Iterable[AuditEntry]) -> bytes:
    return lines.json_lines(map(row_of, found))


def csv_of(found: Iterable[AuditEntry], *, header: bool = True) -> str:
    return lines.csv_lines(COLUMNS, map(row_of, found), header=header)
