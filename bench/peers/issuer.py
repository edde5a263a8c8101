"""An issuer of bearer tokens on this machine (OAuth client credentials), for suites with OAUTHBEARER."""

import http.server
import json
import threading
import time
import urllib.parse
from typing import Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

LIFETIME_SECONDS = 300


class Issuer:
    """Answers `/keys` with its key, `/token`, `/expired` and `/invalid` with tokens."""

    def __init__(self, subject: str, audience: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = subject
        self._audience = audience
        self.tokens = 0
        """How many tokens were given out."""
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            """One request."""

            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                content = issuer.content(self.path)
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write((content or "{}").encode())

            do_GET = _answer  # noqa: N815
            do_POST = _answer  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Not logged."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def content(self, path: str) -> str | None:
        """The answer to a path; None for one that does not exist, and for a query without Azure's parameters."""
        path, _, query = path.partition("?")
        if query and not {"api-version", "resource", "client_id"} <= urllib.parse.parse_qs(query).keys():
            return None
        if path == "/keys":
            key = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
            return json.dumps({"keys": [{**key, "kid": "one"}]})
        lifetime = {"/token": LIFETIME_SECONDS, "/expired": -LIFETIME_SECONDS, "/invalid": LIFETIME_SECONDS}.get(path)
        if lifetime is None:
            return None
        now = int(time.time())
        claims = {
            "sub": self._subject,
            "client_id": self._subject,
            "aud": self._audience,
            "iss": self.url,
            "iat": now - 2 * LIFETIME_SECONDS,
            "exp": now + lifetime,
        }
        self.tokens += 1
        token = "nonsense" if path == "/invalid" else jwt.encode(claims, self._key, "ES256", headers={"kid": "one"})
        return json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": lifetime})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
