"""One run, from the hosts' making to the verdict."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import shutil
import time
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dledger.client import connect
from dledger.common.errors import ConfigError, DLedgerError
from dledger.common.types import META_GROUP
from jepsen.hosts.api import Ability, Hosts
from jepsen.hosts.compose import ComposeHosts
from jepsen.hosts.namespaces import PROGRAM, NamespaceHosts, check_root_and_tools, check_tools
from jepsen.hosts.ssh import SshHosts
from jepsen.judging import judge
from jepsen.load import Load, Recording
from jepsen.log_load import LogLoad
from jepsen.nemesis.api import World
from jepsen.nemesis.catalogue import lanes, needs, tools
from jepsen.nemesis.members import Churn, add_node
from jepsen.nemesis.schedule import FaultBook, Schedule
from jepsen.nemesis.storage import STARTED_AGAIN, ensure_runs
from jepsen.network import Network
from jepsen.plan import Plan
from jepsen.probe import Probe
from jepsen.store.load import StoreLoad
from jepsen.workloads import WORKLOADS

logger = logging.getLogger(__name__)

START_S = 60.0
FLUSH_S = 0.1
DISK_BYTES = 3 << 30
COMPOSE_NODES = 5


class Run:
    """``run_dir`` keeps everything: plan, history, faults, what nodes said, verdict, report."""

    def __init__(self, plan: Plan, run_dir: Path, *, program: tuple[str, ...] = (), pythonpath: str = "") -> None:
        self.plan = plan
        self.run_dir = run_dir.absolute()
        self._chance = random.Random(plan.seed)
        self._nemeses = [name for name in plan.nemeses if name != "none"]
        self._lanes = lanes(self._nemeses, self._chance)
        self._workload = WORKLOADS[plan.workload]
        self._clients: Load = (StoreLoad if self._workload.is_of_store else LogLoad)(plan, self._chance)
        if self._workload.churns_members:
            self._lanes.append(Churn)
        self._hosts = hosts_of(plan, self.run_dir, needed_of(plan), program, pythonpath)
        self._ended = asyncio.Event()

    async def go(self) -> dict[str, Any]:
        """Runs it all; returns the verdict, which is also in verdict.json. Raises what kept it from starting."""
        self.run_dir.mkdir(parents=True, exist_ok=True)
        (self.run_dir / "plan.json").write_text(json.dumps(asdict(self.plan), indent=1), encoding="utf-8")
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._hosts.down)
            await self._hosts.up()
            with self._clients.recording(self.run_dir) as recorder:
                await self._drive(recorder, stack)
        self._clients.keep(self.run_dir)
        told = judge(self.run_dir)
        if told["valid"]:
            for data_dir in self.run_dir.glob("n*-data"):
                shutil.rmtree(data_dir)
        return told

    async def _drive(self, recorder: Recording, stack: AsyncExitStack) -> None:
        hosts = self._hosts
        await asyncio.gather(*(hosts.start(host.name) for host in hosts.all))
        addresses = {host.name: hosts.client_address(host.name) for host in hosts.all}
        probe = Probe(addresses, self.run_dir / "probe.jsonl", recorder.now_ns, group=self._clients.group)
        stack.push_async_callback(probe.close)
        if await probe.wait_for_leader(START_S) is None:
            logger.error("the nodes had no leader within %.0f s: see %s/n*.log", START_S, self.run_dir)
            return
        log = await stack.enter_async_context(connect(hosts.endpoints, timeout_ms=self.plan.call_timeout_ms))
        meta = await stack.enter_async_context(
            connect(hosts.endpoints, group=META_GROUP, timeout_ms=self.plan.call_timeout_ms)
        )
        patience_s = self.plan.settle_s / 2
        network = Network(hosts)
        world = World(hosts, network, probe, log.admin, meta.admin, self._chance, self.run_dir, patience_s)
        world.group = self._clients.group
        if self._workload.has_learner:
            await add_learner(world)
        book = FaultBook(self.run_dir / "faults.jsonl")
        stack.callback(book.close)
        plan = self.plan
        schedules = [
            Schedule(world, choose, book, on_s=plan.on_s, off_s=plan.off_s, now_ns=recorder.now_ns)
            for choose in self._lanes
        ]
        await self._load(recorder, world, schedules, book)
        await settle(world)
        try:
            await self._clients.final_reads(world)
        except DLedgerError as failure:
            logger.error("nothing could be read at the end, so nothing is proven: %s", failure)  # noqa: TRY400

    async def _load(self, recorder: Recording, world: World, schedules: list[Schedule], book: FaultBook) -> None:
        """Clients and nemesis, for as long as the plan says."""
        began = time.monotonic()
        async with AsyncExitStack() as stack:
            workers = await self._clients.workers(world, stack)
            recorder.begin()
            world.observer.begin()
            async with asyncio.TaskGroup() as tasks:
                flushing = tasks.create_task(self._flush(recorder, book), name="flush")
                for schedule in schedules:
                    tasks.create_task(schedule.run(self._ended, self.plan.time_limit_s), name="nemesis")
                working = [tasks.create_task(worker.run(self._ended)) for worker in workers]
                await asyncio.sleep(self.plan.time_limit_s)
                self._ended.set()
                if working:
                    await asyncio.wait(working)
                flushing.cancel()
        logger.info("the load has ended after %.1f s", time.monotonic() - began)

    async def _flush(self, recorder: Recording, book: FaultBook) -> None:
        began, told = time.monotonic(), 0.0
        while True:
            await asyncio.sleep(FLUSH_S)
            recorder.flush()
            if time.monotonic() - told > 5:
                told = time.monotonic()
                logger.info(
                    "%4.0f s of %.0f: %d acknowledged, %d unknown, %d failed; %s",
                    told - began,
                    self.plan.time_limit_s,
                    recorder.acknowledged,
                    recorder.unknown,
                    recorder.failed,
                    ", ".join(book.under_way) or "all whole",
                )


def needed_of(plan: Plan) -> frozenset[Ability]:
    """What the hosts must be able to for all that is planned."""
    workload = WORKLOADS[plan.workload]
    more = {Ability.MORE_HOSTS} if workload.churns_members or workload.has_learner else set()
    return needs(plan.nemeses) | more


def check_control(plan: Plan) -> None:
    """Raises CONFIG_ERROR, in one sentence, for what this machine lacks, or the hosts do, before anything is made."""
    nemeses = [name for name in plan.nemeses if name != "none"]
    lanes(nemeses, random.Random())
    wanted = tools(nemeses)
    if plan.hosts.startswith("ssh:"):
        check_tools({"ssh": "openssh-client"} | wanted)
    else:
        check_root_and_tools(wanted)
    hosts_of(plan, Path(), needed_of(plan), (), "")


def hosts_of(plan: Plan, run_dir: Path, needed: frozenset[Ability], program: tuple[str, ...], pythonpath: str) -> Hosts:
    """The hosts that the plan names. Raises CONFIG_ERROR when its nemeses need more than they can do."""
    kind, _, addresses = plan.hosts.partition(":")
    hosts: Hosts
    if kind == "netns":
        environment = {"PYTHONPATH": pythonpath} if pythonpath else {}
        disk_bytes = DISK_BYTES if Ability.DISKS in needed else 0
        hosts = NamespaceHosts(
            run_dir, plan.nodes, disk_bytes=disk_bytes, program=program or PROGRAM, environment=environment
        )
    elif kind == "compose":
        if plan.nodes != COMPOSE_NODES:
            raise ConfigError(f"docker-compose.yml has {COMPOSE_NODES} nodes, not {plan.nodes}")
        hosts = ComposeHosts(Path("docker-compose.yml").absolute(), run_dir, plan.nodes)
    elif kind == "ssh" and addresses:
        if plan.nodes != addresses.count(",") + 1:
            raise ConfigError(f"{addresses} are not {plan.nodes} machines")
        hosts = SshHosts(addresses.split(","), run_dir)
    else:
        raise ConfigError(f"{plan.hosts!r} names no hosts: choose netns, compose, or ssh:ADDRESS,ADDRESS,…")
    lacking = needed - hosts.abilities
    if lacking:
        raise ConfigError(f"these hosts cannot do all that is asked of them: {next(iter(lacking)).value}")
    return hosts


async def add_learner(world: World) -> None:
    """A node more, which replicates and does not vote."""
    name = world.hosts.add()
    world.learners.add(name)
    await add_node(world, name, timeout_ms=START_S * 1000)
    await world.hosts.start(name)
    world.observer.watch(name, world.hosts.client_address(name))


async def settle(world: World) -> None:
    """Starts what does not run, and waits until every node knows of all that is committed.

    Every fault is over, and has started what it ended: who does not run now has ended by itself."""
    if await world.observer.wait_for_leader(world.patience_s) is None:
        logger.error("no leader within %.0f s after the last fault", world.patience_s)
    hosts, rotten = [host.name for host in world.hosts.all], set(world.rotten)
    for host, how in zip(hosts, await asyncio.gather(*(ensure_runs(world, host) for host in hosts)), strict=True):
        if how != "it ran":
            logger.warning("%s did not run at the end: %s", host, how)
        if how == STARTED_AGAIN and host not in rotten:
            world.unrecovered.append(host)
