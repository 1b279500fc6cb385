"""The application and its gate, without a network: what is answered to whom."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.federation.serving.fake_party import FakeParty
from tests.federation.serving.virtual_time import run

from colonnade.federation.member.stage import Stage
from colonnade.federation.serving.api import Service, application
from colonnade.federation.serving.batcher import Batcher
from colonnade.federation.serving.gate import Application
from colonnade.federation.serving.settings import Limits, Settings

TOKEN = b"a-token-of-more-than-24-characters"
SHOWN = {"authorization": f"Bearer {TOKEN.decode()}"}


def served(party: FakeParty, token: bytes | None = None, **limits: Any) -> Application:
    settings = Settings(token=token, limits=Limits(**limits))
    batcher = Batcher(party.ask, settings.limits)
    return application(Service("hospital", batcher, party.status, settings))


def request(app: Application, method: str, path: str, **more: Any) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app)  # pyright: ignore[reportArgumentType]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **more)

    return run(ask())


def predict(app: Application, body: Any, **more: Any) -> httpx.Response:
    return request(app, "POST", "/predict", json=body, **more)


def test_keys_are_answered_with_probabilities_class_absent_parties_and_model() -> None:
    party = FakeParty()
    party.absent = {"lab": "away"}
    found = predict(served(party), {"keys": ["250", 900, " 1 ", "x"], "seconds": 0.5})
    assert found.status_code == 200
    told = found.json()
    assert told["model"] == "round 3 of training 1"
    assert told["absent"] == {"lab": "away"}
    assert told["complete"] is False
    assert [row["key"] for row in told["rows"]] == ["250", "900", "1", "x"]
    assert told["rows"][0] == {
        "key": "250",
        "status": 200,
        "prediction": "yes",
        "probabilities": {"no": 0.25, "yes": 0.75},
        "absent": {"lab": "away"},
    }
    assert told["rows"][3] == {"key": "x", "status": 404, "error": "unknown key"}


BAD: dict[str, tuple[bytes, int, str]] = {
    "no JSON": (b"{garbage", 400, "JSON"),
    "nothing": (b"", 400, 'the body is empty; expected JSON such as {\\"keys\\": [\\"17\\"]}'),
    "blanks": (b" \n", 400, "the body is empty"),
    "a list": (b"[1]", 400, "Expected `object`"),
    "another key": (b'{"key": ["1"]}', 400, "`key`"),
    "no keys": (b'{"keys": []}', 400, '"key":"keys"'),
    "a number with a point": (b'{"keys": ["1", 1.5]}', 400, '"key":"keys[1]"'),
    "an empty key": (b'{"keys": [""]}', 400, "keys"),
    "no time": (b'{"keys": ["1"], "seconds": 0}', 400, "seconds"),
    "too much time": (b'{"keys": ["1"], "seconds": 1e9}', 400, "seconds"),
    "nested": (b"[" * 200_000, 400, ""),
    "bad text": (b'{"keys": ["\xff\xfe"]}', 400, ""),
    "too many rows": (json.dumps({"keys": ["1"] * 1025}).encode(), 413, "1,025 keys are more"),
    "too large": (b" " * 2_000_000, 413, "larger than 1,048,576 bytes"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_is_told_what_is_wrong(name: str) -> None:
    body, status, why = BAD[name]
    party = FakeParty()
    found = request(served(party), "POST", "/predict", content=body)
    assert found.status_code == status, found.text
    assert why in found.text
    assert not party.asked


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN.decode()}],
    ids=["no token", "another token", "another scheme"],
)
@pytest.mark.parametrize("path", ["/predict", "/status", "/schema", "/nothing", "/health/"])
def test_without_the_token_nothing_is_told(headers: dict[str, str], path: str) -> None:
    party = FakeParty()
    app = served(party, TOKEN)
    found = request(app, "POST", path, json={"keys": ["1"]}, headers=headers)
    assert found.status_code == 401
    assert found.json() == {"status_code": 401, "detail": "Unauthorized"}
    assert not party.asked
    assert predict(app, {"keys": ["1"]}, headers=SHOWN).status_code == 200
    assert request(app, "GET", "/health").json() == {"status": "ok"}


def test_a_web_page_may_not_ask_where_there_is_no_token() -> None:
    for headers in ({"origin": "http://page.example"}, {"host": "page.example"}):
        found = predict(served(FakeParty()), {"keys": ["1"]}, headers=headers)
        assert found.status_code == 403
    for host in ("localhost:8471", "127.0.0.1", "[::1]:8471", "[::1]"):
        assert predict(served(FakeParty()), {"keys": ["1"]}, headers={"host": host}).is_success


def test_a_large_body_is_refused_before_it_is_read() -> None:
    """By its announced length; and, where none is announced, as soon as there is too much."""
    read = 0

    async def endless() -> dict[str, Any]:
        nonlocal read
        read += 1
        return {"type": "http.request", "body": bytes(2**16), "more_body": True}

    async def ask(headers: list[tuple[bytes, bytes]]) -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "path": "/predict", "method": "POST", "headers": headers}
        await served(FakeParty())(scope, endless, send)
        return sent

    for headers, most in (([(b"content-length", b"104857600")], 0), ([], 17)):
        read = 0
        start, _ = run(ask(headers))
        assert start["status"] == 413
        assert (b"connection", b"close") in start["headers"]
        assert read == most


def test_a_body_that_does_not_come_is_not_waited_for_without_end() -> None:
    async def never() -> Any:
        await asyncio.Event().wait()

    async def ask() -> Any:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "path": "/predict", "method": "POST", "headers": []}
        await served(FakeParty())(scope, never, send)
        return sent[0]["status"]

    assert run(ask()) == 408


def test_a_party_that_is_not_trained_yet_is_told_with_its_stage() -> None:
    party = FakeParty()
    party.stage = Stage.TRAINING
    app = served(party)
    found = predict(app, {"keys": ["1"]})
    assert found.status_code == 503
    assert found.json()["detail"] == "hospital is not ready: training, round 3"
    assert found.headers["retry-after"] == "1"
    assert request(app, "GET", "/health").status_code == 503


def test_a_full_queue_and_a_late_answer_are_told_as_such() -> None:
    app = served(FakeParty(), room=0)
    found = predict(app, {"keys": ["1"]})
    assert (found.status_code, found.headers["retry-after"]) == (503, "1")
    found = predict(served(FakeParty(takes=5.0)), {"keys": ["1"], "seconds": 0.5})
    assert found.status_code == 504
    assert "no answer in time" in found.json()["detail"]


def test_the_schema_describes_what_may_be_asked() -> None:
    told = request(served(FakeParty()), "GET", "/schema").json()
    assert set(told["paths"]) == {"/predict", "/health", "/status"}
    fields = told["components"]["schemas"]["PredictResponse"]["properties"]
    assert set(fields) == {"party", "model", "complete", "absent", "rows"}
    assert request(served(FakeParty()), "GET", "/schema/openapi.json").json() == told


def test_the_status_counts_what_was_served() -> None:
    app = served(FakeParty())
    predict(app, {"keys": ["1", "2"]})
    told = request(app, "GET", "/status").json()
    assert told["party"]["stage"] == "answering questions"
    assert (told["served"]["requests"], told["served"]["rows"]) == (1, 2)


def test_the_status_counts_who_was_refused_and_why() -> None:
    app = served(FakeParty(), TOKEN)
    for _ in range(3):
        predict(app, {"keys": ["1"]})
    predict(app, {"keys": []}, headers=SHOWN)
    request(app, "POST", "/predict", content=b" " * 2_000_000, headers=SHOWN)
    told = request(app, "GET", "/status", headers=SHOWN).json()
    assert told["served"]["refused"] == {"401": 3, "400": 1, "413": 1}
    assert told["served"]["requests"] == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
NEARLY = st.fixed_dictionaries({"keys": JSON}, optional={"seconds": JSON})
BODIES = st.binary(max_size=200) | (JSON | NEARLY).map(lambda value: json.dumps(value).encode())
NAMES = st.sampled_from([b"authorization", b"content-length", b"content-type", b"host", b"accept"])
HEADERS = st.lists(st.tuples(NAMES, st.binary(max_size=30)), max_size=4)
PATHS = st.sampled_from(["/predict", "/health", "/status", "/schema"]) | st.text(max_size=10)
METHODS = st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE"])


@pytest.fixture(scope="module")
def apps() -> list[Application]:
    return [served(FakeParty()), served(FakeParty(), TOKEN)]


@settings(max_examples=100, deadline=None)
@given(method=METHODS, path=PATHS, headers=HEADERS, body=BODIES, token=st.booleans())
def test_no_request_of_any_content_is_an_error_of_ours(
    apps: list[Application],
    method: str,
    path: str,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
    token: bool,
) -> None:
    """Every request has one answer, which is not an internal error."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    known = [(b"authorization", b"Bearer " + TOKEN)] if token else []
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path if path.startswith("/") else f"/{path}",
        "raw_path": b"/",
        "query_string": b"",
        "root_path": "",
        "headers": [*headers, *known],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8471),
    }
    run(apps[token](scope, receive, send))  # pyright: ignore[reportArgumentType]
    starts = [message["status"] for message in sent if message["type"] == "http.response.start"]
    assert len(starts) == 1
    assert starts[0] < 500, (starts, sent)
