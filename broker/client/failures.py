"""Failures between a client and a broker that have no error code in the protocol."""

from barnabas.errors import NONE, UnknownTopicOrPartition, error_of


class ClientError(Exception):
    """The base of the client's own errors; its `str` is one plain line."""


class BadAddress(ClientError):
    """An address that is not HOST:PORT."""


class CannotConnect(ClientError):
    """No broker accepts the connection."""


class NoTls(CannotConnect):
    """A certificate is missing or not trusted: a retry cannot succeed."""


class BadSetting(ClientError):
    """A connection setting is missing or has an invalid value."""


class AuthenticationFailed(ClientError):
    """The login failed in this client: it has no token or ticket to log in with, or the broker did
    not prove its identity."""


class ConnectionLost(ClientError):
    """The connection ended, or no answer came in time: the broker may or may not have carried out
    the request."""


class ProtocolViolation(ClientError):
    """The answer does not follow Kafka's protocol."""


class AnswerTooLarge(ProtocolViolation):
    """The answer announces more bytes than this client accepts."""


class NotSpokenByBroker(ClientError):
    """The broker does not support a request, or supports no version that this client needs."""


def raise_for(code: int, what: str, message: str | None = None) -> None:
    """Raises the error of a code; its message names the subject `what`. Does nothing for success.
    `message`: the broker's own text. For an unknown topic, whose text differs between brokers, the
    client has its own text."""
    if code == NONE:
        return
    kind = error_of(code)
    text = (message or kind.meaning).rstrip(".")
    if kind is UnknownTopicOrPartition and what.startswith("topic "):
        text = f"there is no {what}"
    raise kind(text if what.casefold() in text.casefold() else f"{what}: {text}")
