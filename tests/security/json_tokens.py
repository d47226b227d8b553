"""An identity provider of tests: keys, the set of them (JWKS), and tokens that it signs."""

import base64
import http.server
import json
import threading
import time
from contextlib import contextmanager

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from tls.authority import Authority

ISSUER, AUDIENCE = "https://issuer.example", "kafka"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
OAUTH = "listener.name.safe.oauthbearer."
KEYS = {
    "r": rsa.generate_private_key(65537, 2048),
    "e": ec.generate_private_key(ec.SECP256R1()),
    "f": ec.generate_private_key(ec.SECP384R1()),
    "o": ed25519.Ed25519PrivateKey.generate(),
    "other": rsa.generate_private_key(65537, 2048),  # in no set
    "weak": rsa.generate_private_key(65537, 1024),
}
ALGORITHMS = {"r": "RS256", "e": "ES256", "f": "ES384", "o": "EdDSA", "other": "RS256"}
IN_SET = ("r", "e", "f", "o")


def jwk(name, **more):
    """The public key as a row of a set."""
    public = KEYS[name].public_key()
    for kind in (
        jwt.algorithms.RSAAlgorithm,
        jwt.algorithms.ECAlgorithm,
        jwt.algorithms.OKPAlgorithm,
    ):
        try:
            row = kind.to_jwk(public, as_dict=True)
        except (TypeError, AttributeError, jwt.InvalidKeyError):
            continue
        if row.get("kty"):
            return {**row, "kid": name, **more}
    raise AssertionError(name)


def key_set(*names):
    return json.dumps({"keys": [jwk(name) for name in names or IN_SET]}).encode()


def claims(**changed):
    """None leaves a claim out."""
    now = int(time.time())
    found = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "iat": now - 10,
        "exp": now + 3600,
        "scope": ["read", "write"],
    }
    return {name: value for name, value in (found | changed).items() if value is not None}


def signed(name="r", *, algorithm=None, header=None, key=None, **changed):
    return jwt.encode(
        claims(**changed),
        key or KEYS[name],
        algorithm=algorithm or ALGORITHMS[name],
        headers={"kid": name} | (header or {}),
    )


def part(value):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unsigned(**changed):
    return f"{part({'alg': 'none'})}.{part(claims(**changed))}."


def first_message(token, *, identity="", extensions=""):
    return f"n,{identity},\x01auth=Bearer {token}\x01{extensions}\x01".encode()


def oauth_settings(folder, **changed):
    """Settings of a broker that takes tokens of KEYS; None leaves one out."""
    path = folder / "jwks.json"
    if not path.exists():
        path.write_bytes(key_set())
    found = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        OAUTH + "sasl.jaas.config": f"{MODULE} required;",
        OAUTH + "sasl.server.callback.handler.class": VALIDATOR,
        "sasl.oauthbearer.jwks.endpoint.url": path.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": f"{AUDIENCE},other",
    }
    return found | changed


class KeyServer:
    """Serves a set over HTTPS; `answer` may be changed, `asked` counts. To a POST it gives the same
    answer and keeps what was sent: (headers, form)."""

    def __init__(self):
        self.answer = (200, {}, key_set())
        self.asked = 0
        self.posted = []
        self.authority = Authority()

    @contextmanager
    def running(self, folder):
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                owner.asked += 1
                status, headers, body = owner.answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):
                form = self.rfile.read(int(self.headers["Content-Length"]))
                owner.posted.append((dict(self.headers), form.decode()))
                self.do_GET()

            def log_message(self, *_):
                pass

        import ssl

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.authority.issue().write(folder / "keys.pem"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        (folder / "ca.pem").write_text(self.authority.pem)
        self.url = f"https://localhost:{server.server_port}/keys"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
