"""The jobs of RQ in suite.py."""


def double(number):
    return number * 2


def fail():
    raise ValueError("broken")
