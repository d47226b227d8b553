"""Opens connections at a rate, each for one ApiVersions request, until its standard input ends.

    python -m hostile.connection_storm PORT RATE

It prints "open" after the first one, and at the end how many it opened and how many seconds that
took. In a process of its own it takes no time from the client that a test measures.
"""

import os
import select
import socket
import sys
import time

from barnabas.wire import request
from barnabas.wire.headers import encode_request

ADDRESSES = 8  # of the client, so that ports of closed connections do not run out
ASK = encode_request(18, 0, 1, "storm", request(18).cls())
ANSWER_S = 10


def open_one(port: int, number: int) -> None:
    source = (f"127.0.0.{2 + number % ADDRESSES}", 0)
    with socket.create_connection(("127.0.0.1", port), ANSWER_S, source) as connection:
        connection.sendall(ASK)
        assert connection.recv(65536)


def main(port: int, rate: int) -> None:
    began, opened = time.monotonic(), 0
    while not select.select([sys.stdin], [], [], 0)[0] or os.read(0, 1):
        open_one(port, opened)
        opened += 1
        if opened == 1:
            print("open", flush=True)
        time.sleep(max(0.0, began + opened / rate - time.monotonic()))
    print(opened, time.monotonic() - began, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
