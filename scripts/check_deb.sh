#!/usr/bin/env bash
# Makes two versions of the Debian package of target/release/myriad, and tests them with
# test_deb.sh. Installs cargo-deb if missing. Exits with 77 where a copy of the system cannot be
# mounted.
set -euo pipefail
cd "$(dirname "$0")/.."

# What test_deb.sh does first.
may_copy_system() {
    unshare --mount --pid --fork bash -euc '
        root=$(mktemp -d)
        trap "umount \"$root\"; rmdir \"$root\"" EXIT
        mount -t tmpfs tmpfs "$root"
        mkdir "$root/upper" "$root/work" "$root/system"
        options=lowerdir=/,upperdir=$root/upper,workdir=$root/work
        mount -t overlay overlay -o "$options" "$root/system"
        chroot "$root/system" true
        umount "$root/system"'
}

if ! command -v dpkg >/dev/null || ! may_copy_system; then
    echo "check_deb: skipped: a copy of this system cannot be mounted"
    exit 77
fi
if ! command -v cargo-deb >/dev/null; then
    echo "check_deb: installing cargo-deb"
    scripts/retry.sh cargo install --quiet --locked cargo-deb
fi

scripts/share.sh target/release/myriad
out=target/deb
rm -rf "$out"
for version in 0.0.1 0.0.2; do
    cargo deb --quiet --no-build --fast --profile release -p myriad --deb-version "$version" \
        --output "$out/$version.deb"
done
scripts/test_deb.sh "$out/0.0.1.deb" "$out/0.0.2.deb"
