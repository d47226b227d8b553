"""ListGroups (16), versions 0-5: the groups that this node coordinates.

v1 throttle time; v3 flexible; v4 states, and a filter for them; v5 types, and a filter for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import GroupContext
from barnabas.security.acl_codes import DESCRIBE, GROUP
from barnabas.wire import Struct

if TYPE_CHECKING:
    from barnabas.coordinator.groups.administration import GroupListing

KEY = 16
VERSIONS = (0, 5)
CONTEXT = GroupContext
ACCESS = Access(elsewhere="handle: DESCRIBE of the cluster, or of each group")


def handle(request: Struct, call: Call[GroupContext]) -> Struct:
    row = call.struct("groups")
    listed: Iterable[GroupListing] = call.context.administration.list_groups(
        request.statesFilter if call.version >= 4 else (),
        request.typesFilter if call.version >= 5 else (),
    )
    if not call.may(DESCRIBE, quiet=True):
        listed = call.permitted(listed, DESCRIBE, GROUP, lambda group: group.group_id)
    return call.answer()(
        groups=[
            row(
                groupId=group.group_id,
                protocolType=group.protocol_type,
                groupState=group.state,
                groupType=group.group_type,
            )
            for group in listed
        ]
    )


def refuse(request: Struct, code: int, call: Call[GroupContext]) -> Struct:
    return call.answer()(errorCode=code)
