#!/usr/bin/env bash
# systemd_unit.sh PACKAGE SCRATCH: starts systemd as the first process of namespaces, in a copy of this machine's files, and
# installs the Debian package there. Runs as root in mount, network, process and control-group namespaces of its own. What
# is checked runs as a service (the second half) and prints to SCRATCH/out/told.
set -euo pipefail

if [ "$1" != --inside ]; then
    package=$1 work=$2
    mount --make-rprivate /
    mkdir -p "$work/layers" "$work/out"
    mount -t tmpfs tmpfs "$work/layers"
    mkdir "$work"/layers/{upper,work,root}
    root=$work/layers/root
    mount -t overlay overlay "$root" -o "lowerdir=/,upperdir=$work/layers/upper,workdir=$work/layers/work"
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/run"
    mount -t tmpfs tmpfs "$root/tmp"
    rm -rf "$root"/etc/systemd/system/*.wants "$root/etc/fstab"
    mkdir "$root/checked"
    mount --bind "$work/out" "$root/checked"
    cp "$package" "$root/checked/package.deb"
    cp "$0" "$root/checked/script"
    cat >"$root/etc/systemd/system/checked.service" <<'UNIT'
[Service]
Type=oneshot
ExecStart=bash /checked/script --inside
ExecStopPost=systemctl --no-block exit
StandardOutput=file:/checked/told
StandardError=file:/checked/log
UNIT
    # No chroot: a process in one may not make the user namespace that the unit asks for.
    mkdir "$root/old"
    cd "$root"
    pivot_root . old
    umount --lazy /old
    exec env -i container=namespaces PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        /lib/systemd/systemd --system --unit=checked.service --log-target=null --show-status=false
fi

say() { printf '%s\n' "$*"; }
fail() { say "$*"; systemctl status --no-pager swarmkeeper >&2; journalctl --no-pager --lines 50 >&2; exit 1; }
healthy() {
    local tries
    for ((tries = 480; tries; tries--)); do
        swarmkeeper health >/dev/null 2>&1 && return
        sleep 0.25
    done
    fail "the tracker is not healthy"
}
main_process() { systemctl show --property MainPID --value swarmkeeper; }

dpkg -i /checked/package.deb </dev/null >&2 || fail "dpkg -i failed"
healthy
pid=$(main_process)
[ "$(stat -c %U "/proc/$pid")" = swarmkeeper ] || fail "it runs as another user"
for line in 'NoNewPrivs:	1' 'Seccomp:	2' 'CapBnd:	0000000000000000'; do
    grep -qx "$line" "/proc/$pid/status" || fail "its process has not: $line"
done
for folder in lib cache; do
    [ "$(stat -c '%a %U' /var/$folder/swarmkeeper)" = "700 swarmkeeper" ] || fail "others can read its /var/$folder"
done
python3 -c 'import urllib.request
url = "http://127.0.0.1:6969/announce?info_hash=" + "%01" * 20 + "&peer_id=-TR4000-abcdefghijkl&port=6881&left=0&event=started"
reply = urllib.request.urlopen(url).read()
assert b"8:completei1e" in reply, reply' || fail "no announce"
say "installed, started and hardened"

systemctl reload swarmkeeper || fail "no reload"
[ "$(main_process)" = "$pid" ] && systemctl --quiet is-active swarmkeeper || fail "a reload ended it"
say "reloaded"

kill -KILL "$pid"
while [ "$(main_process)" = "$pid" ] || [ "$(main_process)" = 0 ]; do sleep 0.1; done
healthy
swarmkeeper torrent list --json | grep -q 0101010101 || fail "a kill lost data"
say "restarted after a kill"

systemctl stop swarmkeeper
[ "$(systemctl show --property Result --value swarmkeeper)" = success ] || fail "it did not stop by itself"
[ -z "$(pgrep -u swarmkeeper)" ] || fail "it left processes"
say "stopped"
