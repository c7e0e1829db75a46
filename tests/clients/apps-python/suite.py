"""Celery, RQ, Huey, locks of redis-py and streams with competing consumers, against ADDR."""

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import redis
from celery import chord, group
from rq import Queue, SimpleWorker

from celery_tasks import add, flaky, total
from harness import run, test
from huey_tasks import double
from rq_tasks import double as rq_double
from rq_tasks import fail as rq_fail

HOST, PORT = os.environ["ADDR"].split(":")
# A busy machine may halt the server or a worker for a while.
PATIENCE_S = 60
BIN = Path(sys.executable).parent


def connect(db=0, **options):
    return redis.Redis(host=HOST, port=int(PORT), db=db, **options)


@contextlib.contextmanager
def worker(*command):
    """A process of a task queue, which is ended afterwards."""
    process = subprocess.Popen(
        [BIN / command[0], *command[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@test
def celery_runs_tasks_groups_and_chords():
    with worker("celery", "-A", "celery_tasks", "worker", "-c", "2", "-l", "ERROR"):
        results = [add.delay(number, number) for number in range(100)]
        assert sum(result.get(timeout=PATIENCE_S) for result in results) == 9900
        parts = group(add.s(number, 1) for number in range(10))
        assert parts().get(timeout=PATIENCE_S) == list(range(1, 11))
        whole = chord(add.s(number, 1) for number in range(10))(total.s())
        assert whole.get(timeout=PATIENCE_S) == 55
        assert flaky.delay().get(timeout=PATIENCE_S) == "done"


@test
def rq_runs_jobs_and_keeps_failures():
    client = connect(3)
    queue = Queue(connection=client)
    jobs = [queue.enqueue(rq_double, number) for number in range(50)]
    bad = queue.enqueue(rq_fail)
    SimpleWorker([queue], connection=client).work(burst=True, logging_level="CRITICAL")
    assert sum(job.return_value() for job in jobs) == 2450
    assert bad.get_status().value == "failed"
    assert len(queue) == 0


@test
def huey_runs_tasks():
    with worker("huey_consumer", "huey_tasks.huey", "-w", "2"):
        results = [double(number) for number in range(50)]
        assert sum(one.get(blocking=True, timeout=PATIENCE_S) for one in results) == 2450


@test
def a_lock_admits_one_thread_at_a_time():
    client = connect(5)
    inside, counted = [], []

    def work():
        for _ in range(50):
            with client.lock("lock", timeout=PATIENCE_S):
                inside.append(1)
                counted.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted == [1] * 200
    lock = client.lock("other", timeout=PATIENCE_S)
    assert lock.acquire() and lock.owned() and lock.extend(5) and lock.reacquire()
    lock.release()
    assert not client.exists("other")


@test
def competing_consumers_get_each_entry_once():
    client = connect(6)
    client.xgroup_create("stream", "group", id="0", mkstream=True)
    seen = [[], [], []]

    def consume(index):
        mine = connect(6)
        while True:
            found = mine.xreadgroup("group", f"c{index}", {"stream": ">"}, count=7, block=2000)
            entries = found[0][1] if found else []
            if any(fields == {b"end": b"1"} for _, fields in entries):
                mine.xack("stream", "group", *[entry for entry, _ in entries])
                seen[index].extend(fields[b"n"] for _, fields in entries if b"n" in fields)
                return
            seen[index].extend(fields[b"n"] for _, fields in entries)
            if entries:
                mine.xack("stream", "group", *[entry for entry, _ in entries])

    threads = [threading.Thread(target=consume, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for number in range(500):
        client.xadd("stream", {"n": number})
    while any(thread.is_alive() for thread in threads):
        client.xadd("stream", {"end": 1})
        threads[0].join(0.05)
    numbers = sorted(int(number) for one in seen for number in one)
    assert numbers == list(range(500))


def run_on_empty_server(body):
    connect().flushall()
    body()
    connect().flushall()


sys.exit(run(run_on_empty_server))
