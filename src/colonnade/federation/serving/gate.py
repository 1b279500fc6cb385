"""The gate in front of the application: whoever may not ask, and whatever is too large, goes no
further. It reads the whole body, so that what follows never waits for a client."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from colonnade.federation.serving.settings import Settings
from colonnade.federation.serving.tokens import shows

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

HEALTH = "/health"  # for supervisors, which have no token; tells one word
PREDICT = "/predict"
LOCAL = (b"localhost", b"127.0.0.1", b"[::1]")


class Refused(Exception):
    def __init__(self, status: int, why: str, **headers: str) -> None:
        super().__init__(why)
        self.status, self.why, self.headers = status, why, headers


class Gate:
    """An ASGI application around another one. `refused` counts the requests that did not get what
    they asked for, by status; those of supervisors are not counted."""

    def __init__(
        self, application: Application, settings: Settings, refused: Counter[str] | None = None
    ) -> None:
        self.application, self.settings = application, settings
        self.refused = Counter[str]() if refused is None else refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.application(scope, receive, send)
        elif scope["type"] == "http":
            send = send if scope["path"] == HEALTH else self._counted(send)
            try:
                self._admit(scope)
                body = await self._body(scope, receive)
                _need_content(scope, body)
            except Refused as refused:
                await _refuse(refused, send)
            else:
                await self.application(scope, _replayed(body, receive), send)

    def _counted(self, send: Send) -> Send:
        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                self.refused[str(message["status"])] += 1
            await send(message)

        return counting

    def _admit(self, scope: Scope) -> None:
        headers, token = dict(scope["headers"]), self.settings.token
        if self.settings.open_to_all:
            _keep_browsers_out(headers)
        if token is None or scope["path"] == HEALTH:
            return
        if not shows(headers.get(b"authorization", b""), token):
            raise Refused(401, "Unauthorized", **{"www-authenticate": "Bearer"})

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        limit = self.settings.limits.body
        too_large = Refused(413, f"the body is larger than {limit:,} bytes; send fewer keys")
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if not told.isdigit() or int(told[:20]) > limit:
            raise too_large
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(self.settings.limits.upload):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "the connection was closed")
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > limit:
                        raise too_large
        except TimeoutError:
            raise Refused(408, "the body did not come in time") from None
        return bytes(body)


def _keep_browsers_out(headers: dict[bytes, bytes]) -> None:
    """Without a token, a page in a browser of this machine could ask: it sends its origin, or, with
    a name that was pointed at this machine, a host of another name."""
    host = headers.get(b"host", b"localhost")
    name = host if host.endswith(b"]") else host.rpartition(b":")[0] or host
    if b"origin" in headers or name.lower() not in LOCAL:
        raise Refused(403, "not for web pages; give programs a token: colonnade serve --new-token")


def _need_content(scope: Scope, body: bytes) -> None:
    """JSON's own complaint about no text at all, "truncated", would help nobody."""
    if scope["path"] == PREDICT and scope["method"] == "POST" and not body.strip():
        raise Refused(400, 'the body is empty; expected JSON such as {"keys": ["17"]}')


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body as one message, then whatever follows."""
    read = False

    async def again() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _refuse(refused: Refused, send: Send) -> None:
    """The connection is closed, so that the rest of a body is not read."""
    told = {"content-type": "application/json", "connection": "close", **refused.headers}
    body = msgspec.json.encode({"status_code": refused.status, "detail": refused.why})
    headers = [(key.encode(), value.encode()) for key, value in told.items()]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
