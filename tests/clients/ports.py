"""Ports for servers that do not choose one themselves."""

import contextlib
import random
import socket

# The kernel gives higher ports to outgoing connections (net.ipv4.ip_local_port_range): one of them could take
# a port between this check and the start of the server.
FIRST, LAST = 15_000, 32_000
ATTEMPTS_MAX = 1_000


def free_port(count=1):
    """The first of `count` consecutive ports that nothing uses."""
    # Suites run side by side, some with seeds of their own.
    choose = random.SystemRandom().randrange
    for _ in range(ATTEMPTS_MAX):
        first = choose(FIRST, LAST - count)
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(socket.socket()).bind(("", port))
            return first
    raise OSError(f"no {count} free ports from {FIRST} to {LAST}")
