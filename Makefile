# The two front doors. Everything else: cargo xtask --help.

.PHONY: run test setup

# Builds the server and starts it on its defaults; prints how to talk to it.
run:
	@scripts/setup.sh build
	@cargo build --release -p myriad
	@scripts/run.sh

# Everything that must hold before a change is kept.
test:
	@scripts/setup.sh test
	@cargo xtask ci

# Installs what is missing for both.
setup:
	@scripts/setup.sh test
