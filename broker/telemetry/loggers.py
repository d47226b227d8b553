"""The levels of this process's loggers, as resources of type BROKER_LOGGER show and alter them.

Loggers are Python's, under their own names; `root` is the parent of all. A logger without a level
of its own inherits the level of its nearest parent. Levels are Kafka's words for Python's numbers;
a change lasts until the process ends, as in Kafka."""

import logging

from barnabas.errors import InvalidConfig, InvalidRequest

ROOT = "root"
LEVELS = {
    "TRACE": 5,  # Python has no name for a level below DEBUG
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}

logging.getLogger("barnabas")  # the parent of all of the broker's loggers; it exists from the start


def levels() -> dict[str, str]:
    """Returns the effective level of every logger, by name."""
    known = logging.Logger.manager.loggerDict.copy()
    names = sorted(name for name, one in known.items() if isinstance(one, logging.Logger))
    return {ROOT: _word(logging.getLogger())} | {
        name: _word(logging.getLogger(name)) for name in names if name != ROOT
    }


def check_level(name: str, level: str | None) -> None:
    """Checks a change of a level. `level` None: the logger inherits the level of its parent again.
    Raises InvalidConfig and InvalidRequest."""
    if level is not None and level not in LEVELS:
        raise InvalidConfig(
            f"Cannot set the log level of {name[:60]} to {level[:60]} as it is not a supported log"
            f" level. Valid log levels are {', '.join(sorted(LEVELS))}"
        )
    if name not in levels():
        raise InvalidConfig(f"Logger {name[:60]} does not exist!")
    if level is None and name == ROOT:
        raise InvalidRequest("Removing the log level of the root logger is not allowed")


def set_level(name: str, level: str | None) -> None:
    """Applies a change that `check_level` has accepted; it takes effect at once."""
    number = logging.NOTSET if level is None else LEVELS[level]
    logging.getLogger(None if name == ROOT else name).setLevel(number)


def _word(logger: logging.Logger) -> str:
    """Returns the last of LEVELS that is not greater than the logger's number."""
    number = logger.getEffectiveLevel()
    return [word for word, least in LEVELS.items() if least <= max(number, LEVELS["TRACE"])][-1]
