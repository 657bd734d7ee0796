#!/bin/sh
# The tracker's command line with the settings of the service, for root as the service's user.
set -- /usr/lib/swarmkeeper/bin/tracker --config /etc/swarmkeeper/tracker.toml "$@"
[ "$(id -u)" != 0 ] || set -- setpriv --reuid swarmkeeper --regid swarmkeeper --init-groups "$@"
exec "$@"
