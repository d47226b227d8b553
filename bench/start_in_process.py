"""Measures how long a test waits for its broker: from Broker() to an ApiVersions answer over TCP.

    python bench/start_in_process.py [--starts 100] [--durable] [--stages]

Prints the time of the import, of the first start, and the median and 95th percentile of the starts
and stops after it; with --stages also the time of each stage of a start. Nothing else should run on
the machine.
"""

import argparse
import cProfile
import pstats
import socket
import statistics
import struct
import sys
import time

ASK_VERSIONS = struct.pack(">ihhihb", 11, 18, 0, 1, 1, ord("x"))  # version 0, client id "x"


def answered(address: str) -> None:
    """Returns when the broker has answered an ApiVersions request without an error."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(ASK_VERSIONS)
        data = b""
        while len(data) < 10:
            got = connection.recv(65536)
            assert got, "closed without an answer"
            data += got
    assert struct.unpack(">ih", data[4:10]) == (1, 0), data[:10]


def quantiles(times_s: list[float]) -> str:
    ordered = sorted(times_s)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    return f"median {statistics.median(ordered) * 1e3:.2f} ms, p95 {p95 * 1e3:.2f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--durable", action="store_true", help="writes reach the disk")
    parser.add_argument("--stages", action="store_true", help="profile the starts' main thread")
    options = parser.parse_args()
    began = time.perf_counter()
    from barnabas import Broker

    print(
        f"import: {(time.perf_counter() - began) * 1e3:.1f} ms",
        "(with sqlite3)" * ("sqlite3" in sys.modules),
    )
    starts, stops = [], []
    profile = cProfile.Profile()
    for number in range(options.starts + 1):
        if options.stages and number:
            profile.enable()
        began = time.perf_counter()
        broker = Broker(durable=options.durable).start()
        profile.disable()
        answered(broker.bootstrap_servers)
        starts.append(time.perf_counter() - began)
        began = time.perf_counter()
        broker.stop()
        stops.append(time.perf_counter() - began)
    print(f"first start: {starts[0] * 1e3:.2f} ms")
    print(f"{options.starts} starts: {quantiles(starts[1:])}")
    print(f"{options.starts} stops: {quantiles(stops[1:])}")
    if options.stages:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(45)


if __name__ == "__main__":
    main()
