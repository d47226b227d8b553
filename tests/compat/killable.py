"""A broker that is killed and started again with its directory and its port: ours, or Apache
Kafka."""

from pathlib import Path

from compat.support import FEATURES, KAFKA, QUICK_HEAP, rival
from durability.broker_process import BrokerProcess, free_port


class Ours:
    """`barnabas start`, with the interface of rival.Rival."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self._arguments = (folder / "data", free_port(), {"broker.id": "1"} | settings)
        self._process: BrokerProcess | None = None

    def start(self) -> None:
        self._process = BrokerProcess(*self._arguments)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._arguments[1]}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.process.pid

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        assert self._process.process.returncode == -9

    def stop(self) -> None:
        if self._process is not None and self._process.process.poll() is None:
            self._process.stop()


def killable(kind: str, folder: Path, settings: dict[str, str]) -> "Ours | rival.Rival":
    """Returns a broker that is not started yet. `kind`: as the option --broker."""
    if kind == "barnabas":
        return Ours(folder, settings)
    _, version, mode = (kind.split(":") + ["", ""])[:3]
    version, mode = version or KAFKA, mode or "kraft"
    features = FEATURES if mode == "kraft" and version >= "4" else {}
    return rival.Rival(version, folder, mode, settings=settings, features=features, heap=QUICK_HEAP)
