"""The application: what may be asked over HTTP, and what is answered. OpenAPI describes it at
`/schema/openapi.json`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, cast

import msgspec
from litestar import Litestar, Request, Response, get, post
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.params import Body

from colonnade.errors import ColonnadeError
from colonnade.federation.member.prediction_requests import Predicted
from colonnade.federation.member.stage import Stage
from colonnade.federation.serving.batcher import Batcher, Full, Late
from colonnade.federation.serving.gate import HEALTH, PREDICT, Application, Gate
from colonnade.federation.serving.settings import LONGEST, Settings

INTERFACE = "1"  # the version of what is asked and answered here
RETRY = 1  # seconds after which a client that was refused may try again
FRESH = 0.5  # seconds for which a status is used again

Key = Annotated[str, msgspec.Meta(min_length=1, max_length=4000)] | int
AskStatus = Callable[[], Awaitable[dict[str, Any]]]  # {}: the party does not answer


class NotReady(ColonnadeError):
    """The party cannot answer yet, or not any more."""


class PredictRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows to predict, by key. Answers come within `seconds`, from the parties that are there."""

    keys: Annotated[list[Key], msgspec.Meta(min_length=1)]
    seconds: Annotated[float, msgspec.Meta(gt=0, le=LONGEST)] | None = None


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row. `status` is 200; or 404: the party has no such key; or 503: there is no answer."""

    key: str
    status: int
    prediction: str | float | None = None
    probabilities: dict[str, float] | None = None
    absent: dict[str, str] | None = None
    error: str | None = None


class PredictResponse(msgspec.Struct, frozen=True):
    party: str
    model: str  # its version
    complete: bool  # every party had its part in every answer
    absent: dict[str, str]  # the parties that were missing in one of the answers, and why
    rows: list[Row]


class Service:
    """What the handlers share."""

    def __init__(
        self, party: str, batcher: Batcher, ask_status: AskStatus, settings: Settings
    ) -> None:
        self.party, self.batcher, self.settings = party, batcher, settings
        self._ask_status = ask_status
        self._status: dict[str, Any] = {}
        self._asked = -FRESH
        self.refused: Counter[str] = Counter()  # by HTTP status

    async def predict(self, asked: PredictRequest) -> PredictResponse:
        limits = self.settings.limits
        if len(asked.keys) > limits.rows:
            why = f"{len(asked.keys):,} keys are more than the {limits.rows:,} of one request"
            raise HTTPException(why, status_code=413)
        keys = [str(key).strip() for key in asked.keys]
        found = await self.batcher.predict(keys, asked.seconds or limits.seconds)
        return response(self.party, keys, found)

    async def status(self) -> dict[str, Any]:
        """The status of the party, at most half a second old."""
        if time.monotonic() - self._asked >= FRESH:
            self._asked, self._status = time.monotonic(), await self._ask_status()
        return self._status


def response(party: str, keys: Sequence[str], found: Predicted) -> PredictResponse:
    """The part of an answer that one request is about."""
    places = {one: i for i, one in enumerate(found.ids)}
    rows = [_row(key, found, places.get(key)) for key in keys]
    absent = {name: why for row in rows for name, why in (row.absent or {}).items()}
    return PredictResponse(party, found.model, not absent, absent, rows)


def _row(key: str, found: Predicted, place: int | None) -> Row:
    if place is None:
        why = found.failed.get(key)
        return Row(key, 503 if why else 404, error=why or "unknown key")
    absent = found.absent[place]
    if not found.classes:
        return Row(key, 200, found.numbers[place], absent=absent)
    likely = dict(zip(found.classes, found.probabilities[place], strict=True))
    return Row(key, 200, found.classes[found.predictions[place]], likely, absent)


def application(service: Service) -> Application:
    """The ASGI application, with the gate in front."""

    @post(PREDICT, status_code=200, summary="Predict rows by key")
    async def predict(data: Annotated[PredictRequest, Body()]) -> PredictResponse:
        return await service.predict(data)

    @get(HEALTH, summary="Whether predictions can be asked for now")
    async def health() -> Response[dict[str, str]]:
        ready = (await service.status()).get("stage") == Stage.ANSWERING
        told = {"status": "ok" if ready else "not ready"}
        return Response(told, status_code=200 if ready else 503)

    @get("/status", summary="The party's status, and what was served so far")
    async def status() -> Response[dict[str, Any]]:
        found, counts = await service.status(), service.batcher.counts
        served = vars(counts) | {"waiting": service.batcher.rows, "refused": service.refused}
        told = {"party": found or {"party": service.party, "stage": "away"}, "served": served}
        return Response(told, status_code=200 if found else 503)

    schema = OpenAPIConfig(
        title=f"Predictions of {service.party}",
        version=INTERFACE,
        path="/schema",
        render_plugins=[JsonRenderPlugin(path="/"), JsonRenderPlugin()],
    )
    inner = Litestar(
        [predict, health, status],
        openapi_config=schema,
        exception_handlers={
            Full: _full,
            Late: _late,
            ColonnadeError: _unavailable,
            RecursionError: _nested,
            UnicodeDecodeError: _no_text,
        },
        logging_config=None,
    )
    return Gate(cast(Application, inner), service.settings, service.refused)


def _told(status: int, why: object, **headers: str) -> Response[dict[str, Any]]:
    content = {"status_code": status, "detail": str(why)}
    return Response(content, status_code=status, headers=headers)


def _full(_: Request[Any, Any, Any], __: Full) -> Response[dict[str, Any]]:
    return _told(503, "too many requests wait; try again", **{"Retry-After": str(RETRY)})


def _late(_: Request[Any, Any, Any], __: Late) -> Response[dict[str, Any]]:
    return _told(504, "no answer in time; give the request more seconds, or fewer keys")


def _unavailable(_: Request[Any, Any, Any], error: ColonnadeError) -> Response[dict[str, Any]]:
    return _told(503, error, **{"Retry-After": str(RETRY)})


def _no_text(_: Request[Any, Any, Any], error: UnicodeDecodeError) -> Response[dict[str, Any]]:
    return _told(400, f"JSON is malformed: byte {error.start} is no UTF-8")


def _nested(_: Request[Any, Any, Any], __: RecursionError) -> Response[dict[str, Any]]:
    return _told(400, "the body is nested too deep; expected an object with keys, at $")
