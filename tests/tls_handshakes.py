"""TLS handshakes in memory, without sockets: what a client that trusts certain CAs gets to see of a server."""

import ssl


class MemoryHandshake:
    """A handshake that the client has begun; `name` is what it calls the server, and None expects nothing."""

    def __init__(self, server: ssl.SSLContext, authorities: bytes, name: str | None) -> None:
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = name is not None
        client.verify_flags |= ssl.VERIFY_X509_STRICT
        if authorities:
            client.load_verify_locations(cadata=authorities.decode())
        self._to_server, self._to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._client = client.wrap_bio(self._to_client, self._to_server, server_hostname=name)
        self._server = server.wrap_bio(self._to_server, self._to_client, server_side=True)

    def begin(self) -> None:
        """The server has answered, and the client has not read it yet."""
        _advance(self._client)
        _advance(self._server)

    def finish(self) -> bytes:
        """The server's certificate (DER). Raises SSLError if the client does not trust it."""
        for _ in range(5):
            done = [_advance(self._client), _advance(self._server)]
            if all(done):
                return self._client.getpeercert(binary_form=True) or b""
        raise AssertionError("the handshake does not end")


def presented(server: ssl.SSLContext, authorities: bytes, name: str | None) -> bytes:
    """The server's certificate (DER) in a whole handshake. Raises SSLError if the client does not trust it."""
    return MemoryHandshake(server, authorities, name).finish()


def _advance(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
