"""A network of its own for the processes of a test, which can be cut, one way too, and slowed down.

    with Network(["zookeeper", "1", "2", "3"]) as network:
        network.prefix("1")              begins the command of a process on host 1
        network.address("1")             its address; the test itself reaches every host
        network.cut("1", "2")            drops what 1 sends to 2
        network.isolate("1")             drops all that 1 sends and gets
        network.slow_down("1", 200)      200 kbit/s in each direction
        network.heal()                   ends all of these
        network.is_heard("1", "2")       whether a datagram of 1 reaches 2

Each host is a network namespace, joined by a bridge in another namespace. Only processes hold the
namespaces, and each ends when the test process does, so the kernel removes everything even after a
kill -9 of the test. Only one interface, `barnabasN`, is in the namespace of the test; its name
reserves the addresses 10.213.N.0/24.

A host drops a packet when its routing rules name the sender (`blackhole`): the sender learns
nothing. The kernel here has no netem, so nothing is delayed.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Sequence

CLONE_NEWNET = 0x40000000
NETWORKS_MAX = 250
OUTSIDE = 254  # the last number of the test's own address
HEARD_S = 0.5
COMMANDS = ("ip", "tc", "nsenter", "unshare")
LIBC = ctypes.CDLL(None, use_errno=True)


def missing() -> str | None:
    """Returns why this machine cannot create a network; None when it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [name for name in COMMANDS if shutil.which(name) is None]
    if absent:
        return f"{' '.join(absent)} not installed (apt install iproute2 util-linux)"
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        return "the kernel or the container allows no network namespaces"
    return None


class Network:
    """A network with one host for each of the given names."""

    def __init__(self, names: Sequence[str]) -> None:
        self._numbers = {name: number for number, name in enumerate(names, 1)}
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._subnet = 0
        self._cuts: set[tuple[str, str]] = set()
        self._isolated: set[str] = set()
        self._slow: set[str] = set()

    def __enter__(self) -> Network:
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the processes that hold the namespaces; the kernel removes what is in them when the
        last process on a host has ended."""
        for holder in self._holders.values():
            assert holder.stdin is not None
            holder.stdin.close()
            holder.wait()
        self._holders.clear()

    def address(self, name: str) -> str:
        return f"10.213.{self._subnet}.{self._numbers[name]}"

    def prefix(self, name: str) -> tuple[str, ...]:
        """Returns the beginning of a command that runs on a host."""
        return ("nsenter", f"--net=/proc/{self._holders[name].pid}/ns/net")

    # -- faults

    def cut(self, sender: str, receiver: str) -> None:
        """Drops the packets that `sender` sends to `receiver`, until `heal`."""
        self._cuts.add((sender, receiver))
        self._in(receiver, "rule", "add", *self._rule(sender))

    def isolate(self, name: str) -> None:
        """Drops all packets that the host sends and receives, also those to and from the test."""
        self._isolated.add(name)
        self._in("hub", "link", "set", self._port(name), "nomaster")

    def slow_down(self, name: str, kbit: int) -> None:
        self._slow.add(name)
        shape = ("root", "tbf", "rate", f"{kbit}kbit", "burst", "16kb", "latency", "400ms")
        _run(*self.prefix(name), "tc", "qdisc", "add", "dev", "eth0", *shape)
        _run(*self.prefix("hub"), "tc", "qdisc", "add", "dev", self._port(name), *shape)

    def heal(self) -> None:
        for sender, receiver in self._cuts:
            self._in(receiver, "rule", "del", *self._rule(sender))
        for name in self._isolated:
            self._in("hub", "link", "set", self._port(name), "master", "bridge")
        for name in self._slow:
            _run(*self.prefix(name), "tc", "qdisc", "del", "dev", "eth0", "root")
            _run(*self.prefix("hub"), "tc", "qdisc", "del", "dev", self._port(name), "root")
        self._cuts, self._isolated, self._slow = set(), set(), set()

    def is_heard(self, sender: str, receiver: str) -> bool:
        """Returns whether a datagram of `sender` arrives at `receiver`. It proves a cut and its
        direction."""
        with self._socket(receiver) as ear, self._socket(sender) as mouth:
            ear.settimeout(HEARD_S)
            mouth.sendto(b"?", ear.getsockname())
            try:
                return ear.recv(1) == b"?"
            except TimeoutError:
                return False

    # -- how it is made

    def _make(self) -> None:
        for name in ("hub", *self._numbers):
            self._holders[name] = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", "echo; exec cat"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        for holder in self._holders.values():
            assert holder.stdout is not None
            holder.stdout.readline()  # it is in its namespace
            holder.stdout.close()
        hub = str(self._holders["hub"].pid)
        self._reserve(hub)
        self._in("hub", "link", "add", "bridge", "type", "bridge")
        self._in("hub", "link", "set", "bridge", "up")
        self._in("hub", "link", "set", "outside", "master", "bridge", "up")
        _run("ip", "addr", "add", f"10.213.{self._subnet}.{OUTSIDE}/24", "dev", self._outside)
        _run("ip", "link", "set", self._outside, "up")
        for name, holder in self._holders.items():
            if name == "hub":
                continue
            port = self._port(name)
            peer = ("type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
            self._in("hub", "link", "add", port, *peer)
            self._in("hub", "link", "set", port, "master", "bridge", "up")
            self._in(name, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            self._in(name, "link", "set", "eth0", "up")
            self._in(name, "link", "set", "lo", "up")
            # Rules of the test come before the one by which a host takes what is sent to it.
            self._in(name, "rule", "add", "pref", "100", "lookup", "local")
            self._in(name, "rule", "del", "pref", "0")

    def _reserve(self, hub: str) -> None:
        """Finds a free subnet: the kernel gives each name of an interface only once."""
        for self._subnet in range(NETWORKS_MAX):
            command = ("ip", "link", "add", self._outside, "type", "veth")
            made = subprocess.run(
                [*command, "peer", "name", "outside", "netns", hub], capture_output=True, text=True
            )
            if made.returncode == 0:
                return
            assert "exists" in made.stderr, made.stderr
        raise AssertionError("no free network")

    @property
    def _outside(self) -> str:
        return f"barnabas{self._subnet}"

    def _port(self, name: str) -> str:
        return f"port{self._numbers[name]}"

    def _rule(self, sender: str) -> tuple[str, ...]:
        number = self._numbers[sender]
        return ("pref", str(number), "iif", "eth0", "from", self.address(sender), "blackhole")

    def _in(self, name: str, *command: str) -> None:
        _run(*self.prefix(name), "ip", *command)

    def _socket(self, name: str) -> socket.socket:
        """Opens a datagram socket on a host, in a thread that enters the namespace of the host and
        ends."""
        made: list[socket.socket] = []

        def make() -> None:
            with open(f"/proc/{self._holders[name].pid}/ns/net") as there:
                if LIBC.setns(there.fileno(), CLONE_NEWNET) == 0:
                    made.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        [found] = made
        found.bind((self.address(name), 0))
        return found


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
