"""What can go wrong between a client and a broker, apart from the codes of the protocol."""

from barnabas.errors import NONE, error_of


class ClientError(Exception):
    """Base of the client's own errors; `str` is one plain line."""


class BadAddress(ClientError):
    """An address that is not HOST:PORT."""


class CannotConnect(ClientError):
    """Nobody takes the connection."""


class NoTls(CannotConnect):
    """Certificates that are not to be had or not trusted: trying again changes nothing."""


class BadSetting(ClientError):
    """A setting of how to connect that is missing or has a value that it cannot have."""


class AuthenticationFailed(ClientError):
    """The broker does not prove that it is the one that knows the password."""


class ConnectionLost(ClientError):
    """The connection ended, or gave no answer in time: the request may or may not be done."""


class ProtocolViolation(ClientError):
    """The answer is not one of Kafka's protocol."""


class AnswerTooLarge(ProtocolViolation):
    """The answer announces more bytes than this client takes."""


class NotSpokenByBroker(ClientError):
    """The broker does not serve a request, or none of the versions that this client needs."""


def raise_for(code: int, what: str, message: str | None = None) -> None:
    """Raises the error of a code, naming what it is about; does nothing for success."""
    if code != NONE:
        kind = error_of(code)
        text = message or kind.meaning
        raise kind(text if what in text else f"{what}: {text}")
