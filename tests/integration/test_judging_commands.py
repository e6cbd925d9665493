"""Decisions of a real `knell work` process with a settings file, as `knell deletions show` shows them."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from standins.child_process import with_clone_path
from tests.api_servers import TestApi
from tests.integration.command_line import environment, knell
from tests.integration.judged_source import SOURCE, JudgedSource, judged_source
from tests.redis_servers import TestServer
from tests.simulated.source import ADDRESS

PATIENCE = timedelta(seconds=100)


@pytest.fixture
async def judged(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[JudgedSource]:
    async with judged_source(api, embedded_server, tmp_path) as made:
        yield made


@asynccontextmanager
async def working(judged: JudgedSource, folder: Path, kubeconfig: Path) -> AsyncIterator[Path]:
    """A worker of its own, configured by a file; gives its log."""
    config, log = folder / "knell.yaml", folder / "work.log"
    config.write_text(
        f"clusters: {{local: {{kubeconfig: '{kubeconfig}', context: local}}}}\n"
        f"sources: {{{SOURCE}: {{resource: {judged.crd.resource}, collector: simulated}}}}\n"
        "watch: {retry: 200ms}\nretry: {base: 100ms}\nsurface: {host: 127.0.0.1, port: 0}\nlog: {format: json}\n",
        encoding="utf-8",
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KNELL_")}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.simulated", "work", "--config", str(config),
            env=with_clone_path({**clean, **environment(judged.settings.redis), ADDRESS: judged.provider.address}),
            stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield log
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE.total_seconds()):
            assert await process.wait() == 0, log.read_text()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_worker_with_a_settings_file_carries_out_what_its_source_says(
    judged: JudgedSource, tmp_path: Path
) -> None:
    one = await judged.going("w", 2)
    async with working(judged, tmp_path, tmp_path / "front.kubeconfig") as log:
        await judged.until_done(one, within=PATIENCE)
        assert judged.read("w") is None
        assert judged.deletes == 2
        assert "Traceback" not in log.read_text()


async def test_a_worker_goes_on_trying_for_a_cluster_whose_way_in_can_not_be_read(
    judged: JudgedSource, tmp_path: Path
) -> None:
    one = await judged.going("w")
    late = tmp_path / "late.kubeconfig"
    async with working(judged, tmp_path, late) as log:
        await judged.until_held(one, "no way to the cluster")
        assert "cluster can't be reached" in log.read_text()
        judged.proxy.kubeconfig(late)
        await judged.until_done(one, within=PATIENCE)


async def test_the_story_of_a_deletion_names_policy_and_withdrawal(judged: JudgedSource) -> None:
    await judged.stop_lanes()
    withdrawn, retained = await judged.going("w", 2), await judged.going("r", annotations={"knell.dev/gc": "disabled"})
    await judged.work()
    await judged.until_state(withdrawn, "running")
    judged.unmark("w")
    await judged.free_lanes()
    await judged.until_done(withdrawn, retained)
    told = await knell(judged, "deletions", "show", withdrawn.deletion, "--output", "json")
    assert "our finalizer should hold it" in told.json["deletion"]["withdrawn"]
    assert [moment["why"] for moment in told.json["timeline"] if moment["what"] == "withdrawn"] == [
        told.json["deletion"]["withdrawn"]
    ]
    assert "withdrawn because" in (await knell(judged, "deletions", "show", withdrawn.deletion)).out
    told = await knell(judged, "deletions", "show", retained.deletion)
    assert "retain: annotation knell.dev/gc of the object says 'disabled'" in told.out


async def test_a_job_that_policy_holds_is_shown_with_the_reason(judged: JudgedSource) -> None:
    await judged.stop_lanes()
    one = await judged.going("w")
    await judged.work()
    await judged.until_state(one, "running")
    judged.annotate("w", **{"knell.dev/prevent-delete": "true"})
    await judged.free_lanes()
    await judged.until_refused(one, "protected:")
    told = await knell(judged, "deletions", "show", one.deletion, "--output", "json")
    (job,) = [job for job in told.json["jobs"] if job["kind"] == "simulated"]
    assert "protected: annotation knell.dev/prevent-delete" in job["detail"]
    held = await knell(judged, "held", "list", "--output", "json")
    assert "prevent-delete" in held.out
