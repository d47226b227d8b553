"""Why a login fails."""


class LoginFailed(Exception):
    """`text` goes to the client and to the log: it holds neither a name nor a password, and it does
    not say whether a user exists."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class InvalidCredentials(LoginFailed):
    """For a mechanism whose own reasons stay in the broker, as in Kafka."""

    def __init__(self, mechanism: str) -> None:
        super().__init__(
            "Authentication failed during authentication due to invalid credentials with SASL"
            f" mechanism {mechanism}"
        )
