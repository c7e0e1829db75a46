# Everything else: cargo xtask --help.

.PHONY: run test release packages setup

# Builds the server and starts it on its defaults; prints how to talk to it.
run:
	@scripts/setup.sh build
	@cargo build --release -p myriad
	@scripts/run.sh

# Builds target/dist/myriad, optimized as one program: what operators install.
release:
	@scripts/setup.sh build
	@cargo build --profile dist -p myriad

# Builds target/packages: a Debian and an RPM package, a tarball, the list of crates, and checksums.
packages:
	@scripts/setup.sh build
	@scripts/packages.sh

# Everything that must hold before a change is kept.
test:
	@scripts/setup.sh test
	@cargo xtask ci

# Installs what is missing for both.
setup:
	@scripts/setup.sh test
