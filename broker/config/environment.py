"""Settings from the environment: KAFKA_LOG_DIRS and BARNABAS_LOG_DIRS are log.dirs.

The rules are those of Kafka's container images: the prefix is removed, `___` becomes `-`, `__`
becomes `_`, `_` becomes `.`, letters become lower case. KAFKA_CFG_ (another image's prefix) is read
as KAFKA_; BARNABAS_ overrides both. Variables for Java, for scripts, and service links of
Kubernetes are not settings.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.config.settings import BROKER_SETTINGS

# A later prefix overrides an earlier one.
PREFIXES = ("KAFKA_CFG_", "KAFKA_", "BARNABAS_")

NOT_SETTINGS = frozenset(
    """ANCHOR_HOME BOOTSTRAP_SERVERS BROKERS CLASSPATH CLUSTER_ID CONF_DIR DATA_DIR DEBUG
    GC_LOG_OPTS HEAP_OPTS HOME JMX_HOSTNAME JMX_OPTS JMX_PORT JVM_PERFORMANCE_OPTS
    LOG4J_LOGGERS LOG4J_OPTS LOG4J_ROOT_LOGLEVEL LOG4J_TOOLS_ROOT_LOGLEVEL OPTS
    SCALA_VERSION TOOLS_LOG4J_LOGLEVEL USER VERSION""".split()
)
OWN_SWITCHES = frozenset(
    """BARNABAS_ANNOTATE BARNABAS_COMPAT_BROKER BARNABAS_C_DIR BARNABAS_DEBUG BARNABAS_DELTA_HOME
    BARNABAS_FORMER BARNABAS_HADOOP_HOME BARNABAS_HISTORY_SEED BARNABAS_KAFKA_HOME BARNABAS_LONG
    BARNABAS_ONEFILE BARNABAS_ONEFILE_LEVEL BARNABAS_ONEFILE_WORK BARNABAS_OPTIMIZE
    BARNABAS_OVER BARNABAS_PICTURES BARNABAS_SANITIZE BARNABAS_SPARK_HOME BARNABAS_TEST_HOME
    BARNABAS_TRACE_HOOKS BARNABAS_WITHOUT_TLS""".split()
)
# KAFKA_PORT=tcp://10.0.0.1:9092 and its family come from a Kubernetes service named kafka.
SERVICE_LINKS = ("SERVICE_HOST", "SERVICE_PORT", "PORT_")


def setting_name(rest: str) -> str:
    """Returns the setting of a variable without its prefix: LOG_DIRS -> log.dirs. A name with
    capitals in the table gets them."""
    hyphen, underscore = "\0", "\1"
    name = rest.replace("___", hyphen).replace("__", underscore).replace("_", ".")
    name = name.replace(hyphen, "-").replace(underscore, "_").lower()
    if name not in BROKER_SETTINGS:
        for known in BROKER_SETTINGS:
            if known.lower() == name:
                return known
    return name


def is_setting(variable: str, value: str) -> bool:
    """Returns whether an environment variable sets a setting."""
    prefix = next((p for p in PREFIXES if variable.startswith(p)), None)
    if prefix is None or variable in OWN_SWITCHES:
        return False
    rest = variable.removeprefix(prefix)
    if not rest or rest in NOT_SETTINGS or rest.startswith(SERVICE_LINKS):
        return False
    return not value.startswith(("tcp://", "udp://"))


def settings_from(environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Returns value and variable by the name of the setting; a later prefix of PREFIXES wins."""
    found: dict[str, tuple[str, str]] = {}
    for prefix in PREFIXES:
        for variable in sorted(environ):
            is_other = prefix == "KAFKA_" and variable.startswith("KAFKA_CFG_")
            if variable.startswith(prefix) and not is_other:
                if is_setting(variable, environ[variable]):
                    name = setting_name(variable.removeprefix(prefix))
                    found[name] = (environ[variable], variable)
    return found
