"""SASL OAUTHBEARER of a client (RFC 7628): sends a token of an identity provider.

    broker gets   n,,^A auth=Bearer TOKEN ^A [name=value ^A]... ^A      ^A is the byte 1; no spaces
    provider gets POST, Authorization: Basic, grant_type=client_credentials  (RFC 6749, section 4.4)

The token comes from a file, which is read for each login, or from the provider's token endpoint.
The client keeps a token of the endpoint until RENEWED_AT of its lifetime has passed, or a broker
refuses it. Spark's tasks get it with the settings, so that few of them request one. Kafka:
OAuthBearerLoginCallbackHandler, FileJwtRetriever, ClientCredentialsJwtRetriever.

Limits: a token has at most 64 KiB; those of tls/https.py.
"""

import base64
import binascii
import json
import re
import time
import urllib.error
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple
from urllib.parse import quote_plus, urlencode

from barnabas.client.failures import AuthenticationFailed, CannotConnect
from barnabas.client.security import Tls
from barnabas.errors import KafkaError
from barnabas.tls.https import file_of, read_file, read_https

TOKEN_BYTES_MAX = 65536
RENEWED_AT = 0.8  # sasl.login.refresh.window.factor of Kafka
SIGNED = re.compile(r"[-_A-Za-z0-9]+\.(?P<claims>[-_A-Za-z0-9]+)\.[-_A-Za-z0-9]*")


class Token(NamedTuple):
    """A token; times are in seconds since 1970."""

    text: str
    renew_at_s: float


@dataclass(frozen=True, slots=True)
class OAuthBearer:
    """A login with a bearer token. `url`: of the token file or endpoint. `tls`: the certificates
    that the endpoint's client trusts, and its own certificate. `extensions` are sent to the
    broker."""

    mechanism: ClassVar[str] = "OAUTHBEARER"
    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    tls: Tls = Tls()
    encodes_header: bool = False  # sasl.oauthbearer.header.urlencode
    _kept: list[Token] = field(default_factory=list, init=False, compare=False, repr=False)

    @property
    def who(self) -> str:
        return f"client {self.client_id}" if self.client_id else f"the user of {self.url}"

    def authenticate(self, exchange: Callable[[bytes], bytes], _host: str) -> None:
        """Logs in with a token of the endpoint or the file (RFC 7628). `exchange` sends a message
        and returns the broker's. Raises AuthenticationFailed; CannotConnect when the endpoint
        cannot be reached."""
        more = "".join(f"{name}={value}\x01" for name, value in self.extensions)
        first = f"n,,\x01auth=Bearer {self._token()}\x01{more}\x01"
        try:
            if exchange(first.encode()):  # it sends the reason as JSON, and fails after our answer
                exchange(b"\x01")
                raise AuthenticationFailed(f"{self.who}: the broker refuses the token")
        except (AuthenticationFailed, KafkaError):
            self._kept.clear()
            raise

    def _token(self) -> str:
        now_s = time.time()
        kept = self._kept[:1]  # another thread may replace it
        if kept and now_s < kept[0].renew_at_s:
            return kept[0].text
        path = file_of(self.url)
        text = self._of_file(path) if path is not None else self._of_endpoint()
        renew_at_s = now_s + RENEWED_AT * (self._expiry_s(text) - now_s)
        if path is None:
            self._kept[:] = [Token(text, renew_at_s)]
        return text

    def _of_file(self, path: str) -> str:
        try:
            return read_file(path, TOKEN_BYTES_MAX).decode("ascii", "replace").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise AuthenticationFailed(
                f"the token of {self.url} cannot be read: {reason}"
            ) from None

    def _of_endpoint(self) -> str:
        asked = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        parts = (self.client_id, self.client_secret)
        name = ":".join(map(quote_plus, parts) if self.encodes_header else parts)
        headers = {
            "Authorization": f"Basic {base64.b64encode(name.encode()).decode()}",
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        form = urlencode(asked).encode()
        try:
            answer = read_https(
                self.url, self.tls.context(), TOKEN_BYTES_MAX, form=form, headers=headers
            )
            found = json.loads(answer)
            return str(found.get("access_token") or found["id_token"]).strip()
        except urllib.error.HTTPError as error:
            kind = AuthenticationFailed if 300 <= error.code < 500 else CannotConnect
            raise kind(f"no token from {self.url} for {self.who}: HTTP {error.code}") from None
        except OSError as error:
            raise CannotConnect(f"no token from {self.url}: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise AuthenticationFailed(
                f"no token from {self.url}: its answer is not JSON with access_token"
            ) from None

    def _expiry_s(self, text: str) -> float:
        """Returns the expiry time of a token, in seconds since 1970. The broker verifies the token;
        this client needs only the expiry, as Kafka's ClientJwtValidator."""
        found = SIGNED.fullmatch(text)
        try:
            padded = found["claims"] + "===" if found is not None else ""
            return float(json.loads(base64.urlsafe_b64decode(padded))["exp"])
        except (binascii.Error, ValueError, KeyError, TypeError, RecursionError):
            raise AuthenticationFailed(
                f"what {self.url} returns is not a JSON Web Token with an expiry time (exp)"
            ) from None
