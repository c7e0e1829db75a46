"""What the Python suites have in common: tests register themselves, are run one by one, and are counted."""

import functools
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

TESTS = []
# A busy machine may halt a process for longer than the seconds of the defaults.
PATIENCE_S = 90


def test(body):
    TESTS.append(body)
    return body


def run(call=lambda body: body()):
    """Runs each test by `call`. Returns the exit status."""
    return run_named((body.__name__, functools.partial(call, body)) for body in TESTS)


def run_named(tests):
    """Runs tests, each a name and a function: all, or those whose names contain a word of the command line."""
    wanted = sys.argv[1:]
    passed = failed = 0
    for name, body in tests:
        if wanted and not any(word in name for word in wanted):
            continue
        started = time.monotonic()
        try:
            body()
            passed += 1
            print(f"ok {name} ({time.monotonic() - started:.1f} s)", flush=True)
        except Exception:  # whatever a test raises is its failure, and the next one runs
            failed += 1
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def in_folder(body):
    """Calls a test with an empty folder, which is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        body(pathlib.Path(folder))


def equal(got, wanted):
    if got != wanted:
        raise AssertionError(f"got {got!r:.500}, wanted {wanted!r:.500}")


def refused(kind, text, call, *args, **options):
    """Checks that a call fails with an error of this kind whose text contains this one."""
    try:
        got = call(*args, **options)
    except kind as error:
        if text not in str(error):
            raise AssertionError(f"refused with {error!r}, wanted {text!r}") from error
        return
    raise AssertionError(f"got {got!r}, wanted an error with {text!r}")


def wait_for(condition, what, errors=()):
    """Waits until a condition holds. These errors mean that it does not hold yet."""
    started = time.monotonic()
    while True:
        try:
            found = condition()
            if found:
                return found
        except errors as error:
            found = error
        if time.monotonic() - started > PATIENCE_S:
            raise AssertionError(f"{what}: {found}")
        time.sleep(0.05)


class Certificates:
    """An authority, `ca`, and certificates signed by it, in PEM files made by the openssl command."""

    def __init__(self, directory, *names):
        self.directory = pathlib.Path(directory)
        (self.directory / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        self.sign_itself("ca")
        for name in names:
            self.openssl("req", "-subj", f"/CN={name}", *self.new_key(name), "-out", f"{name}.csr")
            self.openssl(
                *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
                *("-CAcreateserial", "-extfile", "names", "-out", f"{name}.pem"),
            )

    def sign_itself(self, name):
        self.openssl("req", "-x509", "-subj", f"/CN={name}", *self.new_key(name), "-out", f"{name}.pem")

    def new_key(self, name):
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
        return (*curve, "-nodes", "-keyout", f"{name}.key")

    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True)

    def path(self, name):
        return str(self.directory / name)
