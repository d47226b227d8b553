"""AlterUserScramCredentials (51), version 0: SCRAM credentials of users, set and deleted.

The client sends the salted password; the broker keeps the two keys that SCRAM needs of it. A user
may be altered once in a request, as in Kafka; a user that fails does not stop the others.
"""

from __future__ import annotations

from barnabas.api.access import of_cluster
from barnabas.api.call import Call
from barnabas.api.contexts import UserContext
from barnabas.api.store_errors import ANSWERED, kafka_error_of
from barnabas.controller.user_credentials import UserCredentials
from barnabas.errors import (
    DuplicateResource,
    KafkaError,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from barnabas.security import credentials
from barnabas.security.acl_codes import ALTER
from barnabas.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, TYPES, credential_of
from barnabas.wire import Struct

KEY = 51
VERSIONS = (0, 0)
CONTEXT = UserContext
ACCESS = of_cluster(ALTER)
TWICE = "A user credential cannot be altered twice in the same request"


def handle(request: Struct, call: Call[UserContext]) -> Struct:
    accepted: dict[str, Struct] = {}
    errors: dict[str, KafkaError] = {}
    for row in (*request.deletions, *request.upsertions):
        if row.name in accepted:
            del accepted[row.name]
            errors[row.name] = DuplicateResource(TWICE)
        elif row.name not in errors:
            problem = _problem(row, call)
            if problem is None:
                accepted[row.name] = row
            else:
                errors[row.name] = problem
    for row in accepted.values():
        try:
            _alter(row, call.context.users())
        except ANSWERED as failure:
            errors[row.name] = kafka_error_of(failure, call)
    result = call.struct("results")
    results = [result(user=name, errorMessage=None) for name in accepted if name not in errors]
    for name, error in errors.items():
        results.append(result(user=name, errorCode=error.code, errorMessage=error.message))
    return call.answer()(results=results)


def _is_deletion(row: Struct) -> bool:
    return not hasattr(row, "iterations")


def _problem(row: Struct, call: Call[UserContext]) -> KafkaError | None:
    mechanism = TYPES.get(row.mechanism)
    if not row.name:
        return UnacceptableCredential("Username must not be empty")
    if mechanism is None:
        return UnsupportedSaslMechanism("Unknown SCRAM mechanism")
    if _is_deletion(row):
        if credentials.text_of(call.context.cluster(), row.name, mechanism) is None:
            return ResourceNotFound("Attempt to delete a user credential that does not exist")
    elif row.iterations < ITERATIONS_MIN:
        return UnacceptableCredential("Too few iterations")
    elif row.iterations > ITERATIONS_MAX:
        return UnacceptableCredential("Too many iterations")
    elif not row.salt or not row.saltedPassword:
        return UnacceptableCredential("The salt and the salted password must not be empty")
    return None


def _alter(row: Struct, users: UserCredentials) -> None:
    """Carries out one row. Raises KafkaError, MetadataError."""
    mechanism = TYPES[row.mechanism]
    if _is_deletion(row):
        users.delete(row.name, mechanism)
        return
    salt, salted = bytes(row.salt), bytes(row.saltedPassword)
    users.store(row.name, mechanism, credential_of(mechanism, salt, salted, row.iterations))


def refuse(request: Struct, code: int, call: Call[UserContext]) -> Struct:
    names = dict.fromkeys(row.name for row in (*request.deletions, *request.upsertions))
    row = call.struct("results")
    return call.answer()(results=[row(user=name, errorCode=code) for name in names])
