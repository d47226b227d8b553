"""Where data goes when neither log.dirs nor log.dir is set: a place that survives a reboot.

root                /var/lib/barnabas (Filesystem Hierarchy Standard)
any other user      $XDG_DATA_HOME/barnabas, or ~/.local/share/barnabas (XDG Base Directory)

Apache Kafka's default, /tmp/kafka-logs, is emptied by many systems when they start. A
server.properties that names it keeps it.
"""

import os
from collections.abc import Mapping

OF_ROOT = "/var/lib/barnabas"
FORMER = "/tmp/kafka-logs"


def default_data_directory(environ: Mapping[str, str], user_id: int) -> str:
    """The absolute path for a user, by the environment of the process."""
    if user_id == 0:
        return OF_ROOT
    home = environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(home):  # the standard says that a relative one is to be ignored
        home = os.path.expanduser("~/.local/share")
    return os.path.join(home, "barnabas")
