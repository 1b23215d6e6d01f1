"""``dledger completion``: a script with which a shell completes commands and flags."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_DLEDGER_COMPLETE"
"""The script asks this program through it for the words to be offered."""


@click.command(short_help="Prints a script to complete commands by the tab key.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(*, shell: str) -> None:
    """Prints a script with which SHELL completes commands and flags. Evaluate it in the file that SHELL reads first.

    \b
    eval "$(dledger completion bash)"                  in ~/.bashrc
    eval "$(dledger completion zsh)"                   in ~/.zshrc
    dledger completion fish | source                   in ~/.config/fish/config.fish
    """
    known = get_completion_class(shell)
    assert known is not None, "click knows the three"
    click.echo(known(click.get_current_context().find_root().command, {}, "dledger", VARIABLE).source())
