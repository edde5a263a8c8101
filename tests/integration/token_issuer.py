"""An issuer of bearer tokens on this machine: keys, client credentials, and OpenID Connect's code flow."""

import base64
import hashlib
import http.server
import json
import threading
import time
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

CLIENT, SECRET = "console", "s:ecret"


class Issuer:
    """Keys, tokens, and both over HTTP."""

    def __init__(self) -> None:
        self.keys: dict[str, ec.EllipticCurvePrivateKey] = {}
        self.requests: list[str] = []
        self.status = 200
        self.name = "me"
        self.codes: dict[str, dict[str, str]] = {}
        self.configuration: dict[str, Any] = {}
        self.id_claims: dict[str, Any] = {}
        self.access_claims: dict[str, Any] = {}
        self.rotate("one")
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
                authorization = self.headers.get("Authorization", "")
                issuer.requests.append(f"{self.path} {authorization} {body}")
                status, content = issuer.answer(self.path, authorization, body)
                self.send_response(status)
                # A redirect of the user's login has the address as its text.
                self.send_header("Location", content if self.path.startswith("/authorize") else "/elsewhere")
                self.end_headers()
                self.wfile.write(content.encode())

            do_GET = _answer  # noqa: N815
            do_POST = _answer  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def rotate(self, kid: str) -> None:
        self.kid = kid
        self.keys = {kid: ec.generate_private_key(ec.SECP256R1())}

    def jwks(self) -> str:
        entries = [
            json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())) | {"kid": kid}
            for kid, key in self.keys.items()
        ]
        return json.dumps({"keys": entries})

    def token(self, **claims: Any) -> str:
        now = time.time()
        content = {"sub": "alice", "iat": now, "exp": now + 300, "iss": self.name, "aud": "kafka"} | claims
        return jwt.encode(content, self.keys[self.kid], "ES256", headers={"kid": self.kid})

    def answer(self, path: str, authorization: str, body: str) -> tuple[int, str]:
        if path == "/keys":
            return self.status, self.jwks()
        if path == "/.well-known/openid-configuration":
            own = {"authorization_endpoint": "/authorize?of=shop", "token_endpoint": "/token", "jwks_uri": "/keys"}
            urls = {name: self.url + path for name, path in own.items()}
            return self.status, json.dumps({"issuer": self.name} | urls | self.configuration)
        if path.startswith("/authorize"):
            return 302, self.consent(self.url + path)
        if "authorization_code" in body:
            return self.redeem(authorization, {name: values[0] for name, values in parse_qs(body).items()})
        return self.status, json.dumps({"access_token": self.token(), "token_type": "Bearer"})

    def consent(self, url: str, user: str = "alice") -> str:
        """The address to which the browser of a user, who agrees, is sent back."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert url.startswith(f"{self.url}/authorize?of=shop&")
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT)
        assert asked["code_challenge_method"] == "S256"
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked | {"user": user}
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def redeem(self, authorization: str, form: dict[str, str]) -> tuple[int, str]:
        """The answer to a code: it is good once, for who knows the verifier and the client's secret."""
        asked = self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        basic = base64.b64encode(f"{CLIENT}:s%3Aecret".encode()).decode()
        is_right = (
            asked is not None
            and asked["code_challenge"] == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            and asked["redirect_uri"] == form["redirect_uri"]
            and authorization == f"Basic {basic}"
        )
        if not is_right or asked is None:
            return 400, '{"error": "invalid_grant"}'
        claims = {"sub": asked["user"], "aud": CLIENT, "nonce": asked["nonce"]} | self.id_claims
        tokens = {
            "access_token": self.token(**{"sub": asked["user"]} | self.access_claims),
            "id_token": self.token(**claims),
            "token_type": "Bearer",
            "expires_in": 300,
        }
        return self.status, json.dumps(tokens)

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def bearer_settings(issuer: Issuer) -> dict[str, str]:
    """Settings of a broker whose clients log in by tokens of the issuer; only the user root may do anything."""
    handler = "org.apache.kafka.common.security.oauthbearer"
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.plaintext.oauthbearer.sasl.jaas.config": f"{handler}.OAuthBearerLoginModule required;",
        "listener.name.plaintext.oauthbearer.sasl.server.callback.handler.class": (
            f"{handler}.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": f"{issuer.url}/keys",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": issuer.url,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root",
    }
