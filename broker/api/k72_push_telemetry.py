"""PushTelemetry (72), version 0: a client's metrics (KIP-714).

Nothing receives them: the broker answers a push for the subscription of key 71, which names no
metrics, with success and drops it. ApiVersions does not list this key, as it does not list 71.
"""

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import MetadataContext
from barnabas.api.k71_get_telemetry_subscriptions import NO_ID, NOTHING_ASKED
from barnabas.errors import InvalidRequest, TelemetryTooLarge, UnknownSubscriptionId
from barnabas.wire import Struct

KEY = 72
VERSIONS = (0, 0)
CONTEXT = MetadataContext
ACCESS = Access(elsewhere="nothing: every client may ask, as in Kafka")


def handle(request: Struct, call: Call[MetadataContext]) -> Struct:
    if request.clientInstanceId == NO_ID:
        raise InvalidRequest()
    if request.subscriptionId != NOTHING_ASKED:
        raise UnknownSubscriptionId()
    if len(request.metrics) > call.context.dynamic.integer("telemetry.max.bytes"):
        raise TelemetryTooLarge()
    return call.answer()()


def refuse(_request: Struct, code: int, call: Call[MetadataContext]) -> Struct:
    return call.answer()(errorCode=code)
