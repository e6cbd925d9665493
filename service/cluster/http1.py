"""How an answer in HTTP/1.1 is read, piece by piece as it comes, without any connection.
Calls wait until it is whole; whoever reads an answer without an end takes what is there."""

from typing import Final

_LONGEST_HEAD: Final = 64 * 1024


class NoHttp(ValueError):
    """An answer that can't be understood."""


class Reading:
    """An answer that is on its way in. Its status is 0 until its head has come; the names of headers are in small
    letters; `size` is how much of its body is there to be taken."""

    def __init__(self) -> None:
        self.status = self.size = 0
        self.headers: dict[str, str] = {}
        self.ends_with_connection = self.keeps_connection = False
        # What is not understood yet, for want of its end: a piece of the head, or of a line between chunks.
        self._rest = b""
        self._parts: list[bytes] = []
        # Of the body, or of the chunk that has begun.
        self._left = 0
        self._chunked = self._parting = self._trailing = False

    def feed(self, data: bytes) -> bool:
        """Whether it is whole."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        while not self.status:
            end = data.find(b"\r\n\r\n")
            if max(end, len(data) if end < 0 else 0) > _LONGEST_HEAD:
                raise NoHttp("a head without an end")
            if end < 0:
                self._rest = data
                return False
            self._read_head(data[:end].decode("latin-1"))
            data = data[end + 4 :]
        if self._chunked:
            return self._read_chunks(data)
        if data:
            self._keep(data)
        if self.ends_with_connection:
            return False
        self._left -= len(data)
        if self._left < 0:
            raise NoHttp("more than was announced")
        return not self._left

    def take(self) -> bytes:
        """What has come of the body since the last time."""
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self.size = 0
        return body

    def _keep(self, part: bytes) -> None:
        self._parts.append(part)
        self.size += len(part)

    def _read_head(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not (code.isascii() and code.isdigit() and len(code) == 3):
            raise NoHttp("no status line")
        if code.startswith("1"):
            # Only a sign that the answer will come.
            return
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise NoHttp("a header without a colon")
            headers[name.lower()] = value.strip()
        self.headers = headers
        self.keeps_connection = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        length = headers.get("content-length", "")
        if code in ("204", "304"):
            self._left = 0
        elif headers.get("transfer-encoding", "").lower() == "chunked":
            self._chunked = True
        elif "transfer-encoding" in headers or (length and not (length.isascii() and length.isdigit())):
            raise NoHttp("an answer of unknown length")
        elif length:
            self._left = int(length)
        else:
            self.ends_with_connection, self.keeps_connection = True, False
        self.status = int(code)

    def _read_chunks(self, data: bytes) -> bool:
        place, length = 0, len(data)
        while True:
            if self._left:
                part = data[place : place + self._left]
                place += len(part)
                self._left -= len(part)
                if part:
                    self._keep(part)
                if self._left:
                    return False
            if self._parting:
                if place + 2 > length:
                    self._rest = data[place:]
                    return False
                if data[place : place + 2] != b"\r\n":
                    raise NoHttp("a chunk that is longer than it says")
                self._parting = False
                place += 2
            end = data.find(b"\r\n", place)
            if end < 0:
                if length - place > _LONGEST_HEAD:
                    raise NoHttp("a line without an end")
                self._rest = data[place:]
                return False
            line, place = data[place:end], end + 2
            if not self._trailing:
                size = int(line, 16) if line.isalnum() else _size(line)
                after = place + size
                if size and data[after : after + 2] == b"\r\n":
                    # Nearly all chunks are small, and come whole.
                    self._keep(data[place:after])
                    place = after + 2
                else:
                    self._left, self._parting, self._trailing = size, size > 0, not size
            elif not line:
                # The lines after the last chunk, which nobody needs, end with an empty one.
                if place < length:
                    raise NoHttp("more than was announced")
                return True


def _size(line: bytes) -> int:
    """Of a line that has more to say; without the question, signs and underscores would count as numbers, too."""
    digits = line.partition(b";")[0].strip()
    if not digits.isalnum():
        raise NoHttp("a chunk without a size")
    return int(digits, 16)
