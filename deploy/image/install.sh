#!/bin/sh
# install.sh TARGET: builds the tracker from the sources in the working directory and installs it, with the locked
# dependencies, into TARGET, a virtual environment without pip. PYTHON names the interpreter, WORK a scratch directory.
# The Dockerfile runs it, and so does check.sh.
set -eu

target=$1
python=${PYTHON:-python3}
work=${WORK:-$(mktemp -d)}

"$python" -m venv "$work/build"
pip() { "$work/build/bin/python" -m pip --quiet --disable-pip-version-check --no-cache-dir "$@"; }

pip install --require-hashes -r requirements/build.txt
# Everything becomes a wheel first: what has to be built needs tools that must not stay in the target.
pip wheel --require-hashes --no-deps --no-build-isolation --wheel-dir "$work/wheels" -r requirements/run.txt
pip wheel --no-deps --no-build-isolation --wheel-dir "$work/wheels" .
"$python" -m venv --without-pip "$target"
rm "$work"/wheels/cmeel-*.whl # builds wheels; the allocator's wheel asks for it, and does without
pip --python "$target/bin/python" install --no-index --no-deps --compile "$work"/wheels/*.whl

rm -rf "$work"
