"""HTTP server that issues credentials: OIDC and Entra tokens, and the keys of a container, a machine or SSO on AWS.
Everything that it issues is a canary; like every gateway it may answer with errors that repeat the request instead."""

import ssl

from aiohttp import web

from tests.scenarios.canaries.credentials import Canaries
from tests.scenarios.canaries.gateway import Gateway

_FOREVER = "2099-01-01T00:00:00Z"


class Issuer(Gateway):
    """`account` is the one that keys of AWS act in."""

    def __init__(self, canaries: Canaries, account: str, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__("", "issuer", canaries, tls=tls)
        self._account = account

    async def forward(self, request: web.Request) -> web.StreamResponse:
        known = self._canaries
        match request.path.strip("/").split("/"):
            case [".well-known", "openid-configuration"]:
                return web.json_response({"token_endpoint": f"{self.url}/oidc/token"})
            case ["oidc", "token"]:
                following = known["kubernetes oidc next refresh token"]
                return web.json_response({"id_token": known["kubernetes oidc"], "refresh_token": following})
            case [_, "oauth2", "v2.0", "token"]:
                return web.json_response(self._token())
            case ["msi", "token"]:
                return web.json_response({**self._token(), "resource": request.query.get("resource", "")})
            case ["container"]:
                return web.json_response({**self._aws_key("container"), "Expiration": _FOREVER})
            case ["latest", "api", "token"]:
                return web.Response(text=known["aws machine token"])
            case ["latest", "meta-data", "iam", "security-credentials"]:
                return web.Response(text="role")
            case ["latest", "meta-data", "iam", "security-credentials", "role"]:
                return web.json_response({"Code": "Success", **self._aws_key("machine"), "Expiration": _FOREVER})
            case ["federation", "credentials"]:
                return web.json_response({"roleCredentials": self._role_key()})
        return web.Response(status=404)

    def _token(self) -> dict[str, object]:
        lasts = {"expires_in": 3600, "expires_on": "4000000000"}
        return {"access_token": self._canaries["azure token"], "token_type": "Bearer", **lasts}

    def _aws_key(self, name: str) -> dict[str, str]:
        secret, token = (self._canaries[f"aws {name} {what}"] for what in ("secret key", "session token"))
        return {"AccessKeyId": f"ASIA{self._account}", "SecretAccessKey": secret, "Token": token}

    def _role_key(self) -> dict[str, object]:
        secret, token = (self._canaries[f"aws issued {what}"] for what in ("secret key", "session token"))
        return {
            "accessKeyId": f"ASIA{self._account}", "secretAccessKey": secret, "sessionToken": token,
            "expiration": 4_000_000_000_000,
        }  # fmt: skip
