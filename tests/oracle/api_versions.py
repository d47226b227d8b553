"""What Apache Kafka tells in ApiVersions, and how it refuses other versions.

    python tests/oracle/api_versions.py VERSION...     writes tests/vectors/api-versions-kafka.json

Each version runs in KRaft mode with its defaults.
"""

import json
import socket
import struct
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORDED = HERE.parent / "vectors/api-versions-kafka.json"
API_VERSIONS = 18


def asked(port: int, key: int, version: int, body: bytes = b"") -> bytes | None:
    """The answer behind its correlation id; None if the connection is closed instead. The header
    has no tagged fields, as those of version 1."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        frame = struct.pack(">hhih", key, version, 7, -1) + body
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        with connection.makefile("rb") as file:
            try:
                size = file.read(4)
                return file.read(int.from_bytes(size, "big"))[4:] if size else None
            except ConnectionResetError:
                return None


def ranges(answer: bytes) -> dict[int, tuple[int, int]]:
    """API keys and versions of an answer of version 0."""
    count = int.from_bytes(answer[2:6], "big")
    rows = struct.iter_unpack(">hhh", answer[6 : 6 + 6 * count])
    return {key: (low, high) for key, low, high in rows}


def refusals(port: int, told: dict[int, tuple[int, int]]) -> dict[str, str]:
    """How requests with versions just outside of the range, and of keys that are not in it, end."""
    found = {}
    for key in range(93):
        low, high = told.get(key, (0, -1))
        for version in {low - 1, high + 1} if key in told else {0}:
            if version >= 0:
                answer = asked(port, key, version, bytes(64))
                code = (
                    "closed" if answer is None else int.from_bytes(answer[:2], "big", signed=True)
                )
                found[f"{key} {version}"] = str(code)
    return found


def main(versions: list[str]) -> None:
    sys.path.insert(0, str(HERE.parents[1] / "bench" / "kafka"))
    from rival import Rival

    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for version in versions:
        with tempfile.TemporaryDirectory() as folder, Rival(version, Path(folder)) as kafka:
            answer = asked(kafka.port, API_VERSIONS, 0)
            assert answer is not None
            told = ranges(answer)
            recorded[version] = {"told": told, "refused": refusals(kafka.port, told)}
    RECORDED.write_text(json.dumps(recorded, indent=0) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
