"""``zae-limiter cfn-template`` and ``lambda-export``, for deployments with other tools."""

from __future__ import annotations

from pathlib import Path

import click

from zae_limiter_ops.cli.shared.result_files import (
    check_result_file,
    result_file_option,
    write_text,
)
from zae_limiter_ops.cli.shared.tables import print_line


@click.command("cfn-template")
@result_file_option
def cfn_template(file: Path | None) -> None:
    """Print the CloudFormation template.

    The parameters of the template are the options of 'deploy'. Its functions raise an error until
    they get their code: run 'zae-limiter upgrade', or upload the file of 'lambda-export'.

    \b
    Example:
      zae-limiter cfn-template > template.yaml
    """
    from zae_limiter_ops.infra.template import as_yaml

    write_text(as_yaml(), file, "template")


@click.command("lambda-export")
@click.option(
    "--output",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=check_result_file,
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

    The zip contains exactly the modules that the function imports; the same version always makes
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
