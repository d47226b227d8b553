"""The admin clients of Python and Node libraries, with one interface; see test_admin.py."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from compat.node.client import KafkaJs, NodeClient, Platformatic
from compat.support import CALL_TIMEOUT_S

TOPIC_RESOURCE = 2


class Administrator(ABC):
    configures = True  # describes and alters configurations, and adds partitions

    @abstractmethod
    def create(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        """Raises the library's own exception when the topic exists already."""

    @abstractmethod
    def topics(self) -> set[str]: ...

    def partitions(self, topic: str) -> int:
        raise NotImplementedError

    def grow(self, topic: str, partitions: int) -> None:
        raise NotImplementedError

    def config(self, topic: str, name: str) -> str:
        raise NotImplementedError

    def alter(self, topic: str, name: str, value: str) -> None:
        raise NotImplementedError

    @abstractmethod
    def groups(self) -> set[str]: ...

    @abstractmethod
    def delete_topic(self, topic: str) -> None: ...

    @abstractmethod
    def delete_group(self, group: str) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Lets go of connections."""


class Confluent(Administrator):
    def __init__(self, address: str) -> None:
        from confluent_kafka import admin

        self.kafka = admin
        self.admin: Any = admin.AdminClient({"bootstrap.servers": address})

    def create(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        new = self.kafka.NewTopic(topic, partitions, 1, config=configs)
        self.admin.create_topics([new], operation_timeout=10)[topic].result(CALL_TIMEOUT_S)

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=CALL_TIMEOUT_S).topics)

    def partitions(self, topic: str) -> int:
        return len(self.admin.list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic].partitions)

    def grow(self, topic: str, partitions: int) -> None:
        new = self.kafka.NewPartitions(topic, partitions)
        self.admin.create_partitions([new])[topic].result(CALL_TIMEOUT_S)

    def config(self, topic: str, name: str) -> str:
        resource = self.kafka.ConfigResource("topic", topic)
        told = self.admin.describe_configs([resource])[resource].result(CALL_TIMEOUT_S)
        return str(told[name].value)

    def alter(self, topic: str, name: str, value: str) -> None:
        entry = self.kafka.ConfigEntry(
            name, value, incremental_operation=self.kafka.AlterConfigOpType.SET
        )
        resource = self.kafka.ConfigResource("topic", topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(CALL_TIMEOUT_S)

    def groups(self) -> set[str]:
        told = self.admin.list_consumer_groups().result(CALL_TIMEOUT_S)
        assert not told.errors
        return {row.group_id for row in told.valid}

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(CALL_TIMEOUT_S)

    def delete_group(self, group: str) -> None:
        self.admin.delete_consumer_groups([group])[group].result(CALL_TIMEOUT_S)

    def close(self) -> None:
        """The library closes it when it is collected."""


class KafkaPython(Administrator):
    def __init__(self, address: str) -> None:
        from kafka import admin

        self.kafka = admin
        self.admin: Any = admin.KafkaAdminClient(bootstrap_servers=address)

    def create(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": configs}
        self.admin.create_topics({topic: wanted})

    def topics(self) -> set[str]:
        return set(self.admin.list_topics())

    def partitions(self, topic: str) -> int:
        [told] = self.admin.describe_topics([topic])
        return len(told["partitions"])

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions({topic: partitions})

    def _resource(self, topic: str, configs: dict[str, str] | None) -> Any:
        return self.kafka.ConfigResource(self.kafka.ConfigResourceType.TOPIC, topic, configs)

    def config(self, topic: str, name: str) -> str:
        told = self.admin.describe_configs([self._resource(topic, None)], config_filter="all")
        return str(told["topic"][topic][name]["value"])

    def alter(self, topic: str, name: str, value: str) -> None:
        self.admin.alter_configs([self._resource(topic, {name: value})])

    def groups(self) -> set[str]:
        return {row["group_id"] for row in self.admin.list_groups()}

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])

    def delete_group(self, group: str) -> None:
        self.admin.delete_groups([group])

    def close(self) -> None:
        self.admin.close()


class Aio(Administrator):
    """aiokafka's, on a loop of its own."""

    def __init__(self, address: str) -> None:
        from aiokafka import admin

        self.kafka = admin
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

        async def started() -> Any:
            made = admin.AIOKafkaAdminClient(bootstrap_servers=address)
            await made.start()
            return made

        self.admin: Any = self._wait(started())

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT_S)

    def create(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        new = self.kafka.NewTopic(topic, partitions, 1, topic_configs=configs)
        told = self._wait(self.admin.create_topics([new]))
        for _, code, message in told.topic_errors:
            if code:
                raise ValueError(message)

    def topics(self) -> set[str]:
        return set(self._wait(self.admin.list_topics()))

    def partitions(self, topic: str) -> int:
        [told] = self._wait(self.admin.describe_topics([topic]))
        return len(told["partitions"])

    def grow(self, topic: str, partitions: int) -> None:
        new = self.kafka.NewPartitions(partitions)
        self._wait(self.admin.create_partitions({topic: new}))

    def _resource(self, topic: str, configs: dict[str, str] | None) -> Any:
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        return ConfigResource(ConfigResourceType.TOPIC, topic, configs)

    def config(self, topic: str, name: str) -> str:
        [told] = self._wait(self.admin.describe_configs([self._resource(topic, None)]))
        rows = told.resources[0][4]
        return str({row[0]: row[1] for row in rows}[name])

    def alter(self, topic: str, name: str, value: str) -> None:
        self._wait(self.admin.alter_configs([self._resource(topic, {name: value})]))

    def groups(self) -> set[str]:
        return {row[0] for row in self._wait(self.admin.list_consumer_groups())}

    def delete_topic(self, topic: str) -> None:
        self._wait(self.admin.delete_topics([topic]))

    def delete_group(self, group: str) -> None:
        raise NotImplementedError  # the library has no such call

    def close(self) -> None:
        self._wait(self.admin.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_TIMEOUT_S)
        self._loop.close()


class _Node(Administrator):
    client: type[NodeClient]

    def __init__(self, address: str) -> None:
        self._node = self.client(address)

    def _ask(self, what: str, **more: Any) -> Any:
        return self._node.ask(do="administrate", what=what, **more).get("told")

    def create(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        self._ask("create", topic=topic, partitions=partitions, configs=configs)

    def topics(self) -> set[str]:
        return set(self._ask("topics"))

    def partitions(self, topic: str) -> int:
        return int(self._ask("partitions", topic=topic))

    def grow(self, topic: str, partitions: int) -> None:
        self._ask("grow", topic=topic, partitions=partitions)

    def config(self, topic: str, name: str) -> str:
        return str(self._ask("config", topic=topic, name=name))

    def alter(self, topic: str, name: str, value: str) -> None:
        self._ask("alter", topic=topic, name=name, value=value)

    def groups(self) -> set[str]:
        return set(self._ask("groups"))

    def delete_topic(self, topic: str) -> None:
        self._ask("deleteTopic", topic=topic)

    def delete_group(self, group: str) -> None:
        self._ask("deleteGroup", group=group)

    def close(self) -> None:
        self._node.close()


class KafkaJsAdmin(_Node):
    client = KafkaJs


class PlatformaticAdmin(_Node):
    client = Platformatic


ADMINISTRATORS: dict[str, type] = {
    "confluent_kafka": Confluent,
    "kafka_python": KafkaPython,
    "aiokafka": Aio,
    "kafkajs": KafkaJsAdmin,
    "platformatic": PlatformaticAdmin,
}
