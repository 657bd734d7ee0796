#!/bin/sh
# system.sh ROOT: what the image has of the system besides Python: an init that forwards signals and reaps, and a place
# for data that only the tracker's user can look into; and what it has no more: Python's installers, and rights that come
# with a file. ROOT is / in the Dockerfile; check.sh gives another.
set -eu

root=${1%/}

apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends tini
[ -n "$root" ] || rm -rf /var/lib/apt/lists/*
install -d -m 0700 -o 10001 -g 10001 "$root/data"

rm -rf "$root"/usr/local/bin/pip* "$root"/usr/local/lib/python3.*/ensurepip \
    "$root"/usr/local/lib/python3.*/site-packages/pip "$root"/usr/local/lib/python3.*/site-packages/pip-* \
    "$root"/usr/local/lib/python3.*/site-packages/setuptools* "$root"/usr/local/lib/python3.*/site-packages/wheel*
find "$root/" -xdev -type f -perm /6000 -exec chmod a-s {} +
