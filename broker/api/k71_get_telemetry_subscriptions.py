"""GetTelemetrySubscriptions (71), version 0: the metrics that a client has to push (KIP-714).

Nothing on this broker receives clients' metrics, so that the subscription names none. Like Kafka
without a ClientTelemetryReceiver, this broker answers the key and ApiVersions does not list it. A
client without an id gets one.
"""

import os

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import MetadataContext
from barnabas.wire import Struct

KEY = 71
VERSIONS = (0, 0)
CONTEXT = MetadataContext
ACCESS = Access(elsewhere="nothing: every client may ask, as in Kafka")
NO_ID = bytes(16)
NOTHING_ASKED = 1  # id of the only subscription, which names no metrics
CODECS = [4, 3, 1, 2]  # zstd, lz4, gzip, snappy: in Kafka's order
PUSH_INTERVAL_MS = 300_000  # Kafka's default of `interval.ms`


def handle(request: Struct, call: Call[MetadataContext]) -> Struct:
    given = request.clientInstanceId
    return call.answer()(
        clientInstanceId=os.urandom(16) if given == NO_ID else given,
        subscriptionId=NOTHING_ASKED,
        acceptedCompressionTypes=CODECS,
        pushIntervalMs=PUSH_INTERVAL_MS,
        telemetryMaxBytes=call.context.dynamic.integer("telemetry.max.bytes"),
        deltaTemporality=True,
        requestedMetrics=[],
    )


def refuse(request: Struct, code: int, call: Call[MetadataContext]) -> Struct:
    return call.answer()(errorCode=code, clientInstanceId=request.clientInstanceId)
