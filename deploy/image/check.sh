#!/usr/bin/env bash
# check.sh: does by hand what the Dockerfile does, where no Docker is needed: runs its RUN lines, starts what they
# installed as the image would, and asks it whether it is healthy. As root it runs it as the image's user, on a root
# file system that is read-only but for /data and /tmp; as anybody else, as that user.
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d -p /var/tmp) # not in /tmp, which gets another content below
chmod 755 "$work"
tracker=""
clean_up() {
    # TERM, for its init hands that on; killed itself, it would leave the tracker behind.
    [ -z "$tracker" ] || { kill -TERM "$tracker" 2>/dev/null || true; wait "$tracker" 2>/dev/null || true; }
    rm -rf "$work"
}
trap clean_up EXIT

say() { printf 'image: %s\n' "$*"; }

# An interpreter that the image's user may run too: one below /root is closed to it.
as_user=(setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs)
[ "$(id -u)" = 0 ] || as_user=()
if [ "$(id -u)" = 0 ] && [ -x /usr/bin/python3 ] && ! /usr/bin/python3 -c 'import ensurepip' 2>/dev/null; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3-venv >/dev/null
fi
for candidate in python3 /usr/bin/python3; do
    PYTHON=$(command -v "$candidate") || continue
    (cd / && "${as_user[@]}" "$PYTHON" -I -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))') 2>/dev/null && break
    PYTHON=""
done
[ -n "$PYTHON" ] || { say "no Python here that user 10001 may run"; exit 1; }
export PYTHON

say "installing from wheels into an empty environment"
git ls-files -z -- requirements tracker deploy/image pyproject.toml README.md LICENSE CHANGELOG.md redis.conf \
    | xargs -0 cp --parents -t "$(mkdir -p "$work/src" && echo "$work/src")"
(cd "$work/src" && WORK="$work/scratch" sh deploy/image/install.sh "$work/opt")
rm -rf "$work/src"
tools=$(find "$work"/opt/bin "$work"/opt/lib/python3.*/site-packages -maxdepth 1 -regex '.*/\(\(pip\|setuptools\|wheel\|hatchling\)\([-0-9.].*\)?\|cmeel\(-.*\)?\)')
[ -z "$tools" ] || { say "what builds is in the image: $tools"; exit 1; }
open=$(find "$work/opt" -perm /6022 -not -type l)
[ -z "$open" ] || { say "anybody may write, or gets rights by: $open"; exit 1; }

mkdir -p "$work/data" "$work/tmp"
init=()
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "preparing the system"
    rmdir "$work/data"
    # What the base image brings along, and the image is not to have.
    base=$work/usr/local
    mkdir -p "$base/bin" "$base/lib/python3.13/"{ensurepip,site-packages/pip,site-packages/pip-25.0.dist-info}
    touch "$base/bin/pip3" "$base/bin/python3" "$base/bin/su"
    chmod 4755 "$base/bin/su"
    sh deploy/image/system.sh "$work/"
    [ "$(cd "$base" && find . -name '*pip*' -o -perm /6000)" = "" ] && [ -e "$base/bin/python3" ] && [ "$(stat -c %a "$work/data")" = 700 ] \
        || { say "the system is not as it should be"; find "$base" -ls; exit 1; }
    chmod 1777 "$work/tmp"
    init=(tini -s --)
fi

free_port() { "$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# The variables of the image, and ports of our own.
run=(env -i "PATH=$work/opt/bin:/usr/bin:/bin" HOME=/nonexistent PYTHONDONTWRITEBYTECODE=1
    "TRACKER_DATA__DIRECTORY=$work/data" "TRACKER_HTTP__LISTEN=127.0.0.1:$(free_port)" "TRACKER_ADMIN__LISTEN=127.0.0.1:$(free_port)")
serve=("${run[@]}" "${init[@]}" tracker serve)
if [ "$(id -u)" = 0 ]; then
    if unshare --mount true 2>/dev/null; then
        say "starting it as user 10001 on a read-only root"
        # shellcheck disable=SC2016 # expanded by the inner shell
        serve=(unshare --mount bash -c '
            set -e
            work=$1; shift
            mount --make-rprivate /
            mount --bind "$work/data" "$work/data"
            mount --bind "$work/tmp" /tmp
            mount -o remount,bind,ro /
            if touch /probe 2>/dev/null; then echo "the root file system is writable" >&2; exit 1; fi
            exec "$@"
            ' - "$work" "${as_user[@]}" --inh-caps=-all --bounding-set=-all "${serve[@]}")
    else
        say "starting it as user 10001; no mount namespaces here, so the root file system stays writable"
        serve=("${as_user[@]}" "${serve[@]}")
    fi
fi
(cd "$work/data" && exec "${serve[@]}") >"$work/log" 2>&1 &
tracker=$!

healthy() { (cd / && "${run[@]}" tracker health) >/dev/null 2>&1; }
for _ in $(seq 60); do
    healthy && break
    kill -0 "$tracker" 2>/dev/null || break
    sleep 0.5
done
healthy || { say "it is not healthy"; cat "$work/log"; exit 1; }
say "healthy"
kill -TERM "$tracker"
status=0
wait "$tracker" || status=$?
tracker=""
[ "$status" = 0 ] || { say "it ended with status $status"; cat "$work/log"; exit 1; }
say "stopped, all well"
