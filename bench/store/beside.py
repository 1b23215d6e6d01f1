"""``python -m bench store``: the store beside etcd, both synced, three nodes each, in turns."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

import click

from bench.machine import (
    check_data_folder,
    data_folder,
    describe,
    measure_alone,
    now,
    require_same_program,
    sentence,
    wait_quiet,
)
from bench.report import table
from bench.results import save
from bench.scenarios.flags import ROUNDS, SECONDS
from bench.store.report import rows
from bench.store.systems import SYSTEMS, System
from bench.store.works import WORKS, StoreWork, measure
from bench.work import MeasurementFailed

Sample = dict[str, Any]
MANY_ROUNDS = 3
"""A run of fewer is a try."""


@click.command()
@click.option("--rounds", default=5, show_default=True, type=ROUNDS, help="Each with new clusters.")
@click.option("--duration", default=3.0, show_default=True, type=SECONDS, help="Seconds a measurement.")
def store(*, rounds: int, duration: float) -> None:
    """Puts and gets of the store beside etcd, both synced, with three nodes each.

    Both systems run all the time. Each work is done by one and then by the other, and another one begins each time. So
    what disturbs the machine disturbs both. Ratios are taken within a round.
    """
    measure_alone()
    check_data_folder()
    systems: list[System] = [each() for each in SYSTEMS]
    about = {each.name: {"title": each.title, "version": each.install(), "client": each.client} for each in systems}
    busy = wait_quiet() if rounds >= MANY_ROUNDS else None
    machine = {**describe(), "started": now(), "load_before": os.getloadavg()[0], "busy_before": busy}
    samples: list[Sample] = []
    failures: list[str] = []
    for number in range(rounds):
        require_same_program()
        samples += _round(number, systems, duration, failures)
    result = {
        "machine": machine,
        "plan": {"rounds": rounds, "duration_s": duration},
        "systems": about,
        "samples": samples,
        "failures": failures,
    }
    if not samples:
        raise MeasurementFailed(f"nothing was measured: {failures[-1]}")
    report = as_markdown(result)
    click.echo(report)
    save("store", result, report=report, is_whole=not failures)
    if failures:
        raise MeasurementFailed(f"{len(failures)} measurements failed: {failures[0]}")


def _round(number: int, systems: list[System], duration_s: float, failures: list[str]) -> list[Sample]:
    """A measurement that fails is told of, and the others go on."""
    samples: list[Sample] = []
    with ExitStack() as ending:
        for system in systems:
            data = ending.enter_context(data_folder())
            ending.callback(system.stop)
            system.start(data)
        for place, work in enumerate(WORKS):
            order = systems if (number + place) % 2 == 0 else systems[::-1]
            for system in order:
                try:
                    samples.append(_sample(number, system, work, duration_s))
                except MeasurementFailed as failure:
                    failures.append(f"round {number + 1}, {system.name}, {work.name}: {failure}")
                    click.echo(f"  {failures[-1]}", err=True)
    return samples


def _sample(number: int, system: System, work: StoreWork, duration_s: float) -> Sample:
    os.sync()  # what the other has written does not wait in this one's syncs
    outcome = measure(system, work, duration_s)
    told = f"{outcome.records_per_s:,.0f}/s  p50 {outcome.p50_ms:.2f} ms"
    click.echo(f"round {number + 1}: {system.name}, {work.name}: {told}", err=True)
    memory = {"largest_server_mb": system.largest_server_mb()}
    return {"round": number, "system": system.name, "work": work.name, **outcome.as_dict(), **memory}


def as_markdown(result: dict[str, Any]) -> str:
    """The whole report."""
    machine, plan, systems = result["machine"], result["plan"], result["systems"]
    lines = rows(result)
    head = f"# {machine['started']}: {plan['rounds']} rounds, {plan['duration_s']:g} s a measurement\n\n"
    head += f"{sentence(machine)} Three nodes each, and the client, on this machine. Values of 128 B. "
    head += f"Load average before: {machine['load_before']:.1f}.\n\n"
    head += "".join(
        f"- {name}: {each['title']} {each['version']}; own client: {each['client']}\n" for name, each in systems.items()
    )
    notes = "\nMedians (lowest – highest) of the rounds. Above 1 × we are ahead, also where p50 is compared.\n"
    memory = {
        name: max((each["largest_server_mb"] for each in result["samples"] if each["system"] == name), default=0)
        for name in systems
    }
    tail = f"\nThe largest server had {', '.join(f'{size:,.0f} MB ({name})' for name, size in memory.items())}.\n"
    failed = "".join(f"- {each}\n" for each in result["failures"])
    tail += f"\n## Failed\n\n{failed}" if failed else ""
    return f"{head}{notes}\n{table(list(lines[0]), [list(each.values()) for each in lines])}{tail}"
