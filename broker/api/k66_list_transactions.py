"""ListTransactions (66), versions 0-2: the transactional ids that match every given filter.

The answer lists the unknown states of the filter. If all its states are unknown, no transaction
matches.

v1 the minimum duration of an open transaction; v2 a regular expression for the whole id.
"""

from barnabas.api.access import Access
from barnabas.api.call import Call
from barnabas.api.contexts import TransactionContext
from barnabas.coordinator.transactions.administration import TITLES
from barnabas.errors import InvalidRegularExpression
from barnabas.security.acl_codes import DESCRIBE, TRANSACTIONAL_ID
from barnabas.wire import Struct
from barnabas.wire.client_regex import InvalidPattern, Regex

KEY = 66
VERSIONS = (0, 2)
CONTEXT = TransactionContext
ACCESS = Access(elsewhere="handle: DESCRIBE of each transactional id")


def handle(request: Struct, call: Call[TransactionContext]) -> Struct:
    unknown = [title for title in request.stateFilters if title not in TITLES]
    states = [TITLES[title] for title in request.stateFilters if title in TITLES]
    if unknown and not states:
        return call.answer()(unknownStateFilters=unknown)
    matches = None
    if request.transactionalIdPattern:
        try:
            matches = Regex(request.transactionalIdPattern).matches
        except InvalidPattern as error:
            raise InvalidRegularExpression(str(error)) from error
    row_of = call.struct("transactionStates")
    found = call.context.administration.find(
        states, frozenset(request.producerIdFilters), request.durationFilter, matches
    )
    return call.answer()(
        unknownStateFilters=unknown,
        transactionStates=[
            row_of(
                transactionalId=name, producerId=now.producer_id, transactionState=now.state.title
            )
            for name, now in call.permitted(found, DESCRIBE, TRANSACTIONAL_ID, lambda row: row[0])
        ],
    )


def refuse(request: Struct, code: int, call: Call[TransactionContext]) -> Struct:
    return call.answer()(errorCode=code)
