"""The tasks of the Celery worker that suite.py starts."""

import os

from celery import Celery

ADDRESS = os.environ["ADDR"]

app = Celery("celery_tasks", broker=f"redis://{ADDRESS}/1", backend=f"redis://{ADDRESS}/2")


@app.task
def add(a, b):
    return a + b


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=2, default_retry_delay=0)
def flaky(self):
    if self.request.retries < 2:
        raise self.retry()
    return "done"
