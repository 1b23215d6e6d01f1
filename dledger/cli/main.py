"""The entry: ``dledger COMMAND``."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from dledger.cli.runtime import EXIT_UNAVAILABLE, EXIT_UNKNOWN, ReaderGoneError, complain, exit_code_of
from dledger.cli.streams import STDOUT, fill_closed_streams, guard_streams
from dledger.common.errors import ConfigError, DLedgerError
from dledger.version import __version__

SECTIONS = {
    "Run nodes": {"serve": "serve_command", "dev": "dev", "demo": "demo"},
    "Use the log": {"append": "append", "get": "get", "tail": "tail", "bench": "bench"},
    "Use the store": {"kv": "kv"},
    "Analyse it": {"spark": "spark"},
    "Look after it": {
        "status": "status",
        "health": "status",
        "config": "config_command",
        "log": "log_command",
        "admin": "admin",
        "group": "group_commands",
        "completion": "completion",
    },
}

ALSO = {
    "members": ("status", "status"),
    "read": ("get", "get"),
    "help": ("main", "help_command"),
    "version": ("main", "version_command"),
}
"""Names not shown by --help, each with the module and the name of its command: users try these first."""

BEHIND_COMMANDS = frozenset({"--endpoints", "--group", "--timeout", "--output", "-o"})
"""Options of many commands, which some users write in front of the command."""


class LazyGroup(click.Group):
    """Commands by name; a command's module is imported when it is asked for, so ``serve`` starts without the client."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as unknown:
            if unknown.option_name not in BEHIND_COMMANDS:
                raise
            command = next((each for each in args if each in self.list_commands(ctx)), "status")
            raise click.UsageError(
                f"{unknown.option_name} stands in front of the command. Options come behind it: "
                f"dledger {command} {unknown.option_name} …"
            ) from unknown

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for commands in SECTIONS.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for commands in SECTIONS.values():
            if cmd_name in commands:
                return _load(commands[cmd_name], cmd_name)
        return _load(*ALSO[cmd_name]) if cmd_name in ALSO else None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as closed:
            raise ReaderGoneError from closed
        except DLedgerError as failure:
            if ctx.obj is None or failure.exit_code not in (EXIT_UNAVAILABLE, EXIT_UNKNOWN):
                raise
            complain(failure)
            from dledger.cli.diagnosis import tell_why  # noqa: PLC0415  # as the commands

            tell_why(ctx.obj)
            ctx.exit(failure.exit_code)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                loaded = ((name, self.get_command(ctx, name)) for name in commands)
                formatter.write_dl([(name, command.get_short_help_str(90)) for name, command in loaded if command])


def _load(module: str, name: str) -> click.Command:
    command: click.Command = getattr(import_module(f"dledger.cli.{module}"), name)
    return command


def show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Prints ``dledger 1.2.3`` and ends."""
    if wanted and not ctx.resilient_parsing:
        click.echo(f"dledger {__version__}")
        ctx.exit()


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """A replicated commitlog: an acknowledged append is on the disks of a majority.

    \b
    dledger dev                          five nodes on this machine
    seq 1000 | dledger append            one record per line
    dledger get 0:10                     records 0 to 9
    dledger tail -f                      what comes
    dledger status                       who leads, how far everyone is
    dledger group create orders          a log more, for --group orders of every command
    dledger kv put color red             a key of the store

    Every flag has an environment variable. stdout is data only; progress and errors go to stderr.

    \b
    Exit codes: 0 ok · 1 checked and bad · 2 usage or configuration · 3 no leader, unreachable or too late ·
    4 outcome unknown · 5 refused by the server · 6 stdout cannot be written · 130 interrupted.
    """


@click.command("help")
@click.argument("command", nargs=-1)
def help_command(command: tuple[str, ...]) -> object:
    """Shows the help of a command, or this program's."""
    return cli.main(args=[*command, "--help"], prog_name="dledger", standalone_mode=False)


@click.command("version")
def version_command() -> None:
    """Shows the version."""
    click.echo(f"dledger {__version__}")


def main(arguments: list[str] | None = None) -> None:
    """Runs the command line and ends the process with its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    closed = fill_closed_streams()
    guard_streams()

    def command() -> object:
        # A node logs to stderr; every other command has something to say on stdout.
        if STDOUT in closed and arguments[:1] != ["serve"]:
            raise ConfigError("stdout is closed, nothing was done: send it somewhere, to /dev/null if nobody reads it")
        return cli.main(args=arguments, prog_name="dledger", standalone_mode=False)

    sys.exit(exit_code_of(command))


if __name__ == "__main__":
    main()
