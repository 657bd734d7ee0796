#!/bin/sh
# build.sh FOLDER: builds a Debian package from the sources in the working directory into FOLDER. It is for the Debian
# release, the architecture and the Python version of this machine. PYTHON names the interpreter, by default Debian's.
# The tracker and its locked dependencies are in /usr/lib/swarmkeeper, a virtual environment of Debian's python3.
set -eu

out=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
python=${PYTHON:-/usr/bin/python3}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
home=/usr/lib/swarmkeeper

PYTHON=$python sh deploy/image/install.sh "$root$home"
# Nothing in it names the folder where it was built.
find "$root$home" -name __pycache__ -prune -exec rm -rf {} +
find "$root$home/bin" -type f ! -name tracker ! -name 'python*' -delete
rm -f "$root$home"/bin/[Aa]ctivate*
grep -rlIF "$root" "$root$home" | xargs -r sed -i "s|$root||g"
"$python" -m compileall -q -s "$root" --invalidation-mode unchecked-hash "$root$home/lib" >/dev/null

install -D -m 644 "$here/tracker.toml" "$root/etc/swarmkeeper/tracker.toml"
install -D -m 755 "$here/swarmkeeper.sh" "$root/usr/bin/swarmkeeper"
mkdir -p "$root/lib/systemd/system"
sed -e '/^#/d' -e "s|^ExecStart=.*|ExecStart=$home/bin/tracker --config /etc/swarmkeeper/tracker.toml serve|" \
    -e 's/^\(User\|StateDirectory\|RuntimeDirectory\|CacheDirectory\|ConfigurationDirectory\)=tracker$/\1=swarmkeeper/' \
    -e 's|^WorkingDirectory=.*|WorkingDirectory=/etc/swarmkeeper|' -e '/^Environment=TRACKER_DATA__DIRECTORY/d' \
    deploy/systemd/tracker.service >"$root/lib/systemd/system/swarmkeeper.service"
for file in LICENSE CHANGELOG.md; do install -D -m 644 "$file" "$root/usr/share/doc/swarmkeeper/$file"; done

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' tracker/__init__.py)
mkdir "$root/DEBIAN"
"$python" -c 'import sys
major, minor = sys.version_info[:2]
print(f"""Package: swarmkeeper
Version: {sys.argv[1]}
Architecture: {sys.argv[2]}
Maintainer: swarmkeeper contributors <root@localhost>
Installed-Size: {sys.argv[3]}
Depends: python3 (>= {major}.{minor}), python3 (<< {major}.{minor + 1}), libc6, passwd, ca-certificates
Section: net
Priority: optional
Description: async BitTorrent tracker whose state is a readable Redis layout
 It serves announces and scrapes over HTTP and UDP, and has a dashboard,
 an API and a command line. It brings its own store, a private Valkey.""")' \
    "$version" "$(dpkg --print-architecture)" "$(du -sk "$root" | cut -f1)" >"$root/DEBIAN/control"
echo /etc/swarmkeeper/tracker.toml >"$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do install -m 755 "$here/$script" "$root/DEBIAN/$script"; done
chmod -R go-w "$root"
dpkg-deb --root-owner-group -Zxz --build "$root" "$out" >/dev/null
