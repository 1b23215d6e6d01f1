"""``dledger config``: the settings that a node would have, and whether it would start with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from dledger.cli.options import output_option
from dledger.cli.output import print_fields, print_json, table
from dledger.cli.serve_command import given, serve
from dledger.common.config import Limits, NodeConfig, Timings
from dledger.common.config_checks import check_numbers
from dledger.common.config_file import (
    KEYS,
    PORT_KEYS,
    format_peers,
    keys_in_file,
    load_config_file,
    missing_keys,
    node_config,
)
from dledger.common.types import Durability

DEFAULT = "default"
SECTIONS = {"limits": Limits, "timings": Timings}
LOGS = {"log_format": "text", "log_level": "info"}


class Setting(NamedTuple):
    """One setting's value, and where it comes from: a flag, a variable, a file, or the default."""

    key: str
    value: Any
    source: str


@click.group()
def config() -> None:
    """Shows and checks the settings of a node. All of them: docs/config.md."""


@config.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@output_option("text", "json")
def check(file: Path, output: str) -> None:
    """Checks a configuration file, on the machine of its node: every key, and all of them together.

    Exits with 0 when a node would start with it, 2 with the reason when not. `missing` names the keys that a node needs
    and the file leaves to flags or variables.
    """
    settings = load_config_file(file)
    missing = missing_keys(settings)
    if missing:
        check_numbers(settings.get("limits", Limits()), settings.get("timings", Timings()))
    else:
        node_config(settings)
    if output == "json":
        print_json({"ok": True, "file": str(file), "missing": missing})
    else:
        print_fields("ok", {"file": file, "missing": ",".join(missing) or None})


@output_option("table", "json")
@click.pass_context
def show(context: click.Context, /, output: str, **flags: Any) -> None:
    """Prints every setting that `dledger serve` would have with the same flags and variables, and where it comes from.

    Nothing is started, and nothing is checked but what each value must be: `config check` does that.
    """
    settings = effective(context, flags)
    if output == "json":
        print_json({each.key: {"value": each.value, "source": each.source} for each in settings})
    else:
        rows = [(each.key, "-" if each.value is None else each.value, each.source) for each in settings]
        click.echo(table(("setting", "value", "from"), rows))


config.add_command(
    click.command(
        short_help="Prints every setting and its source.",
        params=[each for each in serve.params if each.name in (*KEYS, "config")],
    )(show)
)


def effective(context: click.Context, flags: dict[str, Any]) -> list[Setting]:
    """Every setting in the order of docs/config.md. Raises CONFIG_ERROR."""
    file = flags.pop("config")
    in_file = load_config_file(Path(file)) if file else {}
    file_keys = keys_in_file(Path(file)) if file else set()
    settings = in_file | given(flags)
    sources = {key: str(file) for key in file_keys}
    for param in context.command.params:
        source = context.get_parameter_source(param.name or "")
        if source is ParameterSource.COMMANDLINE:
            sources[param.name or ""] = param.opts[-1]
        elif source is ParameterSource.ENVIRONMENT:
            sources[param.name or ""] = str(param.envvar)
    values = _values(settings)
    for name, kind in SECTIONS.items():
        values |= {f"{name}.{key}": value for key, value in asdict(settings.get(name, kind())).items()}
    return [Setting(key, value, sources.get(key, DEFAULT)) for key, value in values.items()]


def _values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of the node, as it would use them; None if nothing is said and no default can be told."""
    values = {key: settings.get(key, LOGS.get(key)) for key in KEYS if key not in SECTIONS}
    values["peers"] = format_peers(settings["peers"]) if settings.get("peers") else None
    values["durability"] = settings.get("durability", Durability.FSYNC).value
    values["lease_reads"] = settings.get("lease_reads", False)
    if settings.get("address") or settings.get("id") in settings.get("peers", {}):
        places = ("id", "address", "listen", "advertise", *PORT_KEYS)
        known = {key: settings[key] for key in places if settings.get(key) is not None}
        node = NodeConfig(data_dir=Path(), peers=settings.get("peers", {}), **{"id": "", **known})
        values |= {"address": node.peer_address, "listen": node.listen_host, "advertise": node.client_address}
        values |= {"grpc_port": node.client_port, "http_port": node.metrics_port}
    return values
