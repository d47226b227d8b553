"""The main program of a plugin's own process: `python -m barnabas.hooks.child FD`.

The first frame from the broker names the plugin and its options; the answer says what it
implements, or what is wrong. Then one frame is one call, and one frame its answer, until the
broker closes the line. What the plugin prints goes to the broker's standard error.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import traceback
from typing import Any

from barnabas.hooks.child_values import FRAME_BYTES_MAX, decode, encode
from barnabas.hooks.loading import CannotLoad, load
from barnabas.hooks.plugin import Plugin


def received(line: socket.socket) -> Any:
    """The next value; None at the end of the line."""
    head = _exactly(line, 4)
    if head is None:
        return None
    size_bytes = int.from_bytes(head, "big")
    if size_bytes > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {size_bytes} bytes")
    frame = _exactly(line, size_bytes)
    return None if frame is None else decode(frame)


def _exactly(line: socket.socket, size_bytes: int) -> bytes | None:
    found = bytearray()
    while len(found) < size_bytes:
        piece = line.recv(min(size_bytes - len(found), 1 << 20))
        if not piece:
            return None
        found += piece
    return bytes(found)


def _loaded(asked: dict[str, Any]) -> tuple[Plugin | None, dict[str, Any]]:
    limit = asked["memory_bytes_max"]
    if limit:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        plugin = load(
            asked["name"],
            asked["texts"],
            isolated_here=True,
            any_module=asked["any_module"],
        )
    except CannotLoad as error:
        return None, {"problems": error.problems}
    hooks = {name: row.arguments for name, row in plugin.hooks.items()}
    return plugin, {"hooks": hooks, "version": plugin.version, "path": plugin.path}


def _answered(plugin: Plugin, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        answer = plugin.hooks[asked["hook"]].function(*asked["arguments"])
        return {"answer": answer}
    except MemoryError:
        raise SystemExit("no memory is left to the plugin") from None
    except Exception:
        return {"error": traceback.format_exc()}


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the broker's; it ends this line
    line = socket.socket(fileno=int(sys.argv[1]))
    plugin, said = _loaded(received(line))
    line.sendall(encode(said))
    if plugin is None:
        return
    while (asked := received(line)) is not None:
        answer = _answered(plugin, asked)
        try:
            frame = encode(answer)
        except (ValueError, TypeError) as error:
            frame = encode({"error": f"its answer cannot be told: {error}"})
        line.sendall(frame)


if __name__ == "__main__":
    main()
    sys.stderr.flush()
    os._exit(0)  # whatever threads the plugin has left
