"""The tasks of the Huey consumer that suite.py starts."""

import os

from huey import RedisHuey

HOST, PORT = os.environ["ADDR"].split(":")

huey = RedisHuey("suite", host=HOST, port=int(PORT), db=4)


@huey.task()
def double(number):
    return number * 2
