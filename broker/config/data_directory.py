"""The default log directory, if neither log.dirs nor log.dir is set: it survives a reboot.

root                /var/lib/barnabas (Filesystem Hierarchy Standard)
any other user      $XDG_DATA_HOME/barnabas, or ~/.local/share/barnabas (XDG Base Directory)

Many systems empty Apache Kafka's default, /tmp/kafka-logs, when they start. If server.properties
names this directory, the broker uses it.
"""

import os
from collections.abc import Mapping

OF_ROOT = "/var/lib/barnabas"
FORMER = "/tmp/kafka-logs"


def default_data_directory(environ: Mapping[str, str], user_id: int) -> str:
    """Returns the absolute path for a user. `environ`: the environment of the process."""
    if user_id == 0:
        return OF_ROOT
    home = environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(home):  # the standard says that programs ignore a relative path
        home = os.path.expanduser("~/.local/share")
    return os.path.join(home, "barnabas")
