"""From the frame of a request to the frame of its answer, in the Python lane.

Bytes in, bytes out: decode, find the handler, run it, encode. A key or version that is not served,
and bytes that are no such message, close the connection without an answer, as Kafka does; only
ApiVersions answers a version that nobody knows.
"""

import logging
from collections.abc import Mapping

from barnabas.api.call import Call
from barnabas.api.rooms import Rooms
from barnabas.api.table import Api
from barnabas.errors import KafkaError, UnknownServerError, UnsupportedVersion
from barnabas.wire import MalformedMessage, Struct, request
from barnabas.wire.api_keys import API_VERSIONS
from barnabas.wire.headers import decode_request_header, encode_response

log = logging.getLogger("barnabas.api")


class CloseConnection(Exception):
    """The request gets no answer and its connection is closed; the text says why."""


class Dispatcher:
    """The handlers of one broker."""

    def __init__(self, rooms: Rooms, table: Mapping[int, Api]) -> None:
        self.rooms = rooms
        self.table = table

    def answer(self, data: bytes, listener: str, peer: tuple[str, int]) -> bytes:
        """The framed answer to a request's frame (without its size). Raises CloseConnection."""
        try:
            header, body_at = decode_request_header(data)
        except (MalformedMessage, UnsupportedVersion) as error:
            raise CloseConnection(str(error)) from error
        key, version = header.requestApiKey, header.requestApiVersion
        api = self.table.get(key)
        known = api is not None and api.serves(version)
        if not known and key != API_VERSIONS:
            raise CloseConnection(f"API key {key} version {version} is not served")
        assert api is not None
        answer_version = version if known else 0
        call = Call(self.rooms, key, answer_version, header.clientId, listener, peer)
        if not known:
            assert api.refuse is not None
            body = api.refuse(request(key).cls(), UnsupportedVersion.code, call)
        else:
            body = self._handled(api, call, data, body_at)
        return encode_response(key, answer_version, header.correlationId, body)

    def _handled(self, api: Api, call: Call, data: bytes, body_at: int) -> Struct:
        try:
            asked = request(api.key).decode(data, call.version, body_at)
        except MalformedMessage as error:
            raise CloseConnection(str(error)) from error
        if api.handle is None or api.refuse is None:
            raise CloseConnection(f"{api.name} version {call.version} is not served here")
        try:
            return api.handle(asked, call)
        except KafkaError as error:
            return api.refuse(asked, error.code, call)
        except Exception:
            log.exception("%s version %d from %s failed", api.name, call.version, call.peer)
            return api.refuse(asked, UnknownServerError.code, call)
