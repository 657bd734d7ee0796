"""swarmkeeper: an async BitTorrent tracker whose state is a readable Redis layout.

The layers, top first; a module imports only from lower layers (tests/test_architecture.py checks this):

    cli, app                     the command line; the processes
    admin, frontends, workers    servers; coroutines that run until cancelled
    core                         decisions on announces and scrapes
    store                        all Redis commands (store/lua: the scripts)
    wire                         parses and encodes bytes, without side effects
    bittorrent, errors           types and errors that all layers share

docs/map.md lists all folders, and the path of an announce with its one round trip to the store.
"""

__version__ = "0.1.0"
