"""Listeners are added and removed while the broker runs."""

import contextlib
import socket
import threading
import time
from contextlib import closing

import pytest
from api.admin_calls import BROKER, DELETE, SET, admin_on
from compat.support import Wire
from node.test_settings import metadata
from reactor.network import Served, is_closed, request, response

INVALID_REQUEST = 42
PLAIN = "PLAINTEXT://127.0.0.1:0"
BOTH = PLAIN + ",SECOND://127.0.0.1:0"
PROTOCOLS = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT"}


def set_listeners(admin, text):
    assert admin.alter(BROKER, "1", ("listeners", SET, text)) == (0, None)


def listening(admin):
    return {row.name: row.port for row in admin.broker.node.listening}


def refuses(port):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_a_listener_comes_and_goes(tmp_path):
    with admin_on(tmp_path, node_id="1", **PROTOCOLS) as a:
        plain = listening(a)["PLAINTEXT"]
        assert list(listening(a)) == ["PLAINTEXT"]
        set_listeners(a, BOTH)
        second = listening(a)["SECOND"]
        assert listening(a) == {"PLAINTEXT": plain, "SECOND": second}, "listeners"
        with closing(Wire(f"127.0.0.1:{second}")) as wire:
            assert metadata(wire).brokers[0].port == second
            assert a.call(3, 9, topics=[]).brokers[0].port == plain
            assert a.alter(BROKER, "1", ("listeners", DELETE, None)) == (0, None)
            assert listening(a) == {"PLAINTEXT": plain}
            with pytest.raises((ConnectionError, OSError)):
                for _ in range(100):
                    metadata(wire)
                    time.sleep(0.02)
        assert refuses(second)
        assert a.call(3, 9, topics=[]).brokers[0].port == plain


def test_a_listener_outlives_a_restart(tmp_path):
    with admin_on(tmp_path, node_id="1", **PROTOCOLS) as a:
        set_listeners(a, BOTH)
    with admin_on(tmp_path, node_id="1", **PROTOCOLS) as a:
        assert list(listening(a)) == ["PLAINTEXT", "SECOND"]
        with closing(Wire(f"127.0.0.1:{listening(a)['SECOND']}")) as wire:
            assert metadata(wire).brokers[0].port == listening(a)["SECOND"]


def test_the_listener_that_is_used_may_go(tmp_path):
    """The response to the change is sent on it. The one between brokers stays, as in Kafka."""
    between = {"listeners": BOTH, "inter.broker.listener.name": "SECOND"}
    with admin_on(tmp_path, node_id="1", **PROTOCOLS, **between) as a:
        plain = listening(a)["PLAINTEXT"]
        code, said = a.alter(BROKER, "1", ("listeners", SET, PLAIN))
        assert code == INVALID_REQUEST and "inter.broker.listener.name=SECOND" in said
        set_listeners(a, "SECOND://127.0.0.1:0")
        second = listening(a)["SECOND"]
        assert refuses(plain)
        with closing(Wire(f"127.0.0.1:{second}")) as wire:
            assert metadata(wire).brokers[0].port == second


def test_the_map_of_protocols_may_grow(tmp_path):
    with admin_on(tmp_path, node_id="1") as a:
        code, said = a.alter(BROKER, "1", ("listeners", SET, BOTH))
        assert code == INVALID_REQUEST and "no protocol is known for SECOND" in said
        name = "listener.security.protocol.map"
        grown = [(name, SET, PROTOCOLS[name]), ("listeners", SET, BOTH)]
        assert a.alter(BROKER, "1", *grown) == (0, None)
        assert list(listening(a)) == ["PLAINTEXT", "SECOND"]


def test_wrong_listeners_change_nothing(tmp_path):
    settings = {"advertised.listeners": "PLAINTEXT://broker.example:9092"}
    with admin_on(tmp_path, node_id="1", **PROTOCOLS, **settings) as a:
        before = listening(a)
        for text, part in (
            ("nonsense", "not an address"),
            ("", "nothing for clients"),
            ("SECOND://127.0.0.1:0", "not among the listeners"),
            (PLAIN + ",SECOND://0.0.0.0:0", "allow.unauthenticated.remote"),
        ):
            code, said = a.alter(BROKER, "1", ("listeners", SET, text))
            assert code == INVALID_REQUEST and part in said, text
        code, said = a.alter(BROKER, "", ("listeners", SET, BOTH))
        assert code == INVALID_REQUEST and "one broker" in said
        assert listening(a) == before


def test_a_port_that_is_taken_changes_nothing(tmp_path):
    with admin_on(tmp_path, node_id="1", **PROTOCOLS) as a, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        before = listening(a)
        code, said = a.alter(BROKER, "1", ("listeners", SET, f"{PLAIN},SECOND://127.0.0.1:{port}"))
        assert code == INVALID_REQUEST and "cannot listen" in said
        assert listening(a) == before
        assert a.configs(BROKER, "1", "listeners")["listeners"].configSource == 4


def test_a_listener_in_a_freed_place_is_not_closed():
    """The acceptor, woken by other connections, mistook the new socket for the one it had
    closed."""

    def knock():
        while not stopping.is_set():
            socket.create_connection(("127.0.0.1", served.port), 10).close()

    stopping = threading.Event()
    with Served() as served:
        others = [threading.Thread(target=knock) for _ in range(3)]
        for other in others:
            other.start()
        try:
            end, rounds = time.monotonic() + 3, 0
            while time.monotonic() < end or rounds <= 100:
                try:
                    port = served.reactor.listen("OTHER", "127.0.0.1", 0)
                except ValueError:  # no slot is free yet
                    time.sleep(0.0005)
                    continue
                socket.create_connection(("127.0.0.1", port), 10).close()
                served.reactor.unlisten("OTHER")
                rounds += 1
            assert rounds > 100
        finally:
            stopping.set()
            for other in others:
                other.join()


def test_a_place_is_used_again():
    with Served() as served:
        with contextlib.ExitStack() as kept:
            for _ in range(40):
                port = served.reactor.listen("OTHER", "127.0.0.1", 0)
                c = kept.enter_context(socket.create_connection(("127.0.0.1", port), 5))
                c.sendall(request(1))
                assert response(c)[0] == 1
                served.reactor.unlisten("OTHER")
                assert is_closed(c)
                served.eventually(lambda c: c["connection_count"] == 0)
        assert served.reactor.counters()["connections_total"]["OTHER"] == 40
        with pytest.raises(ValueError, match="no listener 'OTHER'"):
            served.reactor.unlisten("OTHER")
