"""The judgement as people meet it: `knell work` as a real process with a settings file, and `knell deletions show`."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from tests.clusters import TestApi
from tests.integration.operating import environment, knell
from tests.integration.staged import SOURCE, Stage, staged
from tests.servers import TestServer

PATIENCE = timedelta(seconds=100)


@pytest.fixture
async def stage(api: TestApi, embedded_server: TestServer, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(api, embedded_server, tmp_path) as made:
        yield made


@asynccontextmanager
async def working(stage: Stage, folder: Path, kubeconfig: Path) -> AsyncIterator[Path]:
    """A worker of its own, configured by a file; gives its log."""
    config, log = folder / "knell.yaml", folder / "work.log"
    config.write_text(
        f"clusters: {{local: {{kubeconfig: '{kubeconfig}', context: local}}}}\n"
        f"sources: {{{SOURCE}: {{resource: {stage.crd.resource}, collector: simulated}}}}\n"
        "watch: {retry: 200ms}\nretry: {base: 100ms}\nsurface: {host: 127.0.0.1, port: 0}\nlog: {format: json}\n",
        encoding="utf-8",
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KNELL_")}
    words = ("-c", "from service.cli.main import main; main()", "work", "--config", str(config))
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, "--simulate", stage.provider.address,
            env={**clean, **environment(stage.settings.redis)}, stdout=output, stderr=output,
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


async def test_a_worker_with_a_settings_file_carries_out_what_its_source_says(stage: Stage, tmp_path: Path) -> None:
    one = await stage.going("w", 2)
    async with working(stage, tmp_path, tmp_path / "front.kubeconfig") as log:
        await stage.until_done(one, within=PATIENCE)
        assert stage.read("w") is None
        assert stage.deletes == 2
        assert "Traceback" not in log.read_text()


async def test_a_worker_goes_on_trying_for_a_cluster_whose_way_in_can_not_be_read(stage: Stage, tmp_path: Path) -> None:
    one = await stage.going("w")
    late = tmp_path / "late.kubeconfig"
    async with working(stage, tmp_path, late) as log:
        await stage.until_held(one, "no way to the cluster")
        assert "cluster can't be reached" in log.read_text()
        stage.front.kubeconfig(late)
        await stage.until_done(one, within=PATIENCE)


async def test_the_story_of_a_deletion_names_policy_and_withdrawal(stage: Stage) -> None:
    await stage.stop_lanes()
    withdrawn, retained = await stage.going("w", 2), await stage.going("r", annotations={"knell.dev/gc": "disabled"})
    await stage.work()
    await stage.until_state(withdrawn, "running")
    stage.unmark("w")
    await stage.free_lanes()
    await stage.until_done(withdrawn, retained)
    told = await knell(stage, "deletions", "show", withdrawn.deletion, "--output", "json")
    assert "our finalizer should hold it" in told.json["deletion"]["withdrawn"]
    assert [moment["why"] for moment in told.json["timeline"] if moment["what"] == "withdrawn"] == [
        told.json["deletion"]["withdrawn"]
    ]
    assert "withdrawn because" in (await knell(stage, "deletions", "show", withdrawn.deletion)).out
    told = await knell(stage, "deletions", "show", retained.deletion)
    assert "retain: annotation knell.dev/gc of the object says 'disabled'" in told.out


async def test_a_job_that_policy_holds_is_shown_with_the_reason(stage: Stage) -> None:
    await stage.stop_lanes()
    one = await stage.going("w")
    await stage.work()
    await stage.until_state(one, "running")
    stage.annotate("w", **{"knell.dev/prevent-delete": "true"})
    await stage.free_lanes()
    await stage.until_refused(one, "protected:")
    told = await knell(stage, "deletions", "show", one.deletion, "--output", "json")
    (job,) = [job for job in told.json["jobs"] if job["kind"] == "simulated"]
    assert "protected: annotation knell.dev/prevent-delete" in job["detail"]
    held = await knell(stage, "held", "list", "--output", "json")
    assert "prevent-delete" in held.out
