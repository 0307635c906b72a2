"""What every command shares: how it prints, and how it fails."""

from __future__ import annotations

import json
from typing import Any

import click

from eyechart.errors import EyechartError, Interrupted
from eyechart.phrases import printable, printable_json

lang_option = click.option(
    "--lang", type=click.Choice(["en", "ko"]), help="Language in which the page opens; it has a switch."
)


def say(text: object = "", err: bool = False) -> None:
    """Print a line; what a file or a subject is called cannot steer the terminal."""
    click.echo(printable(text), err=err)


class GroupWithPlainErrors(click.Group):
    """A user's mistake gets one sentence with one prefix, never a traceback; an interruption says what is kept."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except EyechartError as error:
            say(f"eyechart: {error}", err=True)
            ctx.exit(error.exit_code)
        except click.UsageError as error:  # click's own: an unknown option, a missing argument
            if error.ctx is not None:
                say(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} -h' for help.\n", err=True)
            say(f"eyechart: {error.format_message()}", err=True)
            ctx.exit(error.exit_code)
        except BrokenPipeError:  # whoever read the output is gone; click ends quietly
            raise
        except OSError as error:  # a name that is too long, a folder that may not be read
            named = f"{error.filename!s:.300}: " if error.filename else ""
            say(f"eyechart: {named}{error.strerror or error}", err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            say("eyechart: interrupted, finished shards are kept; run the same command again to continue.", err=True)
            ctx.exit(Interrupted.exit_code)


def as_json(data: object) -> None:
    click.echo(printable_json(json.dumps(data, indent=2, ensure_ascii=False, default=str)))
