"""Log lines as JSON (`logging.format=json`): one object a line, with the keys

| key | value |
|---|---|
| time | ISO 8601 in UTC, with milliseconds |
| level | DEBUG, INFO, WARNING, ERROR or CRITICAL, as in lines of text |
| logger | its name; `barnabas.cli.start` for the lines of the start, such as `ready: ...` |
| thread | the name of the thread |
| message | the text of the line |
| exception | the traceback; only when there is one |

Every line that the process prints after it has read its settings has this form, also the exception
of a thread and Python's own warnings. Only ASCII is printed, so that no text from outside can end a
line or change a terminal.
"""

import json
import logging
import sys
import threading
import time
from collections.abc import Callable

START = "barnabas.cli.start"


class JsonFormatter(logging.Formatter):
    """Formats a log record as a JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, separators=(",", ":"))


def begin() -> Callable[..., None]:
    """Makes the handlers of the root logger print JSON, and logs exceptions of threads and warnings
    of Python too. Returns a function that prints a text at a level, whatever the level of the
    loggers."""
    root, log = logging.getLogger(), logging.getLogger(START)
    for handler in root.handlers:
        handler.setFormatter(JsonFormatter())
    logging.captureWarnings(True)

    def thread_failed(failed: threading.ExceptHookArgs) -> None:
        if failed.exc_type is not SystemExit and failed.exc_value is not None:
            name = failed.thread.name if failed.thread is not None else "without a name"
            log.critical("thread %s failed", name, exc_info=failed.exc_value)

    def not_raised(failed: "sys.UnraisableHookArgs") -> None:
        where = failed.err_msg or "exception ignored in"
        log.error("%s: %r", where, failed.object, exc_info=failed.exc_value)

    threading.excepthook = thread_failed
    sys.unraisablehook = not_raised

    def say(text: str, level: int = logging.INFO) -> None:
        root.handle(log.makeRecord(START, level, "", 0, text, (), None))

    return say
