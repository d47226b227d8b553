"""The main program of a plugin's own process: `python -m barnabas.hooks.child FD`.

The first frame from the broker names the plugin and its options; the answer says which hooks it
implements, or what is wrong. Then each frame is a call, and each answer a frame, until the broker
closes the connection. Output of the plugin goes to the broker's standard error.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import traceback
from typing import Any

from barnabas.hooks.child_values import encode, received
from barnabas.hooks.loading import load
from barnabas.hooks.plugin import CannotLoad, Plugin


def _loaded(asked: dict[str, Any]) -> tuple[Plugin | None, dict[str, Any]]:
    limit = asked["memory_bytes_max"]
    if limit:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    sys.path += asked["path"]
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
        raise SystemExit("the plugin has used all its memory (memory.max.bytes)") from None
    except Exception:
        return {"error": traceback.format_exc()}


def main() -> None:
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the broker, which closes this connection
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
            frame = encode({"error": f"cannot encode its answer: {error}"})
        line.sendall(frame)


if __name__ == "__main__":
    main()
    sys.stderr.flush()
    os._exit(0)  # even when threads of the plugin still run
