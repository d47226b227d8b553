"""Features of a cluster and their levels (KIP-584): ApiVersions and UpdateFeatures.

Any broker answers the first, the controller the second.
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.failures import raise_for
from barnabas.wire import request

API_VERSIONS, UPDATE_FEATURES = 18, 57
LISTED_FROM = 3  # the version of ApiVersions that lists features
TYPES_FROM = 1  # the version of UpdateFeatures that distinguishes upgrade and downgrade
UPGRADE, UNSAFE_DOWNGRADE = 1, 3


class FeatureLevel(NamedTuple):
    """A feature: its level in the cluster, 0 when it is switched off, and the levels that the
    broker supports."""

    name: str
    level: int
    first: int
    last: int


def list_features(cluster: Cluster) -> list[FeatureLevel]:
    """Returns the features that a broker supports (Kafka 2.4 and later). Raises NotSpokenByBroker
    and other ClientErrors."""
    body = request(API_VERSIONS).cls(clientSoftwareName="barnabas", clientSoftwareVersion="client")

    def step() -> list[FeatureLevel]:
        answer = cluster.any_connection().call(API_VERSIONS, body, low=LISTED_FROM)
        raise_for(answer.errorCode, "features")
        levels = {row.name: row.maxVersionLevel for row in answer.finalizedFeatures}
        return [
            FeatureLevel(row.name, levels.get(row.name, 0), row.minVersion, row.maxVersion)
            for row in answer.supportedFeatures
        ]

    return cluster.retrying(step)


def update_features(cluster: Cluster, levels: Mapping[str, int], *, downgrade: bool) -> None:
    """Finalizes levels of features, all of them or none (Kafka 3.3 and later). `downgrade`: a level
    may be lower than before; what was written at the former level stays. Raises
    InvalidUpdateVersion, ClusterAuthorizationFailed, NotSpokenByBroker and other ClientErrors."""
    message = request(UPDATE_FEATURES)
    kind = UNSAFE_DOWNGRADE if downgrade else UPGRADE
    row_of = message.struct("featureUpdates")
    rows = [
        row_of(feature=name, maxVersionLevel=level, upgradeType=kind)
        for name, level in levels.items()
    ]
    body = message.cls(timeoutMs=round(1000 * cluster.timeout_s), featureUpdates=rows)

    def step() -> None:
        answer = cluster.controller().call(UPDATE_FEATURES, body, low=TYPES_FROM)
        raise_for(answer.errorCode, "features", answer.errorMessage)
        for row in getattr(answer, "results", None) or ():
            raise_for(row.errorCode, f"feature {row.feature}", row.errorMessage)

    cluster.retrying(step)
