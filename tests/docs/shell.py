"""Shell blocks of the documents: taken apart into commands, run or checked."""

import re
import shlex
from functools import cache

import botocore.session
import click
from botocore import xform_name

from tests.docs.pages import ROOT, blocks
from zae_limiter_ops.cli.app import app
from zae_limiter_ops.views.advice import STACK_COMMANDS

# What a page shows beside our own commands, and what is not run: it installs, needs a server that
# another test starts, or an account.
NOT_RUN = {
    *{".", "cd", "curl", "docker", "eval", "flask", "git", "locust", "mkdocs", "npm", "pip"},
    *{"python3", "sqlite3", "uvicorn"},
}
# Commands of the AWS command line that are no operations of a service.
OWN_OF_AWS = {("cloudformation", "deploy")}
OF_STACKS = ("cfn-template", "lambda-export", *STACK_COMMANDS)
# They start servers, or take their time; tests of their own run them.
PARSED_ONLY = ("dashboard", "demo", "loadtest", "local", "serve")


class Line:
    """One command of a page."""

    def __init__(self, text):
        text, _, self.redirected_to = text.partition(" > ")
        self.text = text.strip()
        self.redirected_to = self.redirected_to.split("#")[0].strip()
        self.words = [word for word in shlex.split(text, comments=True) if word != "&"]

    @property
    def program(self):
        return self.words[0]

    @property
    def exported(self):
        """The variable that the line sets, and its value."""
        return tuple(self.words[1].split("=", 1)) if self.program == "export" else None

    @property
    def is_parsed_only(self):
        args = self.words[1:]
        if args[0] in PARSED_ONLY:
            return True
        named = {"-n", "--name", "--region"} & set(args)
        files = ("cfn-template", "lambda-export")  # need none, and write a file
        # Load tests start processes; tests/lab/load_runs runs them.
        of_stacks = (*OF_STACKS, "loadtest")
        return args[0] not in files and (args[0] in of_stacks or bool(named))


def lines(page):
    """Return the commands of a page's shell blocks, in order."""
    typed = "".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()
    parts = (part.strip() for line in typed for part in line.split(" && "))
    return [Line(part) for part in parts if part and not part.startswith("#")]


def parsed(args):
    """Parse one of our commands; return it. Raises what click raises for a wrong option."""
    command, rest, name = app, list(args), ""
    while isinstance(command, click.Group):
        name, *rest = rest
        found = command.get_command(click.Context(command), name)
        assert found is not None, f"there is no command {name!r}"
        command = found
    command.make_context(name, list(rest))
    return command


def answered(line, command):
    """Return the arguments of a command, with the yes of its user."""
    asks = any("--yes" in param.opts for param in command.params)
    given = {"-y", "--yes", "--auto-approve"} & set(line.words)
    return [*line.words[1:], *(["--yes"] if asks and not given else [])]


def check_aws(words):
    """Check that a service has such an operation, with such options."""
    _, service, operation, *rest = words
    if (service, operation) in OWN_OF_AWS:
        return
    options = [word for word in rest if word.startswith("--")]
    known = _operations(service)
    assert operation in known, f"aws {service} has no {operation}"
    assert set(options) <= known[operation], f"{set(options) - known[operation]}"


@cache
def _operations(service):
    model = botocore.session.get_session().get_service_model(service)
    operations = {}
    for name in model.operation_names:
        shape = model.operation_model(name).input_shape
        members = shape.members if shape is not None else {}
        operations[xform_name(name, "-")] = {f"--{xform_name(each, '-')}" for each in members}
    return operations


def check_make(words):
    """Check that there is such a target."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in (word for word in words[1:] if "=" not in word):
        assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE), target


def check_python(words):
    """Check that a module that is run exists."""
    if "-m" in words:
        module = words[words.index("-m") + 1].replace(".", "/")
        places = (ROOT / f"{module}.py", ROOT / module / "__main__.py")
        assert any(place.exists() for place in places), module


CHECKS = {"aws": check_aws, "make": check_make, "python": check_python}
