"""Accept a release on a real AWS account, with one command.

    python -m tools.accept_aws --region eu-central-1 --name accept-1

The command deploys a stack of its own, tries it, deletes everything, and writes a report. Nobody
has run it on AWS yet: see docs/contributing/acceptance.md.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from tools.accept_aws import (
    deletion,
    deploying,
    expiry,
    limits_stack,
    policies,
    suites,
    usage,
)
from tools.accept_aws.run import Run, Settings, Step, execute, say
from zae_limiter.exceptions import ZAELimiterError

ROOT = Path(__file__).parents[2]
COST = """\
Expected cost: below 1 USD by estimate, which nobody has checked on AWS. The suites send some
100,000 requests on demand (https://aws.amazon.com/dynamodb/pricing/), and for an hour there are
some tables, two functions, alarms and a bucket. All of it is deleted in the end, unless --keep.
Expected time: 30 to 60 minutes."""

STEPS = (
    Step("deploy", deploying.deploy, needs_stack=False),
    Step("deploy-again", deploying.deploy_again),
    Step("policies", policies.check_policies),
    Step("usage", usage.turn_an_hour),
    Step("limits-stack", limits_stack.change_limits),
    Step("contract", suites.contract),
    Step("forms", suites.replay_forms),
    Step("units", suites.units),
    Step("expiry", expiry.plant),
)
RESUMED = (Step("expiry", expiry.look),)
ENDING = (
    Step("delete", deletion.delete_everything, needs_stack=False),
    Step("left-over", deletion.list_left_over, needs_stack=False),
)


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if no step has failed, 1 if one has, 2 if nothing was begun."""
    options = _parser().parse_args(arguments)
    settings = Settings(
        name=options.name,
        region=options.region,
        folder=options.folder or ROOT / "build/acceptance" / options.name,
        endpoint_url=options.endpoint_url,
        keep=options.keep,
        workers=options.workers,
        select=options.select,
        forms=options.forms,
        settle_s=options.settle_s,
        moment_s=options.moment_s,
        within_s=options.within_s,
    )
    try:
        run = Run(settings)
    except ZAELimiterError as error:
        return _refuse(str(error))
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _resume(run, options) if options.resume else _begin(run, options)
    except ZAELimiterError as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
        run.close()


def _begin(run: Run, options: argparse.Namespace) -> int:
    """Make the whole run on a new stack."""
    _introduce(run)
    say(COST)
    if run.deployment.manager.describe() is not None:
        return _refuse(f"the stack {run.name} exists; choose another --name, or use --resume")
    if not options.yes and not _agrees():
        return _refuse("nothing was done")
    run.created_tables.unlink(missing_ok=True)
    steps = [step for step in STEPS if not options.only or step.name in {"deploy", *options.only}]
    execute(run, steps, [] if options.keep else list(ENDING))
    return _finish(run)


def _resume(run: Run, options: argparse.Namespace) -> int:
    """Look for expired items on the stack of an earlier run; delete it if nothing is missing."""
    _introduce(run)
    if not deploying.is_own(run):
        return _refuse(f"there is no stack {run.name} that this command has made")
    run.is_deployed = True
    run.report_folder = run.settings.folder / "resumed"
    execute(run, list(RESUMED), [])
    if options.delete or run.report.steps[-1].outcome == "passed":
        execute(run, [], list(ENDING))
    else:
        say(f"The stack {run.name} stays. Run this again later, or with --delete.")
    return _finish(run)


def _agrees() -> bool:
    """Ask; without a terminal nobody agrees."""
    try:
        return input("Continue? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _finish(run: Run) -> int:
    say("")
    for step in run.report.steps:
        say(step.line)
    for each in run.report.left:
        say(f"left: {each}")
    if run.settings.keep and run.is_deployed:
        say(f"The stack {run.name} was kept, as --keep says: continue with --resume.")
    say(f"The report is in {run.report_folder}: report.md and report.json")
    return 0 if run.report.has_passed else 1


def _introduce(run: Run) -> None:
    report = run.report
    say(
        f"Account {report.account}, region {report.region}, stack {report.stack}, {report.endpoint}"
    )


def _refuse(reason: str) -> int:
    print(reason, file=sys.stderr)
    return 2


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    """Treat a request to end like an interrupt, so that everything is deleted."""
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.accept_aws",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--region", required=True, help="region of the stack")
    add("--name", required=True, help="name of a new stack, which the command deletes in the end")
    add("--yes", action="store_true", help="do not ask before the stack is deployed")
    add("--keep", action="store_true", help="keep the stack, to look for expired items days later")
    add("--resume", action="store_true", help="look for expired items on a stack that was kept")
    add("--delete", action="store_true", help="with --resume: delete the stack in any case")
    add("--only", action="append", choices=[step.name for step in STEPS], help="only these steps")
    add("--folder", type=Path, help="folder of the report (build/acceptance/NAME)")
    add("--workers", type=int, default=4, help="tests at once (4)")
    add("--select", default="dynamo", help="tests of the contract suite, as pytest -k (dynamo)")
    add("--forms", type=Path, help="folder of forms recorded earlier; without it they are recorded")
    add("--settle-s", type=float, default=1.0, help="wait of an index after a write (1)")
    add("--moment-s", type=float, default=3.0, help="request timeout in tests of outages (3)")
    add("--within-s", type=float, default=600.0, help="longest wait for the control plane (600)")
    add("--endpoint-url", help="a local control plane instead of AWS")
    return parser


if __name__ == "__main__":
    sys.exit(main())
