"""What every command shares: how it prints, and how it fails."""

from __future__ import annotations

import codecs
import io
import json
import sys
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


PLAIN = str.maketrans({"−": "-", "–": "-", "—": "-", "×": "x", "…": "...", "→": "->", "≥": ">=", "≤": "<=", "’": "'"})
"""What is printed for a sign that the reader's encoding lacks: a minus may not become a question mark."""


def plainly(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end].translate(PLAIN)
    return lacking.encode("ascii", "backslashreplace").decode(), error.end


def takes_every_letter(stream: object) -> bool:
    return codecs.lookup(getattr(stream, "encoding", None) or "utf-8").name.startswith("utf")


def print_what_can_be() -> None:
    """Output into a file or a pipe on Windows is in the code page of the country, which lacks half of our signs."""
    codecs.register_error("eyechart-plainly", plainly)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not takes_every_letter(stream):
            stream.reconfigure(errors="eyechart-plainly")


class GroupWithPlainErrors(click.Group):
    """A user's mistake gets one sentence with one prefix, never a traceback; an interruption says what is kept."""

    def main(self, *args: Any, **settings: Any) -> Any:
        print_what_can_be()
        return super().main(*args, **settings)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Whole sentences, over several lines; click cuts each after one line of 80 columns."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(limit=1000)) for name, each in commands if each])

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
    escaped = not takes_every_letter(sys.stdout)
    click.echo(printable_json(json.dumps(data, indent=2, ensure_ascii=escaped, default=str)))
