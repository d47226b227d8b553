"""connection_creation_rate of addresses (KIP-612): a connection too many closes a little later."""

import select
import socket
import time

from compat.support import Wire
from quotas.asking import set_quota
from reactor.network import Served, is_closed, request, response

from barnabas import Broker

BURST = 11  # the rate is a mean over ten seconds, as Kafka's


def connect_from(address, port):
    return socket.create_connection(("127.0.0.1", port), timeout=5, source_address=(address, 0))


def serves(c):
    c.sendall(request(1))
    return response(c)[0] == 1


def test_an_address_over_its_rate_is_closed_later_and_others_are_served():
    with Served() as served:
        served.reactor.set_address_rates({}, 1)
        began = time.monotonic()
        kept = [served.connect() for _ in range(BURST)]
        assert all(serves(c) for c in kept)
        kept_s = time.monotonic() - began
        with served.connect() as refused:
            assert is_closed(refused)
        assert time.monotonic() - began > 0.9
        served.closed("connection-rate-per-ip")
        assert served.reactor.counters()["connection_count"] == BURST
        count, ns = served.reactor.counters()["address_throttles"]["PLAINTEXT"]
        assert count == 1 and 0.9e9 - kept_s * 1e9 < ns <= 1e9
        assert served.reactor.counters()["accept_throttles"]["PLAINTEXT"] == (0, 0)
        with connect_from("127.0.0.2", served.port) as other:
            assert serves(other)
        served.reactor.set_address_rates({socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1"): 9})
        with served.connect() as again:
            assert serves(again)
        for c in kept:
            c.close()


def test_more_waiting_closes_than_the_limit_close_the_oldest():
    with Served() as served:
        served.reactor.set_address_rates({}, 0)
        opened = []
        for count in range(40, 1121, 40):  # beyond the backlog, a client waits for a second
            opened += [served.connect() for _ in range(40)]
            served.eventually(
                lambda c, count=count: c["address_throttles"]["PLAINTEXT"][0] == count
            )
        assert all(is_closed(c) for c in opened[:96])
        assert all(is_closed(c) for c in opened)
        for c in opened:
            c.close()
        counters = served.quiet()  # counted after the close
        assert counters["closed"]["connection-rate-per-ip"] == 1024 + 96


def test_a_quota_of_an_address_counts_at_once(tmp_path):
    with Broker({"log.dirs": str(tmp_path)}) as broker:
        host, port = broker.bootstrap_servers.split(":")
        with Wire(broker.bootstrap_servers) as wire:
            set_quota(wire, {"ip": "127.0.0.3"}, connection_creation_rate=1)
            kept = [connect_from("127.0.0.3", int(port)) for _ in range(BURST + 1)]
            assert is_closed(kept.pop(), 5)
            set_quota(wire, {"ip": "127.0.0.3"}, connection_creation_rate=None)
            kept.append(connect_from("127.0.0.3", int(port)))
            assert not select.select([kept[-1]], [], [], 0.3)[0]
            for c in kept:
                c.close()
