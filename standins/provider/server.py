"""The provider's HTTP interface, as the package's docstring tells it.
Quota is judged when a request arrives; the effect comes after the latency, and the log before the answer."""

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

from standins.provider.behaviour import Behaviour
from standins.provider.journal import Journal, Line
from standins.provider.quota import Meter
from standins.provider.world import Judged, Seed, Standing, World

_LARGEST_SEED = 512 * 1024 * 1024
_encode = msgspec.json.encode


class Provider:
    """The server inside this process; `process.ProviderProcess` runs it in one of its own."""

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        *,
        log: Path | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.behaviour = behaviour or Behaviour()
        self.world = World(self.behaviour)
        self.answered: Counter[int] = Counter()
        self._journal = Journal(log)
        self._host, self._port = host, port
        self._random = random.Random(self.behaviour.seed)
        self._meters: dict[str, Meter] = {}
        self._paused: dict[str, float] = {}
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        return f"http://{self._host}:{self._port}"

    def load(self, seed: bytes) -> Seed:
        """Adds what a JSON document describes. Raises msgspec.DecodeError."""
        decoded = msgspec.json.decode(seed, type=Seed)
        self.world.add(decoded)
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
        self._lapse()
        found = self.world.find(account, name)
        self._note(request, arrived, account, name, Judged(200 if found else 404))
        if found is None:
            return _json({"code": "NotFound"}, 404)
        return _json(_shown(found))

    async def _read_many(self, request: web.Request) -> web.Response:
        arrived = time.time(), time.monotonic()
        account = request.match_info["account"]
        names = [name for name in request.query.get("ids", "").split(",") if name]
        await self._latency()
        self._lapse()
        found = {name: self.world.find(account, name) for name in names}
        self._note(request, arrived, account, ",".join(names), Judged(200))
        shown = [_shown(one) for one in found.values() if one is not None]
        return _json({"found": shown, "missing": [name for name, one in found.items() if one is None]})

    async def _object(self, request: web.Request) -> web.Response:
        await self._latency()
        found = self.world.objects.get(request.match_info["uid"])
        return _json({"code": "NotFound"}, 404) if found is None else _json(found)

    async def _quota(self, _request: web.Request) -> web.Response:
        quota = self.behaviour.quota
        if quota is None:
            return _json({"kind": "none"})
        return _json({"kind": quota.kind, "capacity": quota.capacity, "per": self.behaviour.real(quota.per)})

    async def _state(self, _request: web.Request) -> web.Response:
        self._lapse()
        deleting = len(self.world.deleting)
        there = len(self.world.standing) - deleting
        return _json({"there": there, "deleting": deleting, "gone": self.world.gone, "answered": self.answered})

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
        self._note(request, arrived, account, "", Judged(200), meter)
        return _json({"taken": taken})

    async def _delete(self, request: web.Request) -> web.Response:
        arrived = time.time(), time.monotonic()
        account, name = request.match_info["account"], request.match_info["id"]
        meter = self._meter(account)
        if meter is not None and (self._paused.get(account, 0.0) > arrived[1] or not meter.spend(arrived[1])):
            return self._throttle(request, arrived, meter, account, name)
        await self._latency()
        self._lapse()
        owner = found.seed.owner if (found := self.world.find(account, name)) else ""
        if self._random.random() < self.behaviour.errors:
            judged = Judged(500)
        else:
            judged = self.world.delete(account, name, time.time())
        self._note(request, arrived, account, name, judged, meter, owner=owner)
        if judged.status == 204:
            self._journal.write(Line(what="gone", at=time.time(), account=account, id=name))
        response = _json(self._words(name, judged), judged.status)
        if meter is not None and self.behaviour.remaining_header:
            response.headers["x-remaining"] = str(math.floor(meter.remaining(time.monotonic())))
        return response

    def _throttle(
        self, request: web.Request, arrived: tuple[float, float], meter: Meter, account: str, name: str
    ) -> web.Response:
        pause = self._paused.get(account, 0.0)
        if pause <= arrived[1]:
            pause = arrived[1] + self.behaviour.real(self.behaviour.pause)
            self._paused[account] = pause
        wait = max(meter.wait(arrived[1]), pause - arrived[1])
        self._note(request, arrived, account, name, Judged(429), meter, retry_until=arrived[0] + wait)
        response = _json({"code": "TooManyRequests"}, 429)
        if self.behaviour.retry_after_header:
            # Whole seconds, as everywhere, unless time runs faster here.
            response.headers["Retry-After"] = (
                str(math.ceil(wait)) if self.behaviour.scale == 1 else f"{math.ceil(wait * 1000) / 1000:.3f}"
            )
        if self.behaviour.remaining_header:
            response.headers["x-remaining"] = "0"
        return response

    def _words(self, name: str, judged: Judged) -> dict[str, str]:
        if judged.status == 409:
            return {
                "code": "InUse",
                "blocker": judged.blocker,
                "message": f"{name} is in use by {judged.blocker}",
            }
        if judged.status == 400 and judged.reserved_until is not None:
            left = math.ceil((judged.reserved_until - time.time()) * 1000) / 1000
            return {
                "code": "ReservedForAnotherOwner",
                "message": f"{name} is reserved for another owner for {max(left, 0.001):g} seconds",
            }
        return {204: {}, 202: {"code": "Accepted"}, 404: {"code": "NotFound"}}.get(judged.status, {"code": "Internal"})

    # ---- common

    def _meter(self, account: str) -> Meter | None:
        quota = self.behaviour.quota
        if quota is None:
            return None
        if account not in self._meters:
            self._meters[account] = Meter.of(quota, self.behaviour, time.monotonic())
        return self._meters[account]

    async def _latency(self) -> None:
        low, high = (bound.total_seconds() for bound in self.behaviour.latency)
        if high > 0:
            await asyncio.sleep(self._random.uniform(low, high))

    def _lapse(self) -> None:
        now = time.time()
        for account, name in self.world.lapse(now):
            self._journal.write(Line(what="gone", at=now, account=account, id=name))

    def _note(
        self,
        request: web.Request,
        arrived: tuple[float, float],
        account: str,
        name: str,
        judged: Judged,
        meter: Meter | None = None,
        *,
        owner: str = "",
        retry_until: float | None = None,
    ) -> None:
        self.answered[judged.status] += 1
        self._journal.write(
            Line(
                what="request",
                at=time.time(),
                account=account,
                id=name,
                arrived=arrived[0],
                monotonic=arrived[1],
                method=request.method,
                status=judged.status,
                caller=request.headers.get("x-caller", ""),
                owner=owner,
                remaining=meter.remaining(time.monotonic()) if meter is not None else None,
                blocker=judged.blocker,
                retry_until=retry_until,
                reserved_until=judged.reserved_until,
            )
        )


def _shown(found: Standing) -> dict[str, str]:
    state = "there" if found.gone_at is None else "deleting"
    return {"id": found.seed.id, "owner": found.seed.owner, "state": state}


def _json(body: object, status: int = 200) -> web.Response:
    if status == 204:
        return web.Response(status=204)
    return web.Response(body=_encode(body), status=status, content_type="application/json")
