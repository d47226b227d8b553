"""Requests 50 and 51 as plain calls."""

import hashlib

from barnabas.wire import request

KINDS = {1: "sha256", 2: "sha512"}


def upsertion(name, password, mechanism=1, iterations=4096, salt=b"saltsalt"):
    kind = KINDS.get(mechanism, "sha256")
    salted = hashlib.pbkdf2_hmac(kind, password.encode(), salt, max(iterations, 1))
    row = request(51).struct("upsertions")
    return row(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, saltedPassword=salted
    )


def alter(wire, *, deletions=(), upsertions=()):
    """User -> (error code, text)."""
    ask = request(51)
    gone = [ask.struct("deletions")(name=name, mechanism=number) for name, number in deletions]
    answer = wire.call(51, 0, ask.cls(deletions=gone, upsertions=list(upsertions)))
    return {row.user: (row.errorCode, row.errorMessage) for row in answer.results}


def described(wire, names=None):
    """User -> (error code, {mechanism: iterations})."""
    ask = request(50)
    users = None if names is None else [ask.struct("users")(name=name) for name in names]
    answer = wire.call(50, 0, ask.cls(users=users))
    return {
        row.user: (row.errorCode, {c.mechanism: c.iterations for c in row.credentialInfos})
        for row in answer.results
    }
