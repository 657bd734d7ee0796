"""swarmkeeper: an async BitTorrent tracker whose state is a readable Redis layout.

The rings, outside in; imports point down only (tests/test_architecture.py holds it):

    cli, service          words and wiring
    frontends, workers    sockets; loops that run until cancelled
    announce              decisions: policy, one store call, the reply
    store                 the only Redis commands (store/lua: one file per verb)
    wire                  pure bytes <-> nouns, beside the rings
    bittorrent, errors    the nouns everybody shares

The path of an announce, one direction, one round trip to the store: frontends/http/fast_protocol.py ->
wire/http_request.py parse -> announce.py -> store/swarms/swarms.py -> lua/announce.lua -> back out through
wire/http_reply.py encode.
"""

__version__ = "0.1.0"
