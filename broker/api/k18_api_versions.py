"""ApiVersions (18), versions 0-5: the API keys and versions that this broker supports.

A request of an unknown version gets an answer of version 0 with error 35 and the list, and the
connection stays open: clients retry with a lower version (dispatch.py does that part).

v1 throttle time; v3 flexible, client software's name and version (checked), features; v4 features
whose lowest level is 0, which older clients treat as an error; v5 the cluster id and node id that
the client expects.
"""

import re

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import VersionContext
from barnabas.errors import InvalidRequest, UnsupportedVersion
from barnabas.wire import Struct

KEY = 18
VERSIONS = (0, 5)
CONTEXT = VersionContext
ACCESS = Access(elsewhere="nothing: it is asked before a login")
SOFTWARE = r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?"


def handle(request: Struct, call: Call[VersionContext]) -> Struct:
    if call.version >= 3:
        names = (request.clientSoftwareName, request.clientSoftwareVersion)
        if not all(re.fullmatch(SOFTWARE, name) for name in names):
            return refuse(request, InvalidRequest.code, call)
    return _answer(0, call)


def cacheable_codes(answer: Struct) -> int:
    """Returns the number of error codes in an answer that the response cache may hold, 1; 0 for an
    answer with an error. The answers are valid until a feature level changes."""
    return 1 if answer.errorCode == 0 else 0


def refuse(request: Struct, code: int, call: Call[VersionContext]) -> Struct:
    return _answer(code, call, everything=code in (0, UnsupportedVersion.code))


def _answer(code: int, call: Call[VersionContext], everything: bool = True) -> Struct:
    row = call.struct("apiKeys")
    rows = []
    if everything:
        rows = [
            row(apiKey=key, minVersion=low, maxVersion=high)
            for key, low, high in call.context.api_versions
        ]
    answer = call.answer()(errorCode=code, apiKeys=rows)
    if call.version >= 3 and code == 0:
        _add_features(answer, call)
    return answer


def _add_features(answer: Struct, call: Call[VersionContext]) -> None:
    features = call.context.features
    supported, finalized = call.struct("supportedFeatures"), call.struct("finalizedFeatures")
    answer.supportedFeatures = [
        supported(name=row.name, minVersion=row.version_min, maxVersion=row.version_max)
        for row in features.supported.values()
        if row.version_min > 0 or call.version >= 4
    ]
    answer.finalizedFeaturesEpoch = features.epoch
    answer.finalizedFeatures = [
        finalized(name=name, maxVersionLevel=level, minVersionLevel=level)
        for name, level in features.finalized().items()
    ]
