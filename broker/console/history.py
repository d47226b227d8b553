"""The last minutes of rates and lag, sampled from this broker's metrics while the console runs.

| limit | value |
|---|---|
| SAMPLES_MAX | samples of a series: 30 minutes (opening.PERIOD_MS) |
| SERIES_MAX | series; further topics and groups have none |

A series that has no value in a sample is dropped: its topic or group is gone, or moved to another
broker. Numbers of groups and topics that this broker coordinates or leads are known here; other
brokers have those of theirs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from barnabas.telemetry.broker_metrics import BYTES_IN, BYTES_OUT, MESSAGES_IN
from barnabas.telemetry.group_metrics import LAG_SUM
from barnabas.telemetry.registry import DIALECTS, Family, Page

SAMPLES_MAX = 180
SERIES_MAX = 2000
RATES = {MESSAGES_IN: "records", BYTES_IN: "bytes in", BYTES_OUT: "bytes out"}
TOTAL = ""  # the topic of the sums over all topics

Key = tuple[str, ...]


class _Labels(str):
    """The text of labels, which keeps their values."""

    values: Mapping[str, object]


class _LabelsPage(Page):
    def labels(self, **values: object) -> str:
        found = _Labels(super().labels(**values))
        found.values = values
        return found


class History:
    """The samples of one broker. `families` returns the metrics for a page; `now_ns`: a monotonic
    clock."""

    def __init__(
        self, families: Callable[[Page], Iterable[Family]], now_ns: Callable[[], int]
    ) -> None:
        self._families, self._now_ns = families, now_ns
        self._lock = threading.Lock()
        self._series: dict[Key, deque[tuple[int, float]]] = {}

    def sample(self) -> None:
        """Takes one sample of all series."""
        now_ns = self._now_ns()
        found: dict[Key, float] = {}
        for metric, samples in self._families(_LabelsPage(DIALECTS[0], now_ns)):
            if metric in RATES:
                for labels, value in samples:
                    if isinstance(value, int | float):
                        topic = str(_values(labels).get("topic", TOTAL))
                        found["rate", RATES[metric], topic] = value
            elif metric is LAG_SUM:
                for labels, value in samples:
                    if isinstance(value, int | float):
                        row = _values(labels)
                        found["lag", str(row["consumergroup"]), str(row["topic"])] = value
        with self._lock:
            for key in self._series.keys() - found.keys():
                del self._series[key]
            for key, value in found.items():
                if key not in self._series:
                    if len(self._series) >= SERIES_MAX:
                        continue
                    self._series[key] = deque(maxlen=SAMPLES_MAX)
                self._series[key].append((now_ns, value))

    def lag(self, group: str, topic: str) -> Sequence[float]:
        """Returns the lag of a group in all partitions of a topic, the oldest sample first; empty
        when this broker does not coordinate the group."""
        with self._lock:
            return [value for _, value in self._series.get(("lag", group, topic), ())]

    def rates(self, kind: str, topic: str = TOTAL) -> Sequence[float]:
        """Returns growth per second between samples, the oldest first. `kind`: a value of RATES;
        `topic`: TOTAL for the sum over all topics."""
        with self._lock:
            rows = list(self._series.get(("rate", kind, topic), ()))
        return [
            max(value - before, 0) * 1e9 / (at_ns - before_ns)
            for (before_ns, before), (at_ns, value) in zip(rows, rows[1:], strict=False)
            if at_ns > before_ns
        ]


def _values(labels: str) -> Mapping[str, object]:
    return labels.values if isinstance(labels, _Labels) else {}
