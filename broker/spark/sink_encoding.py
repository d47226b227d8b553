"""Plugins of the sink: encoders of values and keys, and the partitioner, the same as for clients.

The settings are those of the old producer (docs/old-clients.md). Each task creates the plugins, and
calls them for the rows of one Arrow batch and one topic at a time. Without an encoder a column must
be string or binary. With one it may have any type that the plugin accepts: a struct becomes a dict.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.client import Cluster
from barnabas.spark.failures import SinkError
from barnabas.spark.options import BadOption
from barnabas.spark.sink_options import KEY_ENCODER, PARTITIONER, VALUE_ENCODER, SinkOptions

if TYPE_CHECKING:
    import pyarrow

    from barnabas.hooks.direct import ClientPlugins

HOOKS = {VALUE_ENCODER: "encode", KEY_ENCODER: "encode", PARTITIONER: "choose_partitions"}


class Encoding:
    """The plugins of one task. The constructor raises BadOption for a plugin that does not exist or
    lacks the hook of its setting; the methods raise SinkError when a plugin fails."""

    def __init__(self, options: SinkOptions) -> None:
        self._plugins: ClientPlugins | None = None
        self._calls: dict[str, Callable[..., Any]] = {}
        if not options.plugins:
            return
        from barnabas.hooks import direct
        from barnabas.hooks.plugin import CannotLoad

        self._plugins = direct.ClientPlugins(dict(options.plugin_options))
        try:
            for setting, name in options.plugins.items():
                hook = HOOKS[setting]
                call = direct.caller(self._plugins.plugin(setting, name, hook), hook)
                assert call is not None
                self._calls[setting] = call
        except CannotLoad as error:
            raise BadOption(str(error)) from error

    def close(self) -> None:
        if self._plugins is not None:
            self._plugins.close()

    def takes_any(self, column: str) -> bool:
        """Returns whether a column may have types other than string and binary."""
        return (VALUE_ENCODER if column == "value" else KEY_ENCODER) in self._calls

    def objects(self, column: "pyarrow.Array", name: str) -> list[Any]:
        """Returns the values of column key or value: bytes, or objects for the encoder."""
        import pyarrow as pa

        if self.takes_any(name):
            return list(column.to_pylist())
        return list(column.cast(pa.large_binary()).to_pylist())

    def values(self, topic: str, found: Sequence[Any]) -> Sequence[bytes | None]:
        """Returns the bytes of values, made by the encoder if there is one."""
        call = self._calls.get(VALUE_ENCODER)
        return found if call is None else _asked(call, topic, found, False)

    def keys(self, topic: str, found: Sequence[Any]) -> Sequence[bytes | None]:
        """Returns the bytes of keys, made by the encoder if there is one; a null stays null."""
        call = self._calls.get(KEY_ENCODER)
        there = [key for key in found if key is not None]
        if call is None or not there:
            return found
        made = iter(_asked(call, topic, there, True))
        return [None if key is None else next(made) for key in found]

    def places(
        self,
        cluster: Cluster,
        topic: str,
        given: Sequence[Any],
        keys: Sequence[bytes | None],
        named: Sequence[int | None],
    ) -> Sequence[int | None]:
        """Returns the partitions of rows. `named`: the partitions that rows name; the partitioner
        chooses the others."""
        call = self._calls.get(PARTITIONER)
        free = [at for at, place in enumerate(named) if place is None]
        if call is None or not free:
            return named
        known = cluster.topic(topic).partitions
        available = [row.index for row in known.values() if row.leader >= 0] or list(known)
        part, encoded = [given[at] for at in free], [keys[at] for at in free]
        found = _asked(call, topic, part, encoded, len(known), available, count=len(free))
        places = list(named)
        for at, place in zip(free, found, strict=True):
            places[at] = int(place)
        return places


def _asked(call: Callable[..., Any], topic: str, rows: Any, *more: Any, count: int = -1) -> Any:
    wanted = len(rows) if count < 0 else count
    try:
        found = call(topic, rows, *more)
    except Exception as error:
        raise SinkError(
            f"a plugin failed for topic {topic}: {type(error).__name__}: {error}"
        ) from error
    if isinstance(found, int):
        return [found] * wanted
    if len(found) != wanted:
        raise SinkError(f"a plugin gave {len(found)} answers for {wanted} rows of topic {topic}")
    return found
