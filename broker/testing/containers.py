"""KafkaContainer and RedpandaContainer with the methods of the package testcontainers, without
containers: each is a broker inside the test's process.

    from barnabas.testing.containers import KafkaContainer   # was: testcontainers.kafka

    with KafkaContainer() as kafka:
        connect(kafka.get_bootstrap_server())

What would need a container (an image's shell, a network of containers) raises NotInThisProcess.
The model is testcontainers 4.15 for Python.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, NoReturn, Self

from barnabas.config.environment import settings_from
from barnabas.config.settings import BROKER_SETTINGS
from barnabas.testing.broker import Broker, BrokerNotRunning

if TYPE_CHECKING:
    from types import TracebackType

HOST = "127.0.0.1"
# They belong to an image's own listeners, node and controllers.
OF_THE_IMAGE = frozenset(
    """advertised.listeners advertised.host.name advertised.port broker.id node.id
    controller.listener.names controller.quorum.bootstrap.servers controller.quorum.voters
    inter.broker.listener.name inter.broker.protocol.version listener.security.protocol.map
    listeners log.dir log.dirs process.roles zookeeper.connect""".split()
)


class NotInThisProcess(NotImplementedError):
    """A method needs a container, and there is none."""


class BrokerContainer:
    """What both classes share. `broker` is the Broker: its clock, its faults and its records are
    what a container does not have."""

    port = 9092

    def __init__(self, image: str, **kwargs: Any) -> None:
        """`image` is kept and not used. Of `kwargs`, `env` (a dict) sets settings; the other ones
        (`name`, `ports`, `volumes`, ...) have no effect."""
        self.image = image
        self.env: dict[str, str] = {
            key: str(text) for key, text in (kwargs.get("env") or {}).items()
        }
        self._host_port = 0
        self._broker: Broker | None = None

    # -- settings -----------------------------------------------------------------------------

    def with_env(self, key: str, value: object) -> Self:
        """Sets a variable; KAFKA_NUM_PARTITIONS is num.partitions, as in Kafka's images."""
        self.env[key] = str(value)
        return self

    def with_envs(self, **variables: object) -> Self:
        for key, value in variables.items():
            self.with_env(key, value)
        return self

    def with_env_file(self, env_file: str | os.PathLike[str]) -> Self:
        """Sets the variables of a file with lines `NAME=value`. Raises OSError."""
        with open(env_file) as lines:
            for line in lines:
                key, equals, value = line.strip().partition("=")
                if equals and not key.startswith("#"):
                    self.with_env(key.strip(), value.strip().strip("'\""))
        return self

    def with_bind_ports(self, container: str | int, host: str | int | None = None) -> Self:
        """Asks for a port of this machine instead of any free one. Raises ValueError for another
        port of the container than that of Kafka."""
        self._check_port(container)
        self._host_port = 0 if host is None else _number(host)
        return self

    def with_exposed_ports(self, *ports: str | int) -> Self:
        return self

    def with_kwargs(self, **kwargs: Any) -> Self:
        return self

    def with_name(self, name: str) -> Self:
        return self

    def with_tmpfs_mount(self, container_path: str, size: str | None = None) -> Self:
        return self

    def maybe_emulate_amd64(self) -> Self:
        return self

    def waiting_for(self, strategy: object) -> Self:
        """`start` returns when the broker serves clients, so there is nothing to wait for."""
        return self

    def _settings(self) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, (text, variable) in settings_from(self.env).items():
            if name not in BROKER_SETTINGS:
                warnings.warn(f"{variable}: the broker has no setting {name}", stacklevel=4)
            elif name not in OF_THE_IMAGE:
                found[name] = text
        return found | {"listeners": f"PLAINTEXT://{HOST}:{self._host_port}"}

    # -- start and stop -----------------------------------------------------------------------

    def start(self, timeout: int = 30) -> Self:
        """Starts the broker; returns when it serves clients. Raises ConfigError, CannotStart."""
        self._broker = Broker(self._settings()).start()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        if self._broker is not None:
            self._broker.stop()
            self._broker = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # -- where it is --------------------------------------------------------------------------

    @property
    def broker(self) -> Broker:
        """Returns the broker inside this process. Raises BrokerNotRunning."""
        if self._broker is None:
            raise BrokerNotRunning("this broker has not started, or it has stopped")
        return self._broker

    def get_bootstrap_server(self) -> str:
        """Returns `host:port` for clients. Raises BrokerNotRunning."""
        return self.broker.bootstrap_servers

    def get_container_host_ip(self) -> str:
        return HOST

    def get_exposed_port(self, port: int) -> int:
        """Returns the port of this machine. Raises ValueError for another port than that of Kafka,
        and BrokerNotRunning."""
        self._check_port(port)
        return int(self.get_bootstrap_server().rpartition(":")[2])

    @property
    def status(self) -> str:
        return "exited" if self._broker is None else "running"

    def _check_port(self, port: str | int) -> None:
        if _number(port) != self.port:
            raise ValueError(f"this broker has the port {self.port} only, not {port}")

    # -- what needs a container ---------------------------------------------------------------

    def _needs_container(self, *_: object, **__: object) -> NoReturn:
        raise NotInThisProcess(
            "the broker runs in the process of the test: there is no container with a shell,"
            " volumes or a network. See docs/testing.md for what takes its place."
        )

    with_command = with_copy_into_container = with_network = with_network_aliases = _needs_container
    copy_into_container = copy_from_container = get_container_info = _needs_container
    with_volume_mapping = create_file = exec = get_container_id = _needs_container
    get_docker_client = get_logs = get_wrapped_container = reload = wait = _needs_container


class KafkaContainer(BrokerContainer):
    """In place of testcontainers.kafka.KafkaContainer."""

    def __init__(
        self,
        image: str = "confluentinc/cp-kafka:7.6.0",
        port: int = 9093,
        wait_strategy_check_string: str = "",
        listener_name: str = "PLAINTEXT",
        security_protocol: str = "PLAINTEXT",
        **kwargs: Any,
    ) -> None:
        """`image`, `wait_strategy_check_string` and `listener_name` have no effect. Raises
        NotInThisProcess for another security protocol than PLAINTEXT: a Broker with settings has
        the others."""
        super().__init__(image, **kwargs)
        if security_protocol != "PLAINTEXT":
            self._needs_container()
        self.port = port

    def with_kraft(self) -> Self:
        return self

    def with_cluster_id(self, cluster_id: str) -> Self:
        return self


class RedpandaContainer(BrokerContainer):
    """In place of testcontainers.kafka.RedpandaContainer."""

    def __init__(
        self, image: str = "docker.redpanda.com/redpandadata/redpanda:v23.1.13", **kwargs: Any
    ) -> None:
        """`image` has no effect."""
        super().__init__(image, **kwargs)

    def get_schema_registry_address(self) -> NoReturn:
        raise NotInThisProcess("barnabas has no schema registry (docs/limitations.md)")


def _number(port: str | int) -> int:
    """Returns the number of `9093` or `9093/tcp`."""
    return int(str(port).partition("/")[0])
