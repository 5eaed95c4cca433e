"""``zae-limiter cfn-template`` and ``lambda-export``: for deployments by other tools."""

from __future__ import annotations

from pathlib import Path

import click

from zae_limiter_ops.cli.shared.tables import print_line


def _checked(ctx: click.Context, param: click.Parameter, file: Path | None) -> Path | None:
    if file is not None and file.is_dir():  # an empty name is the working directory
        raise click.BadParameter("must be the name of a file", ctx, param)
    return file


@click.command("cfn-template")
@click.option(
    "--file",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_checked,
    help="File to write to; otherwise it is printed.",
)
def cfn_template(file: Path | None) -> None:
    """Print the CloudFormation template.

    Its parameters are the options of 'deploy'. The functions in it raise an error until they get
    their code: 'zae-limiter upgrade' brings it, or upload what 'lambda-export' writes.

    \b
    Example:
      zae-limiter cfn-template > template.yaml
    """
    from zae_limiter_ops.infra.template import as_yaml

    text = as_yaml()
    if file is None:
        click.echo(text, nl=False)
        return
    file.write_text(text, encoding="utf-8")
    print_line(f"template written to {file}")


@click.command("lambda-export")
@click.option(
    "--output",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_checked,
    default="lambda.zip",
    show_default=True,
    help="File to write to.",
)
@click.option(
    "--function",
    type=click.Choice(["aggregator", "provisioner"]),
    default="aggregator",
    show_default=True,
    help="Function whose code is written.",
)
def lambda_export(file: Path, function: str) -> None:
    """Write the code of a function to a file.

    The zip contains what the function imports and nothing else; the same version always makes
    the same bytes.

    \b
    Examples:
      zae-limiter lambda-export --output lambda.zip
      zae-limiter lambda-export --function provisioner --output provisioner.zip
    """
    from zae_limiter_ops.infra import packages

    is_aggregator = function == "aggregator"
    package = packages.aggregator_package() if is_aggregator else packages.provisioner_package()
    file.write_bytes(package.content)
    print_line(f"{len(package.content):,} bytes written to {file}, CodeSha256 {package.sha256}")
