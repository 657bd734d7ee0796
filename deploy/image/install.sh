#!/bin/sh
# install.sh TARGET: builds the tracker from the sources in the working directory. Installs it, with the locked
# dependencies, into TARGET, a virtual environment without pip. PYTHON names the interpreter, WORK a scratch directory,
# LOCK the lock in requirements/: site, with the libraries for a site's database, or seed for the program of volunteers.
# The Dockerfile and check.sh run it, and docs/operations.md installs the systemd service with it.
set -eu

target=$1
python=${PYTHON:-python3}
work=${WORK:-$(mktemp -d)}

"$python" -m venv "$work/build"
pip() { "$work/build/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }

pip install --require-hashes -r requirements/build.txt
# All packages become wheels first: building some needs tools that must not be in the target.
pip wheel --require-hashes --no-deps --no-build-isolation --wheel-dir "$work/wheels" -r "requirements/${LOCK:-site}.txt"
pip wheel --no-deps --no-build-isolation --wheel-dir "$work/wheels" .
"$python" -m venv --without-pip "$target"
rm "$work"/wheels/cmeel-*.whl # a build tool that the allocator's wheel requires and does not need
pip --python "$target/bin/python" install --no-index --no-deps --compile "$work"/wheels/*.whl

rm -rf "$work"
