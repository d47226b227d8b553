"""Raw connections of hostile tests, and how the tests watch the broker meanwhile."""

import os
import socket
import struct

from durability.broker_process import BrokerProcess

from barnabas.wire import request

CLOSED_S = 60.0


def connect(broker: BrokerProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=CLOSED_S)


def is_closed(connection: socket.socket, within_s: float = CLOSED_S) -> bool:
    """Returns whether the broker closes the connection without a response."""
    connection.settimeout(within_s)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def produce_body(records: bytes, acks: int = -1, topic: str = "t"):
    ask = request(0)
    data = ask.struct("topicData")(name=topic)
    data.partitionData = [ask.struct("topicData.partitionData")(index=0, records=records)]
    return ask.cls(acks=acks, timeoutMs=30_000, topicData=[data])


def error_of(wire, records: bytes, acks: int = -1, topic: str = "t") -> int:
    """The code for one batch."""
    answer = wire.call(0, 8, produce_body(records, acks, topic))
    return answer.responses[0].partitionResponses[0].errorCode


class Growth:
    """The largest growth of the broker's memory since this object was made."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._process = f"/proc/{broker.process.pid}"
        with open(f"{self._process}/clear_refs", "w") as file:
            file.write("5")  # resets the kernel's peak value
        self.before = self._pages("VmRSS")

    def peak_bytes(self) -> int:
        return self._pages("VmHWM") - self.before

    def _pages(self, name: str) -> int:
        with open(f"{self._process}/status") as file:
            [line] = [line for line in file if line.startswith(name + ":")]
        return int(line.split()[1]) * 1024


def open_files(broker: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{broker.process.pid}/fd"))
