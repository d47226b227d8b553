"""Directories that barnabas chooses itself: for data and for what can be made again.

The default log directory, if neither log.dirs nor log.dir is set, survives a reboot:

root                /var/lib/barnabas (Filesystem Hierarchy Standard)
any other user      $XDG_DATA_HOME/barnabas, or ~/.local/share/barnabas (XDG Base Directory)

Many systems empty Apache Kafka's default, /tmp/kafka-logs, when they start. If server.properties
names this directory, the broker uses it.

What can be made again (unpacked wheels of plugins, the unpacked one-file executable) is in

a systemd service   $CACHE_DIRECTORY (CacheDirectory= in the unit)
root                /var/cache/barnabas
any other user      $XDG_CACHE_HOME/barnabas, or ~/.cache/barnabas
"""

import os
from collections.abc import Mapping

OF_ROOT = "/var/lib/barnabas"
CACHE_OF_ROOT = "/var/cache/barnabas"
FORMER = "/tmp/kafka-logs"


def default_data_directory(environ: Mapping[str, str], user_id: int) -> str:
    """Returns the absolute path for a user. `environ`: the environment of the process."""
    if user_id == 0:
        return OF_ROOT
    return _of_user(environ, "XDG_DATA_HOME", "~/.local/share")


def cache_directory(environ: Mapping[str, str], user_id: int) -> str:
    """Returns the absolute path for a user. `environ`: the environment of the process."""
    of_service = environ.get("CACHE_DIRECTORY", "").partition(":")[0]
    if os.path.isabs(of_service):
        return of_service
    if user_id == 0:
        return CACHE_OF_ROOT
    return _of_user(environ, "XDG_CACHE_HOME", "~/.cache")


def _of_user(environ: Mapping[str, str], variable: str, default: str) -> str:
    home = environ.get(variable, "")
    if not os.path.isabs(home):  # the standard says that programs ignore a relative path
        home = os.path.expanduser(default)
    return os.path.join(home, "barnabas")
