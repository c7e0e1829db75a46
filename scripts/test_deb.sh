#!/usr/bin/env bash
# Installs, upgrades, removes and purges a Debian package on a copy of this system, which ends with
# the script. Needs root, and a kernel with overlayfs.
#
#   scripts/test_deb.sh OLD.deb NEW.deb
set -euo pipefail
[[ $# == 2 ]] || { echo "usage: $0 OLD.deb NEW.deb" >&2; exit 2; }
old=$(realpath "$1") new=$(realpath "$2")

if [[ -z ${TEST_DEB_ROOT:-} ]]; then
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    TEST_DEB_ROOT=$root unshare --mount --pid --fork "$0" "$old" "$new"
    exit
fi

root=$TEST_DEB_ROOT
# Its own file system, because the upper layer must not be an overlay itself.
mount -t tmpfs tmpfs "$root"
mkdir "$root/upper" "$root/work" "$root/system"
mount -t overlay overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" "$root/system"
system=$root/system
mount -t proc proc "$system/proc"
mount --rbind /dev "$system/dev"
mkdir -p "$system/debs"
cp "$old" "$system/debs/old.deb"
cp "$new" "$system/debs/new.deb"

inside() { chroot "$system" "$@"; }
fail() { echo "test_deb: $*" >&2; exit 1; }
owner() { inside stat -c '%U:%G %a' "$1"; }

# serve COMMAND...: runs a command of redis-cli on a server that starts and ends with it.
serve() {
    local ready id
    coproc SERVER { exec chroot "$system" setpriv --reuid=myriad --regid=myriad \
        --clear-groups /usr/bin/myriad serve \
        --config /etc/myriad/myriad.toml --resp 127.0.0.1:0 2>/dev/null; }
    id=$SERVER_PID
    IFS= read -r -t 20 ready <&"${SERVER[0]}" || fail "the server does not start"
    inside redis-cli -p "${ready##*:}" "$@"
    kill "$id"
    wait "$id" || fail "the server fails at its end"
}

inside dpkg -i /debs/old.deb >/dev/null
[[ $(owner /etc/myriad/myriad.toml) == "root:myriad 640" ]] || fail "owner of myriad.toml"
[[ $(owner /var/lib/myriad) == "myriad:myriad 700" ]] || fail "owner of the data"
[[ $(serve SET kept by-upgrade) == OK ]] || fail "SET"
echo 'hz = 20' >>"$system/etc/myriad/myriad.toml"

inside dpkg -i /debs/new.deb >/dev/null
grep -q 'hz = 20' "$system/etc/myriad/myriad.toml" || fail "the upgrade replaced myriad.toml"
[[ $(serve GET kept) == by-upgrade ]] || fail "the upgrade lost data"
inside myriad config check /etc/myriad/myriad.toml | grep -q '^hz = 20 ' || fail "config check"

for file in myriad/prometheus/myriad.rules.yml myriad/grafana/myriad-overview.json \
    man/man1/myriad-serve.1.gz man/man5/myriad.toml.5.gz bash-completion/completions/myriad \
    zsh/vendor-completions/_myriad fish/vendor_completions.d/myriad.fish; do
    [[ -s $system/usr/share/$file ]] || fail "/usr/share/$file"
done

inside dpkg -r myriad >/dev/null
[[ ! -e $system/usr/bin/myriad ]] || fail "the program is still there"
[[ -e $system/etc/myriad/myriad.toml && -n $(ls "$system/var/lib/myriad") ]] ||
    fail "removal deleted the configuration or the data"

inside dpkg -P myriad >/dev/null
[[ ! -e $system/etc/myriad && ! -e $system/var/lib/myriad ]] || fail "purge left files"
! inside getent passwd myriad >/dev/null || fail "purge left the user"
echo "test_deb: install, start, upgrade with data, remove and purge: ok"
