"""HTTP server of the simulated provider; the package's docstring describes its interface.
Quota is checked when a request arrives, the effect follows the latency, and the log is written before the response."""

import asyncio
import math
import random
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from aiohttp import web

from tests.simulated.behaviour import Behaviour
from tests.simulated.journal import Journal, JournalLine
from tests.simulated.provider_state import DeleteResult, ExistingResource, ProviderState, Seed
from tests.simulated.quota import QuotaMeter

_LARGEST_SEED = 512 * 1024 * 1024
_encode = msgspec.json.encode


class SimulatedProvider:
    """The server in this process; `process.ProviderProcess` runs it in a child process."""

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        *,
        log: Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.behaviour = behaviour or Behaviour()
        self.state = ProviderState(self.behaviour)
        self.answered: Counter[int] = Counter()
        self._journal = Journal(log)
        self._host, self._port = host, port
        self._random = random.Random(self.behaviour.seed)
        self._meters: dict[str, QuotaMeter] = {}
        self._paused: dict[str, float] = {}
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        return f"http://{self._host}:{self._port}"

    def load(self, seed: bytes) -> Seed:
        """Adds the resources and objects of a JSON document. Raises msgspec.DecodeError."""
        decoded = msgspec.json.decode(seed, type=Seed)
        self.state.add(decoded)
        return decoded

    async def start(self) -> Self:
        app = web.Application(client_max_size=_LARGEST_SEED)
        app.add_routes(
            [
                web.post("/seed", self._seed),
                web.get("/accounts/{account}/resources", self._read_many),
                web.get("/accounts/{account}/resources/{id}", self._read),
                web.delete("/accounts/{account}/resources/{id}", self._delete),
                web.post("/accounts/{account}/spend", self._spend),
                web.get("/objects/{uid}", self._object),
                web.get("/quota", self._quota),
                web.get("/state", self._state),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, backlog=1024)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        self._journal.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # ---- reading

    async def _read(self, request: web.Request) -> web.Response:
        arrived = time.time(), time.monotonic()
        account, name = request.match_info["account"], request.match_info["id"]
        await self._latency()
        self._complete_deletes()
        found = self.state.find(account, name)
        self._write_log(request, arrived, account, name, DeleteResult(200 if found else 404))
        if found is None:
            return _json({"code": "NotFound"}, 404)
        return _json(_description(found))

    async def _read_many(self, request: web.Request) -> web.Response:
        arrived = time.time(), time.monotonic()
        account = request.match_info["account"]
        names = [name for name in request.query.get("ids", "").split(",") if name]
        await self._latency()
        self._complete_deletes()
        found = {name: self.state.find(account, name) for name in names}
        self._write_log(request, arrived, account, ",".join(names), DeleteResult(200))
        shown = [_description(one) for one in found.values() if one is not None]
        return _json({"found": shown, "missing": [name for name, one in found.items() if one is None]})

    async def _object(self, request: web.Request) -> web.Response:
        await self._latency()
        found = self.state.objects.get(request.match_info["uid"])
        return _json({"code": "NotFound"}, 404) if found is None else _json(found)

    async def _quota(self, _request: web.Request) -> web.Response:
        quota = self.behaviour.quota
        if quota is None:
            return _json({"kind": "none"})
        return _json({"kind": quota.kind, "capacity": quota.capacity, "per": self.behaviour.real(quota.per)})

    async def _state(self, _request: web.Request) -> web.Response:
        self._complete_deletes()
        deleting = len(self.state.deleting)
        there = len(self.state.existing) - deleting
        return _json({"there": there, "deleting": deleting, "gone": self.state.gone, "answered": self.answered})

    # ---- changing

    async def _seed(self, request: web.Request) -> web.Response:
        try:
            seed = self.load(await request.read())
        except msgspec.DecodeError as error:
            return _json({"code": "Malformed", "message": str(error)}, 400)
        return _json({"resources": len(seed.resources), "objects": len(seed.objects)})

    async def _spend(self, request: web.Request) -> web.Response:
        arrived = time.time(), time.monotonic()
        account = request.match_info["account"]
        wanted = float(msgspec.json.decode(await request.read(), type=dict[str, float])["tokens"])
        meter = self._meter(account)
        taken = wanted
        if meter is not None:
            taken = min(wanted, math.floor(meter.remaining(arrived[1])))
            meter.spend(arrived[1], taken)
        self._write_log(request, arrived, account, "", DeleteResult(200), meter)
        return _json({"taken": taken})

    async def _delete(self, request: web.Request) -> web.Response:
        arrived = time.time(), time.monotonic()
        account, name = request.match_info["account"], request.match_info["id"]
        meter = self._meter(account)
        if meter is not None and (self._paused.get(account, 0.0) > arrived[1] or not meter.spend(arrived[1])):
            return self._throttle(request, arrived, meter, account, name)
        await self._latency()
        self._complete_deletes()
        owner = found.seed.owner if (found := self.state.find(account, name)) else ""
        if self._random.random() < self.behaviour.errors:
            result = DeleteResult(500)
        else:
            result = self.state.delete(account, name, time.time())
        self._write_log(request, arrived, account, name, result, meter, owner=owner)
        if result.status == 204:
            self._journal.write(JournalLine(what="gone", at=time.time(), account=account, id=name))
        response = _json(self._body(name, result), result.status)
        if meter is not None and self.behaviour.remaining_header:
            response.headers["x-remaining"] = str(math.floor(meter.remaining(time.monotonic())))
        return response

    def _throttle(
        self, request: web.Request, arrived: tuple[float, float], meter: QuotaMeter, account: str, name: str
    ) -> web.Response:
        pause = self._paused.get(account, 0.0)
        if pause <= arrived[1]:
            pause = arrived[1] + self.behaviour.real(self.behaviour.pause)
            self._paused[account] = pause
        wait = max(meter.wait(arrived[1]), pause - arrived[1])
        self._write_log(request, arrived, account, name, DeleteResult(429), meter, retry_until=arrived[0] + wait)
        response = _json({"code": "TooManyRequests"}, 429)
        if self.behaviour.retry_after_header:
            # Whole seconds, as real providers send them, unless time is scaled.
            response.headers["Retry-After"] = (
                str(math.ceil(wait)) if self.behaviour.scale == 1 else f"{math.ceil(wait * 1000) / 1000:.3f}"
            )
        if self.behaviour.remaining_header:
            response.headers["x-remaining"] = "0"
        return response

    def _body(self, name: str, result: DeleteResult) -> dict[str, str]:
        if result.status == 409:
            return {
                "code": "InUse",
                "blocker": result.blocker,
                "message": f"{name} is in use by {result.blocker}",
            }
        if result.status == 400 and result.reserved_until is not None:
            left = math.ceil((result.reserved_until - time.time()) * 1000) / 1000
            return {
                "code": "ReservedForAnotherOwner",
                "message": f"{name} is reserved for another owner for {max(left, 0.001):g} seconds",
            }
        return {204: {}, 202: {"code": "Accepted"}, 404: {"code": "NotFound"}}.get(result.status, {"code": "Internal"})

    # ---- common

    def _meter(self, account: str) -> QuotaMeter | None:
        quota = self.behaviour.quota
        if quota is None:
            return None
        if account not in self._meters:
            self._meters[account] = QuotaMeter.of(quota, self.behaviour, time.monotonic())
        return self._meters[account]

    async def _latency(self) -> None:
        low, high = (bound.total_seconds() for bound in self.behaviour.latency)
        if high > 0:
            await asyncio.sleep(self._random.uniform(low, high))

    def _complete_deletes(self) -> None:
        now = time.time()
        for account, name in self.state.complete_deletes(now):
            self._journal.write(JournalLine(what="gone", at=now, account=account, id=name))

    def _write_log(
        self,
        request: web.Request,
        arrived: tuple[float, float],
        account: str,
        name: str,
        result: DeleteResult,
        meter: QuotaMeter | None = None,
        *,
        owner: str = "",
        retry_until: float | None = None,
    ) -> None:
        self.answered[result.status] += 1
        self._journal.write(
            JournalLine(
                what="request",
                at=time.time(),
                account=account,
                id=name,
                arrived=arrived[0],
                monotonic=arrived[1],
                method=request.method,
                status=result.status,
                caller=request.headers.get("x-caller", ""),
                owner=owner,
                remaining=meter.remaining(time.monotonic()) if meter is not None else None,
                blocker=result.blocker,
                retry_until=retry_until,
                reserved_until=result.reserved_until,
            )
        )


def _description(found: ExistingResource) -> dict[str, str]:
    state = "there" if found.gone_at is None else "deleting"
    return {"id": found.seed.id, "owner": found.seed.owner, "state": state}


def _json(body: object, status: int = 200) -> web.Response:
    if status == 204:
        return web.Response(status=204)
    return web.Response(body=_encode(body), status=status, content_type="application/json")
