"""Results that a command writes to a file or prints."""

from __future__ import annotations

from pathlib import Path

import click

from zae_limiter_ops.cli.shared.tables import print_line


def check_result_file(ctx: click.Context, param: click.Parameter, file: Path | None) -> Path | None:
    """Refuse a folder where the name of a file is wanted."""
    if file is not None and file.is_dir():  # an empty name is the working directory
        raise click.BadParameter("must be the name of a file", ctx, param)
    return file


result_file_option = click.option(
    "--file",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=check_result_file,
    help="File to write to; default: stdout.",
)


def write_text(text: str, file: Path | None, what: str) -> None:
    """Write the text to the file, or print it."""
    if file is None:
        click.echo(text, nl=False)
        return
    file.write_text(text, encoding="utf-8")
    print_line(f"{what} written to {file}")
