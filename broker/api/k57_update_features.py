"""UpdateFeatures (57), versions 0-2: changes finalized levels of features, all of them or none.

v1 the upgrade type, validateOnly; v2 one error for all instead of a row for each feature.
"""

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import FeatureContext
from barnabas.controller.features import FeatureUpdate
from barnabas.errors import InvalidUpdateVersion
from barnabas.security.acl_codes import ALTER
from barnabas.wire import Struct

KEY = 57
VERSIONS = (0, 2)
CONTEXT = FeatureContext
ACCESS = of_cluster(ALTER)


def handle(request: Struct, call: Call[FeatureContext]) -> Struct:
    updates = [
        FeatureUpdate(row.feature, row.maxVersionLevel, row.upgradeType)
        for row in request.featureUpdates
    ]
    try:
        call.context.features.update(updates, request.validateOnly)
    except InvalidUpdateVersion as error:
        return call.answer()(errorCode=error.code, errorMessage=error.message)
    row_of = call.struct("results")
    rows = [row_of(feature=update.name, errorMessage="NONE") for update in updates]
    return call.answer()(errorMessage=None, results=rows if call.version < 2 else [])


def refuse(request: Struct, code: int, call: Call[FeatureContext]) -> Struct:
    return call.answer()(errorCode=code, errorMessage=None)
