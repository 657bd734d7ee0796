"""What the nodes of a cluster say of each other."""

from tracker.store.client.cluster import no_majority, parse_nodes

NODES = """\
a1 127.0.0.1:7001@17001,host1 myself,master - 0 0 1 connected 0-5460 [93-<-b2]
b2 [::1]:7002@17002 master,fail? - 0 0 2 disconnected 5461-10922
c3 127.0.0.1:7003@17003 master{flag} - 0 0 3 connected 10923-16382 16383
d4 127.0.0.1:7004@17004 slave c3 0 0 3 connected
e5 :7005@17005 master - 0 0 0 connected
f6 127.0.0.1:7006@17006 handshake - 0 0 0 connected
"""


def test_nodes_are_read_with_their_roles_slots_and_failures() -> None:
    nodes = {node.node_id: node for node in parse_nodes(NODES.format(flag=""), "10.0.0.9")}
    assert [*nodes] == ["a1", "b2", "c3", "d4", "e5"]
    assert nodes["b2"].address == ("::1", 7002) and nodes["b2"].failing
    assert nodes["c3"].slots == ((10923, 16382), (16383, 16383)) and not nodes["c3"].failing
    assert nodes["d4"].primary_id == "c3" and nodes["e5"].address == ("10.0.0.9", 7005)
    assert [node.node_id for node in nodes.values() if node.slots and not node.primary_id] == ["a1", "b2", "c3"]


def test_there_is_no_majority_if_no_node_reaches_more_than_half_of_the_primaries() -> None:
    most, few = (parse_nodes(NODES.format(flag=flag), "") for flag in ("", ",fail"))
    assert no_majority([few]) == "no majority: 1 of 3 primaries answers"
    assert no_majority([few, most]) == no_majority([most]) == no_majority([]) == ""
    assert no_majority([few[:2]]) == "no majority: 1 of 2 primaries answers"
