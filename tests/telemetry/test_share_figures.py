"""The metrics of share groups on the metrics page."""

import time

from compat.support import create_topic, produce_batch
from oracle.exposition import rows_of
from share.share_member import ShareMember, configure
from telemetry.conftest import watched

ACCEPT, RELEASE = 1, 2
PATIENCE_S = 40


def value_of(page, name, **labels):
    """The value of the one sample of a name with these labels."""
    (found,) = [value for given, value in rows_of(page, name) if given == labels]
    return found


def test_sessions_acknowledgements_and_groups(tmp_path):
    topics = "kafka_server_brokertopicmetrics_"
    groups = "kafka_server_group_coordinator_metrics_"
    cache = "kafka_server_sharesessioncache_"
    records = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
    with watched(tmp_path) as watch:
        assert value_of(watch.page(), f"{cache}sharesessionscount") == 0
        create_topic(watch.bootstrap, "t", 1)
        produce_batch(watch.bootstrap, "t", [b"x"] * 5)
        assert configure(watch.bootstrap, "g", share_auto_offset_reset="earliest") == 0
        member = ShareMember(watch.bootstrap, "g").join("t")
        assert member.fetch() == [(0, 0, 4, 1)]
        assert member.acknowledge(0, 2, ACCEPT) == 0
        assert member.acknowledge(3, 4, RELEASE, ACCEPT) == 0
        assert member.acknowledge(90, 91, ACCEPT) != 0
        page = watch.page()
        assert value_of(page, f"{cache}sharesessionscount") == 1
        assert value_of(page, f"{cache}sharepartitionscount") == 1
        assert value_of(page, f"{cache}sharesessionevictions_total") == 0
        assert value_of(page, f"{topics}totalsharefetchrequests_total", topic="t") == 1
        assert value_of(page, f"{topics}totalshareacknowledgementrequests_total", topic="t") == 3
        assert value_of(page, f"{topics}failedshareacknowledgementrequests_total") == 1
        assert value_of(page, f"{topics}failedsharefetchrequests_total") == 0
        assert value_of(page, records, ackType="Accept") == 4
        assert value_of(page, records, ackType="Release") == 1
        assert value_of(page, "kafka_server_sharegroupmetrics_partitionloadtimems_count") == 1
        assert value_of(page, f"{groups}group_count", protocol="share") == 1
        assert value_of(page, f"{groups}share_group_count", state="Stable") == 1
        assert value_of(page, f"{groups}share_group_rebalance_count") >= 1
        state = "kafka_server_share_coordinator_metrics_"
        assert value_of(page, f"{state}write_total") == 2
        assert value_of(page, f"{state}num_partitions", state="active") > 0
        member.close()
        deadline = time.monotonic() + PATIENCE_S
        while value_of(page, f"{cache}sharesessionscount") and time.monotonic() < deadline:
            page = watch.page()
        assert value_of(page, f"{cache}sharesessionevictions_total") == 1
