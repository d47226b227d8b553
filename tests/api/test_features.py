"""ApiVersions lists features and their levels, and UpdateFeatures changes them."""

from api.admin_calls import admin_on

from barnabas.controller.features import Feature

INVALID_UPDATE_VERSION = 95
SOFTWARE = {"clientSoftwareName": "test", "clientSoftwareVersion": "1"}


def told(admin, version):
    answer = admin.call(18, version, **SOFTWARE if version >= 3 else {})
    offered = {row.name: (row.minVersion, row.maxVersion) for row in answer.supportedFeatures or ()}
    levels = {row.name: row.maxVersionLevel for row in answer.finalizedFeatures or ()}
    return offered, levels, answer.finalizedFeaturesEpoch


def update(admin, version, name, level, kind=1, **more):
    row = {"feature": name, "maxVersionLevel": level}
    if version:
        row["upgradeType"] = kind
    return admin.call(57, version, timeoutMs=1000, featureUpdates=[row], **more)


def test_features_are_listed_from_version_3_on(tmp_path):
    with admin_on(tmp_path) as a:
        for version in (0, 1, 2):
            assert told(a, version) == ({}, {}, -1)
        for version in (3, 4, 5):
            offered, levels, epoch = told(a, version)
            assert offered["metadata.version"] == (30, 30)
            assert levels["metadata.version"] == 30 and epoch == 0


def test_a_feature_that_can_be_switched_off_is_listed_from_version_4_on(tmp_path):
    with admin_on(tmp_path) as a:
        features = a.broker.node.serving.administration.features
        features.supported["test.version"] = Feature("test.version", 0, 2, 2)
        assert "test.version" not in told(a, 3)[0]
        offered, levels, _ = told(a, 4)
        assert offered["test.version"] == (0, 2) and levels["test.version"] == 2
        assert update(a, 2, "test.version", 0, kind=2).errorCode == 0
        offered, levels, epoch = told(a, 4)
        assert offered["test.version"] == (0, 2) and "test.version" not in levels and epoch == 1


def test_updates_answer_in_every_version(tmp_path):
    with admin_on(tmp_path) as a:
        for version in (0, 1, 2):
            done = update(a, version, "metadata.version", 30)
            assert (done.errorCode, done.errorMessage) == (0, None)
            rows = [(row.feature, row.errorCode) for row in done.results]
            assert rows == ([("metadata.version", 0)] if version < 2 else [])
            refused = update(a, version, "metadata.version", 31)
            assert refused.errorCode == INVALID_UPDATE_VERSION and refused.results == []
            assert "only supports versions 30-30" in refused.errorMessage
