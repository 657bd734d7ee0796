#!/bin/sh
# system.sh: prepares the system of the image. It adds an init that forwards signals and reaps zombies,
# and a folder for data that only the tracker's user can enter. It removes pip, and the setuid and setgid bits of files.
# The Dockerfile runs it as root of the image; check.sh runs it too.
set -eu

apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends tini >/dev/null
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin
install -d -m 0700 -o 10001 -g 10001 /data

rm -rf /usr/local/bin/pip* /usr/local/lib/python3.*/ensurepip \
    /usr/local/lib/python3.*/site-packages/pip /usr/local/lib/python3.*/site-packages/pip-* \
    /usr/local/lib/python3.*/site-packages/setuptools* /usr/local/lib/python3.*/site-packages/wheel*
find / \( -path /proc -o -path /sys -o -path /dev \) -prune -o -type f -perm /6000 -exec chmod a-s {} +
