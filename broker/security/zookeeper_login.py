"""The login of a node at ZooKeeper, from the section Client of Kafka's JAAS file.

    Client {
        org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="...";
    };

As for Kafka, KAFKA_OPTS names the file, and may name another section by
-Dzookeeper.sasl.clientconfig or turn it off by -Dzookeeper.sasl.client=false. zookeeper.auth, where
it is set, comes first.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from collections.abc import Mapping

from barnabas.config import ConfigError
from barnabas.config.jaas import sections_of_process
from barnabas.config.zookeeper import ZooKeeperLogin, ZooKeeperSettings

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
SECTION = "Client"
OPTION = re.compile(r"-Dzookeeper\.sasl\.(client|clientconfig)=(\S+)")


def with_jaas_login(settings: ZooKeeperSettings, environ: Mapping[str, str]) -> ZooKeeperSettings:
    """The settings with the login of a JAAS file, where there is one. Raises ConfigError."""
    if settings.login is None:
        settings = dataclasses.replace(settings, login=_login(environ))
    is_sasl = settings.login is not None and settings.login.scheme == "sasl"
    if is_sasl and importlib.util.find_spec("puresasl") is None:
        raise ConfigError(
            "SASL to ZooKeeper needs the package pure-sasl: pip install 'barnabas[zookeeper]'."
        )
    return settings


def _login(environ: Mapping[str, str]) -> ZooKeeperLogin | None:
    options = dict(OPTION.findall(environ.get("KAFKA_OPTS", "")))
    if options.get("client", "true").lower() == "false":
        return None
    path, sections = sections_of_process(environ)
    section = options.get("clientconfig", SECTION)
    modules = sections.get(section)
    if modules is None:
        return None
    where = f"{section} in {path}"
    if len(modules) != 1 or modules[0].name != MODULE:
        raise ConfigError(
            f"{where}: the login module for ZooKeeper must be {MODULE}. Kerberos to ZooKeeper is"
            " not available; -Dzookeeper.sasl.client=false in KAFKA_OPTS turns the section off."
        )
    user, password = (modules[0].options.get(key) for key in ("username", "password"))
    if not user or not password:
        raise ConfigError(f'{where}: it needs username="..." and password="...".')
    return ZooKeeperLogin("sasl", user, password)
