#!/usr/bin/env bash
# check.sh: follows the Dockerfile without Docker, then starts the result like the image and checks its health.
# In place of the base image each stage gets the host's system folders, below overlays in memory and in a mount
# namespace: nothing is installed into the host, and no file of it changes. The tracker runs in a network namespace.
# It needs root. Without root or namespaces it checks less, and prints what it leaves out.
# `check.sh seed` follows deploy/seed/Dockerfile instead, and lets the program of volunteers ask a tracker that is not
# there. It needs root and namespaces. tests/deploy/test_seed_container.py runs the same command with a tracker.
set -euo pipefail
self=$(realpath "$0")
cd "${self%/deploy/image/check.sh}"

readonly NO_NAMESPACES=75
readonly HEALTHY_WITHIN=120 STOPPED_WITHIN=20 # half seconds; Docker kills after 10 seconds
readonly IMAGE_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
readonly BASE_LIB=/usr/local/lib/python3.13
readonly LOOPBACK_UP='
import fcntl, socket, struct
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 1))
'

say() { printf 'image: %s\n' "$*"; }
fail() { say "$*" >&2; exit 1; }

# The interpreter used instead of the base image's, of the same version if installed.
find_python() {
    local candidate
    for candidate in "${PYTHON:-}" "python$(sed -n 's/^ARG PYTHON_VERSION=//p' Dockerfile)" python3 /usr/bin/python3; do
        "$candidate" -I -c 'import os, sys, ensurepip
if sys.version_info < (3, 11): sys.exit(1)
print(os.path.realpath(sys.executable))' 2>/dev/null && return
    done
    fail "no Python 3.11 or newer with its venv module"
}

# Copies the build context, as .dockerignore limits it, to folder $1.
copy_context() {
    mkdir -p "$1"
    sed -n 's/^!//p' .dockerignore | tar --create --exclude=__pycache__ --files-from=- | tar --extract --no-same-owner -C "$1"
}

check_installed() {
    local found
    found=$(find "$1"/bin "$1"/lib/python3.*/site-packages -maxdepth 1 \
        -regex '.*/\(\(pip\|setuptools\|wheel\|hatchling\)\([-0-9.].*\)?\|cmeel\(-.*\)?\)')
    [ -z "$found" ] || fail "build tools are in the image: $found"
    found=$(find "$1" -perm /6022 -not -type l)
    [ -z "$found" ] || fail "writable by all users, or setuid: $found"
}

# Starts "${serve[@]}", waits until "${health[@]}" succeeds, and stops it as Docker does.
check_serving() {
    local log=$1 status=0 tries
    "${serve[@]}" >"$log" 2>&1 &
    tracker=$!
    for ((tries = HEALTHY_WITHIN; tries; tries--)); do
        "${health[@]}" >/dev/null 2>&1 && break
        kill -0 "$tracker" 2>/dev/null || tries=1
        sleep 0.5
    done
    ((tries)) || { cat "$log"; fail "not healthy"; }
    say "healthy"
    kill -TERM "$tracker"
    for ((tries = STOPPED_WITHIN; tries; tries--)); do
        kill -0 "$tracker" 2>/dev/null || break
        sleep 0.5
    done
    ((tries)) || { cat "$log"; fail "still running 10 seconds after SIGTERM"; }
    wait "$tracker" || status=$?
    tracker=""
    ((status == 0)) || { cat "$log"; fail "ended with status $status"; }
    say "stopped"
}

# A root for stage $1: the host's system folders, each below an overlay in memory. Other folders, such as /home, are
# left out. The build stage sees the caller's home directory too, for pip's configuration and cache.
new_root() {
    local folder prefix file
    root=$work/$1/root layers=$work/$1/layers
    mkdir -p "$root"
    mount -t tmpfs -o mode=755 tmpfs "$root"
    for folder in /bin /etc /lib* /opt /sbin /usr /var; do
        if [ -L "$folder" ]; then
            cp -a "$folder" "$root"
        elif [ -d "$folder" ]; then
            overlay "$folder" || exit "$NO_NAMESPACES"
        fi
    done
    for file in /etc/hosts /etc/resolv.conf; do # both may be mounts or links
        rm -f "$root$file" && cp "$file" "$root$file"
    done
    mkdir -p "$root"/{dev,proc,run}
    install -d -m 1777 "$root/tmp"
    mount --rbind /proc "$root/proc"
    mount --rbind /dev "$root/dev"
    [ "$1" = final ] || [ -d "$root$HOME" ] || overlay "$HOME" || true
    if [ ! -x "$root$python" ]; then
        prefix=$("$python" -I -c 'import sys; print(sys.base_prefix)')
        mkdir -p "$root$prefix" && mount --bind "$prefix" "$root$prefix" && mount -o remount,bind,ro "$root$prefix"
    fi
    rm -rf "$root/opt/tracker"
    # Parts of a base image: the image must remove the first three and keep the last.
    mkdir -p "$root$BASE_LIB"/{ensurepip,site-packages/pip}
    install -m 4755 /dev/null "$root/usr/local/bin/su"
    install -m 755 /dev/null "$root/usr/local/bin/kept"
}

overlay() {
    mkdir -p "$root$1" "$layers$1"/{upper,work}
    mount -t overlay overlay "$root$1" \
        -o "lowerdir=$1,upperdir=$layers$1/upper,workdir=$layers$1/work" 2>/dev/null
}

copy() {
    local from=$work/context target name
    if [[ $1 == --from=* ]]; then from=$work/${1#--from=}/root && shift; fi
    target=${!#}
    [[ $target == /* ]] || target=$directory/$target
    for name in "${@:1:$#-1}"; do
        if [ -d "$from/$name" ]; then
            mkdir -p "$root$target" && cp -a "$from/$name/." "$root$target"
        else
            mkdir -p "$root${target%/*}" && cp -a "$from/$name" "$root$target"
        fi
    done
}

# Follows the Dockerfile, instruction by instruction. Leaves the last stage in $root, and what it sets in globals.
build() {
    local instruction words
    local -a list
    while read -r instruction words; do
        read -ra list <<<"$words"
        case $instruction in
            FROM)
                stage=${list[2]:-final} # FROM base AS stage
                say "stage $stage"
                new_root "$stage"
                directory=/ user="" variables=() entrypoint=() command=() health=()
                ;;
            WORKDIR) directory=$words && mkdir -p "$root$directory" ;;
            COPY) copy "${list[@]}" ;;
            RUN) chroot "$root" env -C "$directory" "${variables[@]}" "PYTHON=$python" sh -c "$words" || fail "failed: RUN $words" ;;
            ENV) eval "variables+=($words)" ;;
            USER) user=$words ;;
            ENTRYPOINT) mapfile -t entrypoint < <(words_of_json "$words") ;;
            CMD) mapfile -t command < <(words_of_json "$words") ;;
            HEALTHCHECK) mapfile -t health < <(words_of_json "${words##* CMD }") ;;
            ARG | LABEL | EXPOSE | VOLUME | STOPSIGNAL) ;;
            *) fail "cannot follow: $instruction $words" ;;
        esac
    done < <(sed -e '/^#/d' -e '/^$/d' -e ':join' -e '/\\$/{' -e 'N;s/\\\n *//;b join' -e '}' "$dockerfile")
}

words_of_json() { "$python" -I -c 'import json, sys; print(*json.loads(sys.argv[1]), sep="\n")' "$1"; }

# In the namespaces, as their root.
check_image() {
    export PATH=$IMAGE_PATH
    mount -t tmpfs -o mode=755 tmpfs "$work"
    copy_context "$work/context"
    build
    check_installed "$root/opt/tracker"
    [ "$image" = seed ] || check_system
    local folder
    say "starting as user $user on a read-only root"
    mount --bind "$root/data" "$root/data"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    for folder in "$layers"/*/ "$layers"; do
        folder=$root/${folder#"$layers"}
        ! mountpoint -q "$folder" || mount -o remount,bind,ro "$folder"
    done
    ! touch "$root/probe" 2>/dev/null || fail "the root file system is writable"
    local -a as_user=(chroot "$root" env -i -C "$directory" "${variables[@]}" HOME=/ TINI_SUBREAPER=
        setpriv --reuid "${user%:*}" --regid "${user#*:}" --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all)
    if [ "$image" = seed ]; then
        check_asking
        return
    fi
    # shellcheck disable=SC2016 # expanded by the inner shell
    serve=(unshare --net sh -c '"$0" -I -c "$1" && shift && exec "$@"' "$python" "$LOOPBACK_UP"
        "${as_user[@]}" "${entrypoint[@]}" "${command[@]}")
    health=(eval 'nsenter --net="/proc/$tracker/ns/net"' "${as_user[*]@Q}" "${health[*]@Q}")
    check_serving "$work/log"
}

# What system.sh did.
check_system() {
    local found
    found=$(find "$root$BASE_LIB" -maxdepth 2 -name '*pip*'; find "$root"/{etc,opt,usr,var} -type f -perm /6000)
    [ -z "$found" ] || fail "pip, or setuid or setgid files, are in the image: $found"
    [ -e "$root/usr/local/bin/kept" ] || fail "system.sh removes too much"
    [ "$(stat -c '%a %u:%g' "$root/data")" = "700 $user" ] || fail "/data does not belong to the image's user alone"
}

# The program of volunteers loads libtorrent, reads its passkey and its folder, and finds no tracker. It has no network.
check_asking() {
    local said status=0
    install -m 400 -o "${user%:*}" -g "${user#*:}" /dev/stdin "$root/tmp/passkey" <<<0123456789abcdef0123
    said=$(unshare --net "${as_user[@]}" "${entrypoint[@]}" --once --url=http://127.0.0.1:9/seeds --space=1MB \
        --client=internal:/data --state=/data/state.json --passkey-file=/tmp/passkey 2>&1) || status=$?
    [[ $status == 1 && $said == *"the tracker does not answer"* ]] || fail "status $status: $said"
    [ -d "$root/data/.swarmkeeper" ] || fail "the client did not write to /data"
    say "asked for torrents"
}

check_without_namespaces() {
    say "no root, or no mount namespaces. Not checked: the Dockerfile's order, system.sh, the image's user, the read-only root" >&2
    copy_context "$work/src"
    (cd "$work/src" && PYTHON=$python WORK=$work/scratch sh deploy/image/install.sh "$work/opt")
    check_installed "$work/opt"
    mkdir "$work/data"
    local -a run=(env -i -C "$work/data" "PATH=$work/opt/bin:$IMAGE_PATH" HOME=/nonexistent PYTHONDONTWRITEBYTECODE=1
        "TRACKER_DATA__DIRECTORY=$work/data" "TRACKER_HTTP__LISTEN=127.0.0.1:$(free_port)"
        "TRACKER_ADMIN__LISTEN=127.0.0.1:$(free_port)")
    serve=("${run[@]}" tracker serve) health=("${run[@]}" tracker health)
    check_serving "$work/log"
}

free_port() { "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

python=$(find_python)
inside=""
if [ "${1:-}" = --inside ]; then inside=$2 && shift 2; fi
image=${1:-tracker} dockerfile=Dockerfile
[ "$image" != seed ] || dockerfile=deploy/seed/Dockerfile
if [ "$inside" ]; then
    work=$inside
    check_image
    exit
fi

work=$(mktemp -d -p /var/tmp)
tracker=""
trap '[ -z "$tracker" ] || kill -KILL "$tracker" 2>/dev/null || true; rm -rf "$work"' EXIT
namespaces=(unshare --mount --pid --fork --kill-child --mount-proc)
status=$NO_NAMESPACES
if [ "$(id -u)" = 0 ] && "${namespaces[@]}" true 2>/dev/null; then
    status=0
    PYTHON=$python "${namespaces[@]}" bash "$self" --inside "$work" "$image" || status=$?
fi
if ((status == NO_NAMESPACES)) && [ "$image" = seed ]; then
    fail "no root, or no mount namespaces"
elif ((status == NO_NAMESPACES)); then
    check_without_namespaces
else
    exit "$status"
fi
