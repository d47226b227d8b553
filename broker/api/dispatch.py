"""Turns the frame of a request into the frame of its answer, on a request handler thread.

The input and the output are bytes: this module decodes the request, finds and runs its handler, and
encodes the answer. For an unsupported API key or version, or bytes that do not decode, the broker
closes the connection without an answer, as Kafka does. Only ApiVersions answers an unknown version.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from barnabas.api.call import Call
from barnabas.api.guard import guarded
from barnabas.api.later import Later
from barnabas.api.store_errors import ANSWERED, kafka_error_of
from barnabas.api.table import Api
from barnabas.cext.network.request_queue import PendingRequest
from barnabas.errors import KafkaError, UnknownServerError, UnsupportedVersion
from barnabas.wire import MalformedMessage, Struct, request
from barnabas.wire.api_keys import API_VERSIONS
from barnabas.wire.headers import encode_response

if TYPE_CHECKING:
    from barnabas.security.authorizer import Authorizer

log = logging.getLogger("barnabas.api")


class CloseConnection(Exception):
    """The broker closes the connection without an answer; the text says why."""


class Dispatcher:
    """The handlers of one broker."""

    def __init__(
        self,
        contexts: Mapping[type, object],
        table: Mapping[int, Api],
        count_errors: Callable[[int, Struct], object] | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self._contexts = contexts  # by their types
        self.table = table
        self._count_errors = count_errors  # with the key and the answer
        self.authorizer = authorizer

    def answer(
        self, pending: PendingRequest, keep: Callable[[bytes, int], object] | None = None
    ) -> bytes | None:
        """Returns the framed answer to a request; None when another thread passes the answer to
        `pending.reply` later. `keep` is called with an answer that the response cache may hold, and
        the number of its error codes. Raises CloseConnection."""
        key, version = pending.api_key, pending.api_version
        api = self.table.get(key)
        known = api is not None and api.serves(version)
        if not known and (key != API_VERSIONS or version < 0):
            raise CloseConnection(f"API key {key} version {version} is not served")
        assert api is not None
        answer_version = version if known else 0
        call = Call(self._contexts[api.context], key, answer_version, pending, self.authorizer)
        if not known:
            assert api.refuse is not None
            body = api.refuse(request(key).cls(), UnsupportedVersion.code, call)
        else:
            asked, found = self._handled(api, call)
            if isinstance(found, Later):
                found.when_settled(_Sender(api, call, asked, self._encode))
                return None
            body = found
        frame = self._encode(key, answer_version, pending.correlation_id, body)
        if keep is not None and api.cacheable_codes is not None and known:
            code_count = api.cacheable_codes(body)
            if code_count:
                keep(frame, code_count)
        return frame

    def _encode(self, key: int, version: int, correlation_id: int, body: Struct) -> bytes:
        if self._count_errors is not None:
            self._count_errors(key, body)
        return encode_response(key, version, correlation_id, body)

    def _handled(self, api: Api, call: Call[Any]) -> tuple[Struct, Struct | Later]:
        """Decodes the request and runs its handler; returns the request and the answer. Raises
        CloseConnection."""
        try:
            # The broker ignores bytes after the message, as Kafka does: librdkafka 2.16 sends three
            # of them in its Metadata request for all topics.
            sent = call.pending
            asked, _ = request(api.key).program(call.version).decode(sent.data, sent.body_at)
        except MalformedMessage as error:
            raise CloseConnection(str(error)) from error
        if api.handle is None or api.refuse is None:
            raise CloseConnection(f"{api.name} version {call.version} is not served here")
        return asked, self._answered(api, call, asked)

    def _answered(self, api: Api, call: Call[Any], asked: Struct) -> Struct | Later:
        assert api.handle is not None and api.refuse is not None
        try:
            try:
                if call.authorizer is None:
                    return api.handle(asked, call)
                return guarded(api, asked, call)
            except ANSWERED as failure:
                return api.refuse(asked, kafka_error_of(failure, call).code, call)
        except Exception:
            log.exception("%s version %d from %s failed", api.name, call.version, call.peer)
            return api.refuse(asked, UnknownServerError.code, call)


class _Sender:
    """Encodes a later answer and sends it to the client."""

    __slots__ = ("_api", "_asked", "_call", "_encode")

    def __init__(
        self,
        api: Api,
        call: Call[Any],
        asked: Struct,
        encode: Callable[[int, int, int, Struct], bytes],
    ) -> None:
        self._api = api
        self._call = call
        self._asked = asked
        self._encode = encode

    def __call__(self, outcome: Struct | KafkaError) -> None:
        api, call = self._api, self._call
        assert api.refuse is not None
        if isinstance(outcome, KafkaError):
            outcome = api.refuse(self._asked, outcome.code, call)
        pending = call.pending
        pending.reply(self._encode(api.key, call.version, pending.correlation_id, outcome))
