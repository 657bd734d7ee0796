#!/bin/sh
# system.sh ROOT: what the image has of the system besides Python: an init that forwards signals and reaps, and a place
# for data that only the tracker's user can look into. ROOT is / in the Dockerfile; check.sh gives another.
set -eu

root=${1%/}

apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends tini
[ -n "$root" ] || rm -rf /var/lib/apt/lists/*
install -d -m 0700 -o 10001 -g 10001 "$root/data"
