"""Shared by the commands: flags with an environment variable each, and the cluster's addresses."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from dledger.common.config import GRPC_PORT_OFFSET
from dledger.common.config_file import CHOICES
from dledger.common.errors import InvalidRequest, quoted
from dledger.common.types import DEFAULT_GROUP, META_GROUP, check_group_name

if TYPE_CHECKING:
    from dledger.client import Cluster, Log
    from dledger.client.waits import OnWait
    from dledger.common.config import Limits

    _ParamType = click.ParamType[str]
else:
    _ParamType = click.ParamType  # generic in click's newest versions alone

Command = TypeVar("Command", bound=Callable[..., Any])

DEV_PORT = 20911
DEV_PORT_STEP = 10
DEV_NODES = 5
DEV_ENDPOINTS = ",".join(f"127.0.0.1:{DEV_PORT + DEV_PORT_STEP * i + GRPC_PORT_OFFSET}" for i in range(DEV_NODES))


MOST_SECONDS = 366 * 24 * 3600
FORMATS = ("table", "wide", "text", "lines", "raw", "json")


class Number(click.FloatRange):
    """From ``least`` to ``most``, and no NaN."""

    what = "number"
    advice = ""

    def __init__(self, least: float, most: float) -> None:
        super().__init__(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            is_number = not math.isnan(float(value))
        except ValueError:
            is_number = False
        if not is_number:
            self.fail(f"{quoted(str(value))} is no {self.what}{self.advice}.", param, ctx)
        return float(super().convert(value, param, ctx))


class Seconds(Number):
    """A time that can be waited: a year at most."""

    what = "number of seconds"
    advice = ": write it without a unit, as in 5"

    def __init__(self, least: float) -> None:
        super().__init__(least, MOST_SECONDS)


class GroupName(_ParamType):
    """What a group may be called. An empty one is refused: of `--group "$NAME"`, nobody knows whether it was meant."""

    name = "group"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name = str(value)
        if not name and isinstance(param, click.Option):
            self.fail("it names no group: give a name, or leave --group out.", param, ctx)
        try:
            check_group_name(name)
        except InvalidRequest as why:
            self.fail(f"{why}.", param, ctx)
        return name


class OutputOption(click.Option):
    """-o. DLEDGER_OUTPUT is one variable for all commands: a format that only another command has is ignored."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        value = super().resolve_envvar_value(ctx)
        mine = self.type.choices if isinstance(self.type, click.Choice) else ()
        return None if value in FORMATS and value not in mine else value


class Target(NamedTuple):
    """The cluster that a command talks to, the group, and how long it waits for an answer."""

    endpoints: str
    group: str
    timeout_ms: int
    is_cluster: bool = False
    """No group was named, and the command is about the cluster then: ``group`` is ``meta``, which all nodes are in."""

    def connect_cluster(self, *, on_wait: OnWait | None = None) -> Cluster:
        """A client of all groups. It tells ``on_wait`` what it waits for."""
        import dledger.client  # noqa: PLC0415  # as below

        return dledger.client.connect_cluster(self.endpoints, timeout_ms=self.timeout_ms, on_wait=on_wait)

    def connect(self, endpoints: str = "", *, limits: Limits | None = None, on_wait: OnWait | None = None) -> Log:
        """A client of the group, over ``endpoints`` instead of the target's own if given. What is beyond ``limits`` it
        refuses without asking a server. It tells ``on_wait`` what it waits for."""
        import dledger.client  # noqa: PLC0415  # gRPC takes 0.1 s to import: not for --help

        where = endpoints or self.endpoints
        return dledger.client.connect(
            where, group=self.group, timeout_ms=self.timeout_ms, limits=limits, on_wait=on_wait
        )


def option(*names: str, env: str, **settings: Any) -> Callable[[Command], Command]:
    """``click.option`` with the variable DLEDGER_``env``, which --help shows as it does the default."""
    settings.setdefault("show_default", settings.get("default") not in (None, "", False))
    return click.option(*names, envvar=f"DLEDGER_{env}", show_envvar=True, **settings)


_ENDPOINTS = option(
    "--endpoints", env="ENDPOINTS", default=DEV_ENDPOINTS, metavar="HOST:PORT,…", help="gRPC addresses."
)
group_option = option(
    "--group", env="GROUP", default=DEFAULT_GROUP, type=GroupName(), help="The group (a log of its own)."
)
_CLUSTERS_GROUP = option(
    "--group", env="GROUP", default=None, type=GroupName(), help="This group alone; by default the cluster itself."
)
_TIMEOUT = option("--timeout", env="TIMEOUT", default=10.0, type=Seconds(0.001), help="Seconds per call.")


def client_options(command: Command) -> Command:
    """Adds --endpoints, --group and --timeout, and hands them over as one ``target``. Where nobody leads, or answers,
    the command's failure is followed by the reason, as ``health`` knows it."""
    return _with_target(command, _ENDPOINTS, group_option, _TIMEOUT)


def cluster_options(command: Command) -> Command:
    """As ``client_options`` without --group, for commands about the whole cluster."""
    return _with_target(command, _ENDPOINTS, _TIMEOUT)


def member_options(command: Command) -> Command:
    """As ``client_options``, for commands that are about the whole cluster unless a group is named."""
    return _with_target(command, _ENDPOINTS, _CLUSTERS_GROUP, _TIMEOUT)


def _with_target(command: Command, *decorators: Callable[[Any], Any]) -> Command:
    @functools.wraps(command)
    def with_target(*args: Any, endpoints: str, timeout: float, group: str | None = DEFAULT_GROUP, **rest: Any) -> Any:
        target = Target(endpoints, group or META_GROUP, int(timeout * 1000), is_cluster=not group)
        click.get_current_context().find_root().obj = target  # its troubles are told if the command fails
        return command(*args, target=target, **rest)

    result: Command = add_options(with_target, decorators)
    return result


def add_options(command: Any, decorators: Sequence[Callable[[Any], Any]]) -> Any:
    """The command with these options, in the order in which --help shows them."""
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def output_option(*formats: str) -> Callable[[Command], Command]:
    """-o with the formats of a command, the first being the default."""
    return option(
        "-o",
        "--output",
        env="OUTPUT",
        type=click.Choice(formats),
        default=formats[0],
        help="Format on stdout.",
        cls=OutputOption,
    )


def node_logging_options(command: Command) -> Command:
    """--log-format and --log-level of the commands that run nodes."""
    decorators = (
        option("--log-format", env="LOG_FORMAT", type=click.Choice(CHOICES["log_format"]), default=None,
               help="How nodes log, on stderr.  [default: text]"),
        option("--log-level", env="LOG_LEVEL", type=click.Choice(CHOICES["log_level"]), default=None,
               help="How much nodes log.  [default: info]"),
    )  # fmt: skip
    result: Command = add_options(command, decorators)
    return result
