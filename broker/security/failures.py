"""Why a login fails."""


class LoginFailed(Exception):
    """`text` goes to the client and to the log: it holds neither a name nor a password, and it does
    not say whether a user exists."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class InvalidCredentials(LoginFailed):
    """For a mechanism whose own reasons stay in the broker, as in Kafka."""

    def __init__(self, mechanism: str, *, again: bool = False) -> None:
        """`again`: the client had logged in before on its connection."""
        super().__init__(
            f"Authentication failed during {'re-' if again else ''}authentication due to invalid"
            f" credentials with SASL mechanism {mechanism}"
        )
