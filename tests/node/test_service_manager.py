"""What the broker tells systemd through NOTIFY_SOCKET."""

import os
import socket
from contextlib import closing
from types import SimpleNamespace

import pytest
from cli.test_start import refused, where
from compat.support import Wire
from durability.broker_process import BrokerProcess, free_port

import barnabas.node
from barnabas import Broker
from barnabas.config import BrokerConfig
from barnabas.controller.topics import NewTopic
from barnabas.node import Node
from barnabas.stages.service_manager import (
    EXTENSION_US,
    PROGRESS_S,
    ServiceManager,
    from_environment,
)
from barnabas.telemetry.metrics_page import RUNNING, STARTING

SENT_S_MAX = 20


class Manager:
    """The side of systemd: a socket, and the messages that came."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(SENT_S_MAX)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)

    def next(self) -> dict[str, str]:
        """The next message; fails when none comes."""
        return dict(line.split("=", 1) for line in self._socket.recv(4096).decode().split("\n"))

    def rest(self) -> list[dict[str, str]]:
        """The messages that have come by now."""
        self._socket.settimeout(0)
        found = []
        while True:
            try:
                found.append(self.next())
            except BlockingIOError:
                return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def address(request, tmp_path):
    name = f"{tmp_path}/notify" if request.param == "path" else f"@barnabas-{os.getpid()}"
    assert len(name) < 100
    return name


@pytest.fixture
def manager(address):
    with closing(Manager(address)) as listening:
        yield listening


def page(state):
    return SimpleNamespace(state=state, problem=lambda: "starting")


def settings(path):
    return {"log.dirs": str(path), "listeners": "PLAINTEXT://127.0.0.1:0"}


def test_a_broker_sends_ready_when_it_serves_and_stopping_when_it_stops(
    tmp_path, monkeypatch, manager
):
    monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
    with BrokerProcess(tmp_path / "data", free_port()) as broker:
        message = manager.next()
        while "READY" not in message:  # a slow start sends its state first
            assert message == {"STATUS": "starting"}
            message = manager.next()
        assert message == {
            "READY": "1",
            "STATUS": f"serves clients at PLAINTEXT://{broker.address}",
        }
        with Wire(broker.address):
            pass
        assert broker.stop() == 0
    assert manager.rest() == [{"STOPPING": "1", "STATUS": "stopping"}]


def test_the_start_gets_more_time_while_logs_are_recovered(tmp_path, monkeypatch, manager):
    data = tmp_path / "data"
    with Broker(settings(data)) as broker:
        broker.node.serving.administration.topics.create(NewTopic("t"))
    (data / ".kafka_cleanshutdown").unlink()
    node = Node(BrokerConfig(settings(data)))
    seen = []
    whole = barnabas.node.bind_listeners

    def bind_listeners(loaded):
        seen.append(manager.next())
        if "EXTEND_TIMEOUT_USEC" not in seen[-1]:  # the state before the recovery
            seen.append(manager.next())
        return whole(loaded)

    monkeypatch.setattr(barnabas.node, "bind_listeners", bind_listeners)
    with closing(ServiceManager(manager.address)) as service:
        service.watch(node.metrics)
        node.start()
        node.stop()
    assert seen[-1] == {
        "STATUS": "recovering logs after an unclean stop: 1 of 1 logs opened",
        "EXTEND_TIMEOUT_USEC": str(EXTENSION_US),
    }
    assert EXTENSION_US / 1e6 > 10 * PROGRESS_S


def test_a_start_that_needs_no_recovery_gets_no_more_time(manager):
    with closing(ServiceManager(manager.address)) as service:
        service.watch(page(STARTING))
        assert manager.next() == {"STATUS": "starting"}


def test_a_refused_start_sends_its_reason(tmp_path, monkeypatch, manager):
    monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
    with BrokerProcess(tmp_path / "data", free_port()):
        while "READY" not in manager.next():
            pass
        line = refused(*where(tmp_path / "data", free_port()))
        messages = manager.rest()
        assert messages[-1] == {"STATUS": line.removeprefix("barnabas: ")}
        assert not any("READY" in message for message in messages)
        line = refused(*where(tmp_path / "data", free_port()), "num.partitions=many")
        assert manager.rest() == [{"STATUS": line.removeprefix("barnabas: ")}]


def test_the_watchdog_hears_a_running_broker(manager):
    with closing(ServiceManager(manager.address, watchdog_us=300_000)) as service:
        service.watch(page(RUNNING))
        assert [manager.next() for _ in range(3)] == 3 * [{"WATCHDOG": "1"}]


def test_a_broker_process_is_watched_when_the_unit_says_so(tmp_path, monkeypatch, manager):
    monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
    monkeypatch.setenv("WATCHDOG_USEC", "300000")
    with BrokerProcess(tmp_path / "data", free_port()):
        while manager.next() != {"WATCHDOG": "1"}:
            pass


def test_no_state_of_the_start_is_sent_after_ready(manager):
    """The thread that sends the state must not overtake READY=1 with an older state."""
    starting = page(STARTING)
    with closing(ServiceManager(manager.address)) as service:
        service.watch(starting)
        assert manager.next() == {"STATUS": "starting"}
        starting.state = RUNNING
        service.ready("here")
        service._thread.join(SENT_S_MAX)  # the state is RUNNING, and nobody watches
        assert not service._thread.is_alive()
    assert manager.rest()[-1] == {"READY": "1", "STATUS": "serves clients at here"}


def test_a_status_is_one_line(manager):
    with closing(ServiceManager(manager.address)) as service:
        service.refused("first\nREADY=1")
    assert manager.next() == {"STATUS": "first READY=1"}


def test_child_processes_get_no_variables_of_the_service_manager(address):
    own, other = os.getpid(), os.getpid() + 1
    for watched, ping_s in ((own, 20.0), (other, 0.0)):
        environment = {
            "NOTIFY_SOCKET": address,
            "WATCHDOG_USEC": "60000000",
            "WATCHDOG_PID": str(watched),
            "HOME": "/root",
        }
        with closing(from_environment(environment, own)) as service:
            assert service._ping_s == ping_s
        assert environment == {"HOME": "/root"}
    assert from_environment({}, own) is None


@pytest.mark.parametrize("address", ["vsock:2:9999", "notify", "@", ""])
def test_an_address_of_another_kind_is_logged_and_ignored(address, caplog):
    assert from_environment({"NOTIFY_SOCKET": address}, os.getpid()) is None
    assert [record.getMessage() for record in caplog.records] == (
        [
            f"NOTIFY_SOCKET={address} is not a path and not an abstract name; the service manager"
            " gets no messages"
        ]
        if address
        else []
    )


def test_a_broker_goes_on_when_the_service_manager_is_gone(address, caplog):
    Manager(address).close()
    with closing(ServiceManager(address)) as service:
        service.ready("here")
    [record] = caplog.records
    assert "cannot send READY=1 to the service manager (NOTIFY_SOCKET)" in record.getMessage()
