"""The header before each message, after the frame's int32 size.

    request v0    apiKey int16, apiVersion int16, correlationId int32   ControlledShutdown v0 only
    request v1    v0, clientId nullable string (int16 length, always)   inflexible versions
    request v2    v1, tagged section                                    flexible versions
    response v0   correlationId int32                                   inflexible; all ApiVersions
    response v1   v0, tagged section                                    flexible versions

ApiVersions has response header v0 in every version, because the client does not know our versions
yet. For the same reason the broker reads the header of an ApiVersions request of an unknown
version, so that error 35 (UNSUPPORTED_VERSION) has the right correlation id.
"""

from functools import cache

from barnabas.cext.codec.wire import MalformedMessage, Program
from barnabas.cext.codec.wire import encode as encode_pair
from barnabas.cext.codec.wire_struct import Struct
from barnabas.wire.api_keys import API_VERSIONS, CONTROLLED_SHUTDOWN, api_key
from barnabas.wire.messages import Buffer, by_name, request, response


def request_header_version(key: int, version: int) -> int:
    """Returns the version of a request's header. Raises UnsupportedVersion for an unknown key; the
    version may be unknown."""
    if key == CONTROLLED_SHUTDOWN and version == 0:
        return 0
    flexible_from = api_key(key).request_flexible_from
    return 1 if flexible_from is None or version < flexible_from else 2


def response_header_version(key: int, version: int) -> int:
    """Returns the version of a response's header: 0 or 1; 0 for ApiVersions. Raises
    UnsupportedVersion for an unknown key."""
    flexible_from = api_key(key).response_flexible_from
    if key == API_VERSIONS or flexible_from is None:
        return 0
    return 0 if version < flexible_from else 1


def _request_program(key: int, version: int) -> Program:
    return by_name("RequestHeader").program(request_header_version(key, version))


def _response_program(key: int, version: int) -> Program:
    return by_name("ResponseHeader").program(response_header_version(key, version))


def decode_request_header(data: Buffer, offset: int = 0) -> tuple[Struct, int]:
    """Returns the header, and the offset of the body. Raises MalformedMessage, UnsupportedVersion
    (unknown key)."""
    view = memoryview(data)
    if len(view) - offset < 4:
        raise MalformedMessage(f"request header at byte {offset}: ends early")
    key = int.from_bytes(view[offset : offset + 2], "big", signed=True)
    version = int.from_bytes(view[offset + 2 : offset + 4], "big", signed=True)
    if version < 0:
        raise MalformedMessage(f"request header at byte {offset}: version {version} of key {key}")
    return _request_program(key, version).decode(data, offset)


def decode_response_header(data: Buffer, key: int, version: int) -> tuple[Struct, int]:
    """Returns the header of a response to a request of that key and version, and the offset of the
    body. Raises MalformedMessage, UnsupportedVersion."""
    return _response_program(key, version).decode(data)


def encode_request(
    key: int,
    version: int,
    correlation_id: int,
    client_id: str | None,
    body: Struct | bytes,
    framed: bool = True,
) -> bytes:
    """Returns the bytes of a request: its size (when framed), header and body. `body`: bytes are
    encoded already. Raises UnsupportedVersion, UnwritableMessage."""
    program, header = _request_header(key, version, correlation_id, client_id)
    if isinstance(body, bytes):
        head = program.encode(header)
        size = (len(head) + len(body)).to_bytes(4, "big") if framed else b""
        return b"".join((size, head, body))
    return encode_pair(program, header, request(key).program(version), body, framed)


def encode_request_header(
    key: int, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Returns the header of a request whose body is already encoded, without the frame's size.
    `client_id`: None is a null string. Raises UnsupportedVersion."""
    program, header = _request_header(key, version, correlation_id, client_id)
    return program.encode(header)


def _request_header(
    key: int, version: int, correlation_id: int, client_id: str | None
) -> tuple[Program, Struct]:
    program = _request_program(key, version)
    header = program.cls(requestApiKey=key, requestApiVersion=version, correlationId=correlation_id)
    if request_header_version(key, version) > 0:
        header.clientId = client_id
    return program, header


def encode_response(
    key: int, version: int, correlation_id: int, body: Struct, framed: bool = True
) -> bytes:
    """Returns the bytes of a response: its size (when framed), header and body. Raises
    UnsupportedVersion, UnwritableMessage."""
    program, body_program = _answer_programs(key, version)
    header = program.cls(correlationId=correlation_id)
    return encode_pair(program, header, body_program, body, framed)


@cache  # each answer needs one; one entry for each version of an API key
def _answer_programs(key: int, version: int) -> tuple[Program, Program]:
    return _response_program(key, version), response(key).program(version)
