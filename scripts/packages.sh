#!/usr/bin/env bash
# Makes what operators install, in target/packages: a Debian package, a tarball, the list of the
# crates in the program (SBOM), and checksums. Installs cargo-deb and cargo-cyclonedx if missing.
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in cargo-deb cargo-cyclonedx; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "packages: installing $tool"
        scripts/retry.sh cargo install --quiet --locked "$tool"
    fi
done

out=target/packages
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
name=myriad-$version-$(uname -m)-linux
rm -rf "$out"
mkdir -p "$out/$name"

cargo build --profile dist -p myriad
cargo deb --quiet --no-build --profile dist -p myriad --output "$out/"

cp target/dist/myriad packages/myriad.toml packages/myriad.service LICENSE CHANGELOG.md "$out/$name/"
cp -r packages/grafana packages/prometheus "$out/$name/"
tar -C "$out" --owner=0 --group=0 -czf "$out/$name.tar.gz" "$name"
rm -r "${out:?}/$name"

# It writes a file next to the manifest of each crate.
sbom=myriad-sbom
cargo cyclonedx --quiet --format json --override-filename "$sbom"
mv "crates/myriad/$sbom.json" "$out/$name.cdx.json"
find . -name "$sbom.json" -not -path './target/*' -delete

(cd "$out" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
