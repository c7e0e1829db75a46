#!/usr/bin/env bash
# Compares an RPM package with the Debian package of the same version, then installs, upgrades and
# removes it on a copy of this system, which ends with the script. Needs root, Debian's rpm and cpio,
# and a kernel with overlayfs.
#
#   scripts/test_rpm.sh OLD.rpm NEW.rpm NEW.deb
set -euo pipefail
export LC_ALL=C
[[ $# == 3 ]] || { echo "usage: $0 OLD.rpm NEW.rpm NEW.deb" >&2; exit 2; }
old=$(realpath "$1") new=$(realpath "$2") deb=$(realpath "$3")

if [[ -z ${TEST_RPM_ROOT:-} ]]; then
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    TEST_RPM_ROOT=$root unshare --mount --pid --fork "$0" "$old" "$new" "$deb"
    exit
fi

root=$TEST_RPM_ROOT
# Its own file system, because the upper layer must not be an overlay itself.
mount -t tmpfs tmpfs "$root"
fail() { echo "test_rpm: $*" >&2; exit 1; }

# Both packages have the same files with the same modes and contents, except for what each kind
# does in its own way: compressed manual pages, the folders of the license and of zsh, and how
# symbols are stripped from the program.
mkdir "$root/deb" "$root/rpm"
dpkg-deb --extract "$deb" "$root/deb"
# rpm2cpio reports a failure after the last file, because cargo-generate-rpm does not store the size
# of the payload: the list of files shows whether it is complete.
rpm2cpio "$new" >"$root/rpm.cpio" || true
(cd "$root/rpm" && cpio --quiet --extract --make-directories <"$root/rpm.cpio")
diff <(rpm -qlp "$new") <(cd "$root/rpm" && find . -type f -printf '/%P\n' | sort) ||
    fail "the extracted files are not those of the list"
gunzip "$root"/deb/usr/share/man/man*/*.gz
mv "$root/deb/usr/share/doc/myriad/copyright" "$root/deb/LICENSE"
rm -r "$root/deb/usr/share/doc"
mv "$root/rpm/usr/share/licenses/myriad/LICENSE" "$root/rpm/LICENSE"
rm -r "$root/rpm/usr/share/licenses"
mv "$root/rpm/usr/share/zsh/site-functions" "$root/rpm/usr/share/zsh/vendor-completions"
list() { (cd "$1" && find . -type f -printf '%m %p\n' | sort -k2); }
diff <(list "$root/deb") <(list "$root/rpm") || fail "the packages have different files"
[[ $(list "$root/rpm" | wc -l) -gt 20 ]] || fail "the packages have too few files"
for kind in deb rpm; do
    "$root/$kind/usr/bin/myriad" --version >"$root/$kind.version"
    rm "$root/$kind/usr/bin/myriad" "$root/$kind/LICENSE"
done
cmp "$root/deb.version" "$root/rpm.version"
diff -r "$root/deb" "$root/rpm" || fail "files of the packages differ"
[[ $(rpm -qp --configfiles "$new") == "$(dpkg-deb --info "$deb" conffiles)" ]] ||
    fail "the packages have different configuration files"
for script in preinstall postinstall preuninstall postuninstall; do
    rpm -qp --scripts "$new" 2>/dev/null | grep -q "^$script scriptlet" || fail "no $script scriptlet"
done

mkdir "$root/upper" "$root/work" "$root/system"
mount -t overlay overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" "$root/system"
system=$root/system
mount -t proc proc "$system/proc"
mount --rbind /dev "$system/dev"
mkdir -p "$system/rpms"
cp "$old" "$system/rpms/old.rpm"
cp "$new" "$system/rpms/new.rpm"

inside() { chroot "$system" "$@"; }
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

# The database of RPM is empty on Debian, so dependencies are not checked. --force-debian only
# suppresses a warning.
inside rpm --force-debian --install --nodeps /rpms/old.rpm
[[ $(owner /etc/myriad) == "root:myriad 770" ]] || fail "owner of /etc/myriad"
[[ $(owner /etc/myriad/myriad.toml) == "root:myriad 640" ]] || fail "owner of myriad.toml"
[[ $(owner /var/lib/myriad) == "myriad:myriad 700" ]] || fail "owner of the data"
[[ $(serve SET kept by-upgrade) == OK ]] || fail "SET"
echo 'hz = 20' >>"$system/etc/myriad/myriad.toml"

inside rpm --force-debian --upgrade --nodeps /rpms/new.rpm
grep -q 'hz = 20' "$system/etc/myriad/myriad.toml" || fail "the upgrade replaced myriad.toml"
[[ $(owner /etc/myriad/myriad.toml) == "root:myriad 640" ]] || fail "owner after the upgrade"
[[ $(serve GET kept) == by-upgrade ]] || fail "the upgrade lost data"
inside myriad config check /etc/myriad/myriad.toml | grep -q '^hz = 20 ' || fail "config check"

inside rpm --force-debian --erase myriad
[[ ! -e $system/usr/bin/myriad ]] || fail "the program is still there"
[[ -n $(ls "$system/var/lib/myriad") ]] || fail "removal deleted the data"
grep -q 'hz = 20' "$system/etc/myriad/myriad.toml.rpmsave" || fail "removal deleted myriad.toml"
echo "test_rpm: same files as the Debian package, install, start, upgrade with data, remove: ok"
