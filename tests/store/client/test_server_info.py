"""INFO as text by field, from real servers and from bytes."""

from loadtest.servers import Server
from tracker.store.client.connection import Connection, connect
from tracker.store.client.server_info import bytes_in, parse_info, read_info


def test_fields_are_text_and_section_titles_are_left_out() -> None:
    reply = b"# Memory\r\nused_memory:17\r\n\r\nmaxmemory_policy:noeviction\r\ndb0:keys=1,expires=0\r\nodd\r\n"
    info = parse_info(reply)
    assert info == {"used_memory": "17", "maxmemory_policy": "noeviction", "db0": "keys=1,expires=0"}
    assert (bytes_in(info, "used_memory"), bytes_in(info, "maxmemory")) == (17, 0)


async def test_a_server_reports_its_memory_and_its_process(any_server: Server) -> None:
    connection = Connection(connect(any_server.url, connect_timeout=5, timeout=5))
    assert bytes_in(await read_info(connection, "memory"), "used_memory") > 0
    assert any_server.process is not None
    assert int((await read_info(connection))["process_id"]) == any_server.process.pid
    await connection.close()
