#!/usr/bin/env bash
# debian_package.sh BASE PACKAGE SCRATCH: installs the Debian package in a copy of a minimal Debian, serves, upgrades, and
# purges it. Runs as root in mount, network and process namespaces of its own. Prints what it has checked.
set -euo pipefail
base=$1 package=$2 work=$3

say() { printf '%s\n' "$*"; }
fail() { say "$*" >&2; [ ! -e "$work/log" ] || cat "$work/log" >&2; exit 1; }
clean=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=readline)
in_root() { chroot "$root" "${clean[@]}" "$@"; }

mkdir "$work/layers"
mount -t tmpfs tmpfs "$work/layers"
mkdir "$work/layers/upper" "$work/layers/work" "$work/layers/root"
root=$work/layers/root
mount -t overlay overlay "$root" -o "lowerdir=$base,upperdir=$work/layers/upper,workdir=$work/layers/work"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
python3 -c 'import fcntl, socket, struct
with socket.socket() as s: fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 1))'

# Every file but those that dpkg and useradd keep about all packages and users.
files() { in_root find / -xdev \( -path /proc -o -path /dev -o -path /tmp -o -path /var/log -o -path /var/lib/dpkg \
    -o -path '/var/cache/*' -o -name '*-' -path '/etc/*' \) -prune -o -print | sort; }

files >"$work/before"
cp "$package" "$root/tmp/swarmkeeper.deb"
in_root dpkg -i /tmp/swarmkeeper.deb </dev/null >"$work/log" 2>&1 || fail "dpkg -i failed"
rm -f "$root/tmp/swarmkeeper.deb"
[ "$(stat -c '%a %U' "$root/etc/swarmkeeper/tracker.toml")" = "640 root" ] || fail "settings can be read by all"
in_root getent passwd swarmkeeper | grep -q ':/usr/sbin/nologin$' || fail "no user swarmkeeper"
unit=$root/lib/systemd/system/swarmkeeper.service
for line in User=swarmkeeper {State,Cache}Directory=swarmkeeper WorkingDirectory=/etc/swarmkeeper NoNewPrivileges=yes; do
    grep -qx "$line" "$unit" || fail "the unit has no $line"
done
! grep -rqIF "$work" "$root/usr/lib/swarmkeeper" || fail "files name the folder where the package was built"
say "installed: $(in_root swarmkeeper --version)"

start() {
    local command tries
    command=$(sed -n 's/^ExecStart=//p' "$unit")
    # shellcheck disable=SC2086 # words of a command
    # shellcheck disable=SC2016 # expanded by the inner shell
    chroot "$root" "${clean[@]}" sh -c 'cd /etc/swarmkeeper && exec "$@"' - setpriv --reuid swarmkeeper --regid swarmkeeper --init-groups --no-new-privs \
        $command >"$work/log" 2>&1 &
    tracker=$!
    for ((tries = 240; tries; tries--)); do
        in_root swarmkeeper health >/dev/null 2>&1 && return
        kill -0 "$tracker" 2>/dev/null || fail "the tracker has ended"
        sleep 0.25
    done
    fail "the tracker is not healthy"
}

stop() {
    kill -TERM "$tracker"
    wait "$tracker" || fail "the tracker ended with status $?"
}

start
in_root python3 -c 'import urllib.request
url = "http://127.0.0.1:6969/announce?info_hash=" + "%01" * 20 + "&peer_id=-TR4000-abcdefghijkl&port=6881&left=0&event=started"
reply = urllib.request.urlopen(url).read()
assert b"8:completei1e" in reply, reply' || fail "no announce"
stop
told=$(in_root swarmkeeper sync check 2>&1) || true # it fails, for want of a setting and not of libraries
[[ $told == *"TRACKER_SITE__DATABASE is not set"* ]] || fail "no libraries for a site's database"
say "served"

# A newer version of the same content, and settings that an operator changed.
echo '# changed' >>"$root/etc/swarmkeeper/tracker.toml"
dpkg-deb --raw-extract "$package" "$work/newer"
sed -i 's/^Version: .*/Version: 99.0/' "$work/newer/DEBIAN/control"
dpkg-deb --root-owner-group -Znone --build "$work/newer" "$root/tmp/newer.deb" >/dev/null
in_root dpkg -i /tmp/newer.deb </dev/null >"$work/log" 2>&1 || fail "the upgrade failed"
rm -f "$root/tmp/newer.deb"
grep -q '^# changed' "$root/etc/swarmkeeper/tracker.toml" || fail "the upgrade replaced settings"
start
in_root swarmkeeper torrent list --json | grep -q 0101010101 || fail "the upgrade lost data"
stop
say "upgraded"

in_root dpkg --remove swarmkeeper </dev/null >"$work/log" 2>&1 || fail "the removal failed"
[ -d "$root/var/lib/swarmkeeper/appendonlydir" ] || fail "the removal deleted data"
mkdir "$root/var/cache/swarmkeeper" # systemd makes it
in_root dpkg --purge swarmkeeper </dev/null >"$work/log" 2>&1 || fail "the purge failed"
files >"$work/after"
diff "$work/before" "$work/after" >"$work/log" || fail "the purge left files"
[ ! -e "$root/var/cache/swarmkeeper" ] && [ ! -e "$root/etc/swarmkeeper" ] || fail "the purge left a cache or settings"
! in_root getent passwd swarmkeeper >/dev/null || fail "the purge left the user"
say "nothing is left"
