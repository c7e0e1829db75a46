#!/usr/bin/env bash
# Makes what operators install, in target/packages: a Debian package, an RPM package, a tarball (all
# with manual pages and completions), the list of the crates in the program (SBOM), and checksums.
# Installs cargo-deb, cargo-generate-rpm and cargo-cyclonedx if missing.
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in cargo-deb cargo-generate-rpm cargo-cyclonedx; do
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

cargo build --profile dist -p myriad --features s3

scripts/share.sh target/dist/myriad
share=target/share

cargo deb --quiet --no-build --profile dist -p myriad --output "$out/"

# cargo-deb strips its copy of the program, cargo-generate-rpm does not.
strip --strip-unneeded -o "$share/myriad" target/dist/myriad
# builtin: the same requirements whether the tools of RPM are installed or not.
cargo generate-rpm --auto-req builtin -p crates/myriad --output "$out/"

cp target/dist/myriad packages/myriad.toml packages/myriad.service LICENSE CHANGELOG.md "$out/$name/"
cp -r packages/grafana packages/prometheus "$share/man" "$share/completions" "$out/$name/"
tar -C "$out" --owner=0 --group=0 -czf "$out/$name.tar.gz" "$name"
rm -r "${out:?}/$name"

# It writes a file next to the manifest of each crate.
sbom=myriad-sbom
cargo cyclonedx --quiet --format json --features s3 --override-filename "$sbom"
mv "crates/myriad/$sbom.json" "$out/$name.cdx.json"
find . -name "$sbom.json" -not -path './target/*' -delete

(cd "$out" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
