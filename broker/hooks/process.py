"""A plugin in its own process: for plugins that may hang, crash, leak memory or compute for long.

The child gets no secrets of the broker. It gets the environment variables that ENVIRONMENT and the
option `environment` name, no file descriptor but that of the connection, and of the settings only
`plugin.NAME.*`. It runs as the broker's user, and may read the files of that user.

A plugin has one child process, which runs one call at a time. A call fails when the child ends, for
any reason; the next call starts another child, after a pause since the last start. The pause
doubles up to PAUSE_S_MAX, and starts again from its minimum once a child has run that long. A call
over its budget kills the child."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from barnabas.hooks.child_values import encode, received
from barnabas.hooks.plugin import CannotLoad, Implementation, Plugin
from barnabas.hooks.wheels import added

log = logging.getLogger("barnabas.hooks")

START_S = 20.0  # time for a child to import and make its plugin
PAUSE_S = 0.1
PAUSE_S_MAX = 30.0
# What Python and a plugin's libraries need to run. All other variables may be secrets: settings
# (KAFKA_*, BARNABAS_*), what settings refer to (${env:NAME}), keys of clouds and databases.
ENVIRONMENT = frozenset(
    """HOME LANG LANGUAGE LD_LIBRARY_PATH LOGNAME PATH SHELL TEMP TMP TMPDIR TZ USER
    VIRTUAL_ENV""".split()
)
ENVIRONMENT_PREFIXES = ("LC_", "PYTHON")


class ChildFailed(Exception):
    """The process of a plugin ended, or sent a frame that cannot be parsed."""


class Child:
    """The process of one plugin."""

    def __init__(
        self,
        name: str,
        texts: Mapping[str, str],
        memory_bytes_max: int,
        any_module: bool = False,
        environment: Sequence[str] = (),
    ) -> None:
        """`environment`: names of variables that the process gets besides ENVIRONMENT."""
        self.name = name
        self._environment = frozenset(environment)
        self._asked = {
            "name": name,
            "texts": dict(texts),
            "memory_bytes_max": memory_bytes_max,
            "any_module": any_module,
            "path": added(),
        }
        self._one_call = threading.Lock()
        self._guard = threading.Lock()  # guards the process and its connection
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._closed = False
        self._pause_s = 0.0
        self._began_s = 0.0
        self.starts = 0

    def start(self) -> dict[str, Any]:
        """Starts the process and returns the plugin's description of itself. Raises CannotLoad."""
        with self._one_call:
            return self._start()

    def call(self, hook: str, arguments: list[Any]) -> Any:
        """Calls a hook in the process and returns its answer; starts a process that has ended
        again, after a pause. Raises ChildFailed when the process ends or its answer cannot be
        parsed, RuntimeError with the traceback of the plugin."""
        with self._one_call:
            if self._line is None:
                self._start_again()
            line = self._line
            assert line is not None
            try:
                line.settimeout(None)
                line.sendall(encode({"hook": hook, "arguments": arguments}))
                said = received(line)
            except (OSError, ValueError) as error:
                raise self._lost(f"{error}") from error
            if not isinstance(said, dict) or not said.keys() <= {"answer", "error"}:
                raise self._lost(
                    "its process ended" if said is None else "its answer cannot be parsed"
                )
            if "error" in said:
                raise RuntimeError(f"in its process:\n{said['error']}")
            return said.get("answer")

    def interrupt(self) -> None:
        """Kills the process during a call."""
        with self._guard:
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        self._closed = True
        self.interrupt()
        with self._one_call:
            self._forget()

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None else None

    def _start_again(self) -> None:
        if self._closed:
            raise ChildFailed("it is stopped")
        now_s = time.monotonic()
        if now_s - self._began_s > PAUSE_S_MAX:
            self._pause_s = 0.0
        if now_s < self._began_s + self._pause_s:
            raise ChildFailed("its process ended; the broker starts it again after a pause")
        self._pause_s = min(max(self._pause_s * 2, PAUSE_S), PAUSE_S_MAX)
        log.warning("plugin %s: starting its process again", self.name)
        try:
            self._start()
        except CannotLoad as error:
            raise ChildFailed(str(error)) from error

    def _start(self) -> dict[str, Any]:
        ours, theirs = socket.socketpair()
        self._began_s = time.monotonic()
        self.starts += 1
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "barnabas.hooks.child", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=2,  # its output goes to standard error
                pass_fds=(theirs.fileno(),),
                env=self._variables(),
            )
        with self._guard:
            self._process, self._line = process, ours
        ours.settimeout(START_S)
        try:
            ours.sendall(encode(self._asked))
            said = received(ours)
        except (OSError, ValueError) as error:
            self._forget()
            raise CannotLoad([f"plugin {self.name}: its process did not start: {error}."]) from None
        if not isinstance(said, dict) or "hooks" not in said:
            self._forget()
            problems = said.get("problems") if isinstance(said, dict) else None
            words = [f"plugin {self.name}: its process ended while it loaded the plugin."]
            raise CannotLoad(list(problems) if problems else words)
        return said

    def _variables(self) -> dict[str, str]:
        """Returns the environment of the process."""
        known = ENVIRONMENT | self._environment
        return {
            name: text
            for name, text in os.environ.items()
            if name in known or name.startswith(ENVIRONMENT_PREFIXES)
        }

    def _lost(self, reason: str) -> ChildFailed:
        status = self._forget()
        return ChildFailed(f"{reason} (exit status {status})")

    def _forget(self) -> int | None:
        with self._guard:
            process, line = self._process, self._line
            self._process = self._line = None
        if line is not None:
            line.close()
        if process is None:
            return None
        process.kill()
        return process.wait()


def load_in_process(
    name: str, texts: Mapping[str, str], common: Mapping[str, Any], any_module: bool = False
) -> Plugin:
    """Loads the plugin in a child process and returns it. `texts`: its options; `common`: the
    parsed options of COMMON; `any_module`: as in `load`. Raises CannotLoad."""
    child = Child(
        name, texts, common["memory.max.bytes"], any_module, environment=common["environment"]
    )
    said = child.start()
    hooks = {
        hook: Implementation(_remote(child, hook), tuple(arguments))
        for hook, arguments in said["hooks"].items()
    }
    return Plugin(
        name,
        hooks,
        version=str(said["version"]),
        path=str(said["path"]),
        common=common,
        close=child.close,
        interrupt=child.interrupt,
    )


def _remote(child: Child, hook: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        return child.call(hook, list(arguments))

    return call
