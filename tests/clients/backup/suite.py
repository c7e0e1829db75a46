"""`myriad backup` and `myriad restore` with a bucket of s3proxy, and with TLS."""

import contextlib
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile

import redis

from harness import Certificates, equal, run, test, wait_for
from ports import free_port

MYRIAD = os.environ["MYRIAD"]
JARS = pathlib.Path(sys.prefix) / "jars" / "*"
KEY, SECRET = "key", "secret"
BUCKET = "backups"
# More than two parts of an upload.
LARGE_BYTES = 40 << 20
PATIENCE_S = 60


def contains(text, part):
    if part not in text:
        raise AssertionError(f"{part!r} is not in {text!r:.1000}")


class Server:
    """A server with all protocols that a backup can use."""

    def __init__(self, directory, *options):
        command = [MYRIAD, "serve", "--dir", str(directory), "--resp", "127.0.0.1:0", *options]
        command += ["--reactors", "1", "--enable-debug-command", "yes"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        ready = self.process.stdout.readline().split()
        if ready[:1] != ["ready"]:
            raise SystemExit(f"the server does not start: {ready}")
        listeners = dict(word.split("=") for word in ready[1:])
        self.places = {name: at for name, at in listeners.items()}
        port = int(self.places["resp"].rsplit(":", 1)[1])
        self.redis = redis.Redis(port=port, socket_timeout=PATIENCE_S)

    def digest(self):
        return self.redis.execute_command("DEBUG DIGEST")

    def stop(self):
        self.process.kill()
        self.process.wait()


class Bucket:
    """A directory that s3proxy serves as a bucket, with keys, over HTTP or HTTPS."""

    def __init__(self, directory, certificates=None):
        self.directory = directory
        (directory / BUCKET).mkdir(parents=True, exist_ok=True)
        port = free_port()
        scheme, self.certificates = "https" if certificates else "http", certificates
        properties = {
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": KEY,
            "s3proxy.credential": SECRET,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": directory,
        }
        if certificates:
            properties["s3proxy.secure-endpoint"] = f"https://127.0.0.1:{port}"
            properties["s3proxy.keystore-path"] = certificates.path("one.p12")
            properties["s3proxy.keystore-password"] = SECRET
        else:
            properties["s3proxy.endpoint"] = f"http://127.0.0.1:{port}"
        path = directory / f"{scheme}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        self.endpoint = f"{scheme}://localhost:{port}"
        # 64 MiB, so that a few suites at a time have memory.
        command = ["java", "-Xmx64m", "-DLOG_LEVEL=warn", "-cp", JARS, "org.gaul.s3proxy.Main"]
        self.process = subprocess.Popen(
            [*command, "--properties", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(lambda: is_open(port), "s3proxy does not start")

    def environment(self, secret=SECRET):
        variables = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
        }
        if self.certificates:
            variables["SSL_CERT_FILE"] = self.certificates.path("ca.pem")
        return {**os.environ, **variables}

    def files(self, prefix):
        return sorted(path.name for path in (self.directory / BUCKET / prefix).glob("*"))

    def stop(self):
        self.process.terminate()
        self.process.wait()


def is_open(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


class Group:
    """A server, a bucket, and the runs of the program between them."""

    def __init__(self, root):
        self.root = root
        self.certificates = Certificates(root, "one")
        self.certificates.sign_itself("other")
        self.certificates.openssl(
            *("pkcs12", "-export", "-in", "one.pem", "-inkey", "one.key"),
            *("-passout", f"pass:{SECRET}", "-out", "one.p12"),
        )
        path = self.certificates.path
        self.server = Server(
            root / "data",
            *("--resp-tls", "127.0.0.1:0", "--tls-ca-cert-file", path("ca.pem")),
            *("--tls-cert-file", path("one.pem"), "--tls-key-file", path("one.key")),
        )
        self.bucket = Bucket(root / "buckets")

    def run(self, arguments, status=0, environment=None):
        environment = environment or self.bucket.environment()
        done = subprocess.run(
            [MYRIAD, *arguments], env=environment, capture_output=True, text=True, timeout=300
        )
        if done.returncode != status:
            raise AssertionError(f"{arguments}: {done.returncode}: {done.stderr} {done.stdout}")
        return done.stdout + done.stderr

    def back_up(self, place, *options, source="resp", **more):
        return self.run(["backup", self.server.places[source], "--to", place, *options], **more)

    @contextlib.contextmanager
    def restored(self, place, *options, **more):
        target = self.root / "restored"
        shutil.rmtree(target, ignore_errors=True)
        self.run(["restore", place, "--to", str(target), *options], **more)
        server = Server(target)
        try:
            yield server
        finally:
            server.stop()

    def stop(self):
        self.server.stop()
        self.bucket.stop()


def address(prefix):
    return f"s3://{BUCKET}/{prefix}"


@test
def a_bucket_has_full_and_incremental_backups(group):
    server, place = group.server, address("one/two")
    pipe = server.redis.pipeline(transaction=False)
    for number in range(LARGE_BYTES >> 20):
        pipe.set(f"large:{number}", random.randbytes(1 << 20))
    pipe.hset("h", mapping={"f": "v"})
    pipe.execute()
    contains(group.back_up(place), "file 1: full")
    server.redis.set("later", "1")
    first = server.redis.info("replication")["master_repl_offset"]
    contains(group.back_up(place + "/"), "file 2: incremental")
    server.redis.set("later", "2")
    contains(group.back_up(place), "file 3: incremental")
    contains(group.back_up(place), "nothing new")
    names = [f"backup-0000000{number}.myb" for number in (1, 2, 3)]
    equal(group.bucket.files("one/two"), [*names, "newest"])
    contains(group.run(["restore", place, "--verify"]), "the backup is intact")
    with group.restored(place) as restored:
        equal(restored.digest(), server.digest())
    with group.restored(place, "--until", str(first)) as restored:
        equal(restored.redis.get("later"), b"1")
    server.redis.flushall()


@test
def damage_in_a_bucket_is_found(group):
    place, folder = address("damaged"), group.bucket.directory / BUCKET / "damaged"
    for number in range(3):
        group.server.redis.set("k", number)
        group.back_up(place)
    name = folder / "backup-00000002.myb"
    whole = name.read_bytes()
    to = ["--to", str(group.root / "never")]
    for at in range(0, len(whole), 97):
        name.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        contains(group.run(["restore", place, *to], status=1), "backup-00000002.myb")
    name.write_bytes(whole[: len(whole) // 2])
    contains(group.run(["restore", place, *to], status=1), "backup-00000002.myb is damaged")
    name.unlink()
    contains(group.run(["restore", place, *to], status=1), "backup-00000002.myb is missing")
    equal((group.root / "never").exists(), False)
    name.write_bytes(whole)
    with group.restored(place) as restored:
        equal(restored.redis.get("k"), b"2")


@test
def a_full_backup_removes_older_ones(group):
    for place, files in (
        (address("kept"), lambda: group.bucket.files("kept")),
        (str(group.root / "kept"), lambda: sorted(os.listdir(group.root / "kept"))),
    ):
        for number in range(3):
            group.server.redis.set("k", f"full {number}")
            group.back_up(place, "--full", "--keep", "2")
            group.server.redis.set("k", f"incremental {number}")
            group.back_up(place, "--keep", "2")
        names = [name for name in files() if name.startswith("backup-")]
        equal(names, [f"backup-0000000{number}.myb" for number in (3, 4, 5, 6)])
        text = group.run(["restore", place, "--verify"])
        contains(text, "the backup is intact")
        equal(text.count("files: 2,"), 2)
        with group.restored(place) as restored:
            equal(restored.redis.get("k"), b"incremental 2")


@test
def one_process_at_a_time_follows_into_a_bucket(group):
    place = address("followed")
    command = [MYRIAD, "backup", group.server.places["resp"], "--to", place]
    options = {"env": group.bucket.environment(), "stderr": subprocess.PIPE, "text": True}
    group.server.redis.set("k", "followed")
    with ended(subprocess.Popen([*command, "--follow"], **options)) as follower:
        wait_for(lambda: "LOCK" in group.bucket.files("followed"), "the bucket is not locked")
        with ended(subprocess.Popen(command, **options)) as second:
            owner = f"process {follower.pid} of {socket.gethostname()}"
            contains(second.stderr.readline(), f"{owner} has {place}/LOCK; waiting")
            second.terminate()
            second.wait(timeout=PATIENCE_S)
        # It reports its progress when it has the copy.
        wait_for(lambda: "position" in follower.stderr.readline(), "no progress is reported")
        follower.terminate()
        equal(follower.wait(timeout=PATIENCE_S), 0)
    equal(group.bucket.files("followed"), ["backup-00000001.myb", "newest"])
    with group.restored(place) as restored:
        equal(restored.redis.get("k"), b"followed")


@contextlib.contextmanager
def ended(process):
    """Ends the process whatever happens."""
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@test
def refusals_of_a_bucket_are_shown(group):
    place = address("refused")
    wrong = group.bucket.environment(secret="wrong")
    contains(group.back_up(place, status=1, environment=wrong), f"could not write {place}/LOCK")
    contains(group.run(["restore", place, "--verify"], status=1), "has no files of a backup")
    missing = "s3://missing/place"
    contains(group.back_up(missing, status=1), f"could not write {missing}/LOCK")
    contains(group.back_up("s3://", status=1), "names no bucket")
    equal(group.bucket.files("refused"), [])


@test
def connections_are_encrypted(group):
    path, place = group.certificates.path, address("encrypted")
    tls = ["--tls-ca-cert-file", path("ca.pem"), "--tls-cert-file", path("one.pem")]
    tls += ["--tls-key-file", path("one.key")]
    group.server.redis.set("k", "encrypted")
    bucket = Bucket(group.root / "buckets", group.certificates)
    try:
        secure = bucket.environment()
        contains(group.back_up(place, *tls, source="resp-tls", environment=secure), "file 1: full")
        with group.restored(place, environment=secure) as restored:
            equal(restored.redis.get("k"), b"encrypted")
        # The authority of neither server.
        other = ["--tls-ca-cert-file", path("other.pem"), *tls[2:]]
        contains(group.back_up(place, *other, source="resp-tls", status=1), "certificate")
        # A server that requires certificates of its clients.
        contains(group.back_up(place, *tls[:2], source="resp-tls", status=1), "ertificate")
    finally:
        bucket.stop()


def main():
    with tempfile.TemporaryDirectory(prefix="myriad-backup-") as directory:
        group = Group(pathlib.Path(directory))
        try:
            return run(lambda body: body(group))
        finally:
            group.stop()


sys.exit(main())
