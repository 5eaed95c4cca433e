"""The processes of a load test: ``python -m zae_limiter_lab.loadtest.nodes master|worker|alone``.

The plan is the first line of stdin. The end of stdin means to stop, so that a node does not outlive
the command that started it. A master reports events as lines of JSON on stdout; the output of a
locustfile goes to stderr.
"""

from __future__ import annotations

import locust  # patches the process for gevent: before other imports
from locust import runners
from locust.argument_parser import get_parser
from locust.env import Environment
from locust.html import get_html_report
from locust.util.load_locustfile import load_locustfile

import json  # isort: skip
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import gevent
from gevent.event import Event
from gevent.fileobject import FileObject

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter_lab.loadtest import LoadPlan, LoadTestError
from zae_limiter_lab.loadtest.measuring import Measurement, attach_figures
from zae_limiter_lab.loadtest.tuning import UserSearch
from zae_limiter_lab.locust import RateLimiterUser, close_limiters

HOST = "127.0.0.1"
REPORT_EVERY_S = 1.0  # Locust's 3 s would make a step of a few seconds inaccurate
CONNECTED_WITHIN_S = 120.0  # of workers; a function in a VPC may take half a minute to start
STOP_WITHIN_S = 10  # whole seconds that users have to end their task
SETTLED_S = 1.5  # after a change of users, until reports speak of the new number only
OPEN_FILES = 10_000  # each call under way may have a connection

logger = logging.getLogger(__name__)
Say = Callable[..., None]


def make_environment(plan: LoadPlan, *extra: str) -> Environment:
    """Load the locustfile and choose its classes; raises LoadTestError for a wrong plan."""
    os.chdir(plan.folder)
    if plan.namespace is not None:
        os.environ["ZAEL_NAMESPACE"] = plan.namespace
    users, shapes = _load(str(Path(plan.file).resolve()))
    if not users:
        raise LoadTestError(f"{plan.file} has no user class; derive one from RateLimiterUser")
    unknown = [name for name in plan.classes if name not in users]
    if unknown:
        raise LoadTestError(
            f"{plan.file} has no user class {unknown[0]!r}; it has {', '.join(sorted(users))}"
        )
    options = get_parser().parse_args(_arguments(plan, *extra))
    environment = Environment(
        user_classes=[users[name] for name in plan.classes or users],
        shape_class=shapes[0] if shapes and plan.mode == "run" else None,
        events=locust.events,
        host=plan.host,
        stop_timeout=STOP_WITHIN_S,
        parsed_options=options,
        locustfile=Path(plan.file).name,
        parsed_locustfiles=[plan.file],
        available_user_classes=users,
    )
    runners.WORKER_REPORT_INTERVAL = REPORT_EVERY_S
    _raise_file_limit()
    return environment


def _arguments(plan: LoadPlan, *extra: str) -> list[str]:
    """Return the plan as arguments of Locust, which shapes and listeners may read."""
    words = ["-f", plan.file, "--headless", "-u", str(plan.users), "-r", str(plan.spawn_rate)]
    words += ["-t", f"{max(1, round(plan.seconds))}s", "-s", str(STOP_WITHIN_S), *extra]
    return words if plan.host is None else [*words, "-H", plan.host]


def _load(path: str) -> tuple[dict[str, Any], list[Any]]:
    try:
        return load_locustfile(path)
    except FileNotFoundError:
        raise LoadTestError(f"there is no locustfile at {path}; check --file and -C") from None
    except SyntaxError as error:
        raise LoadTestError(f"{path}, line {error.lineno}: {error.msg}") from None
    except Exception as error:
        logger.debug("locustfile", exc_info=True)
        raise LoadTestError(f"{path} fails to import: {type(error).__name__}: {error}") from None


def open_stores(environment: Environment) -> None:
    """Open the store of every class once, so that a wrong name is a single error."""
    for user_class in environment.user_classes:
        if issubclass(user_class, RateLimiterUser):
            user_class.open_client(environment)


class LoadDriver:
    """Runs the users of a plan on a runner, local or distributed, and measures."""

    def __init__(self, environment: Environment, plan: LoadPlan, say: Say, stop: Event) -> None:
        self._environment = environment
        self._runner: Any = environment.runner
        self._plan = plan
        self._say = say
        self._stop = stop
        self._shape_ended = Event()
        self._measurement = Measurement(environment)
        if environment.shape_class is not None:
            _keep_last_tick(environment.shape_class, self._shape_ended)

    def run(self) -> dict[str, Any]:
        """Run for the duration of the plan, or until stopped; return the report."""
        self._start(self._plan.users)
        measurement = self._measurement
        measurement.begin()
        until = time.monotonic() + self._plan.seconds
        while not self._is_over(until):
            self._stop.wait(min(REPORT_EVERY_S, max(0.01, until - time.monotonic())))
            self._say("progress", **measurement.progress())
        measurement.end()
        self._finish()
        if self._plan.html:
            Path(self._plan.html).write_text(
                get_html_report(self._environment, show_download_link=False), encoding="utf-8"
            )
        return measurement.report(self._plan.users).as_dict()

    def tune(self) -> dict[str, Any]:
        """Search for the best number of users; return the steps."""
        search = UserSearch(self._plan.users, self._plan.max_latency_ms)
        while (users := search.next_users()) is not None and not self._stop.is_set():
            self._start(users)
            self._stop.wait(SETTLED_S + REPORT_EVERY_S)
            self._measurement.begin()
            self._stop.wait(self._plan.seconds)
            self._measurement.end()
            if self._stop.is_set():
                break
            step = search.record(self._measurement.step(users))
            self._say("step", **asdict(step))
        self._finish()
        return search.as_dict()

    def _start(self, users: int) -> None:
        failed_before = locust.log.unhandled_greenlet_exception
        if self._environment.shape_class is not None:
            self._runner.start_shape()
        else:
            self._runner.start(users, self._plan.with_users(users).spawn_rate)
        if locust.log.unhandled_greenlet_exception and not failed_before:
            raise LoadTestError(
                f"{self._plan.file}: a listener of test_start failed; its traceback is above, "
                "with ZAEL_DEBUG=1"
            )

    def _is_over(self, until: float) -> bool:
        has_workers = getattr(self._runner, "worker_count", 1) > 0
        is_ended = self._stop.is_set() or self._shape_ended.is_set()
        return is_ended or time.monotonic() >= until or not has_workers

    def _finish(self) -> None:
        """Let users end their tasks, and wait for the last report of every worker."""
        runner = self._runner
        self._say("stopping")
        if not isinstance(runner, runners.MasterRunner):
            runner.quit()
            return
        runner.stop(send_stop_to_client=False)
        runner.send_message("quit")
        until = time.monotonic() + STOP_WITHIN_S + REPORT_EVERY_S
        while runner.worker_count and time.monotonic() < until:
            gevent.sleep(0.02)


def _keep_last_tick(shape: Any, ended: Event) -> None:
    """Note the end of a shape and repeat its last tick: Locust would quit and lose reports."""
    tick, last = shape.tick, [(1, 1.0)]

    def kept() -> Any:
        answer = tick()
        if answer is None:
            ended.set()
        else:
            last[0] = answer
        return last[0]

    shape.tick = kept


def run_master(plan: LoadPlan, say: Say, stop: Event, *, bind: str = HOST, port: int = 0) -> None:
    """Wait for the workers, run the plan, and say the report. Port 0 takes any free port."""
    environment = make_environment(plan, "--master", "--expect-workers", str(plan.workers))
    open_stores(environment)
    runner = environment.create_master_runner(bind, port)
    environment.events.init.fire(environment=environment, runner=runner, web_ui=None)
    driver = LoadDriver(environment, plan, say, stop)  # it notes the first reports of workers
    say("listening", port=runner.server.port)
    until = time.monotonic() + CONNECTED_WITHIN_S
    while len(runner.clients.ready) < plan.workers and not stop.is_set():
        if time.monotonic() > until:
            raise LoadTestError(f"no worker has connected within {CONNECTED_WITHIN_S:.0f} s")
        gevent.sleep(0.02)
    say("started")
    say("done", report=driver.tune() if plan.mode == "tune" else driver.run())
    runner.quit()
    environment.events.quitting.fire(environment=environment, reverse=True)


def run_worker(plan: LoadPlan, port: int, stop: Event, host: str = HOST) -> None:
    """Work for the master until it says to quit, or until stopped."""
    environment = make_environment(plan, "--worker")
    attach_figures(environment)
    runner = environment.create_worker_runner(host, port)
    environment.events.init.fire(environment=environment, runner=runner, web_ui=None)
    gevent.spawn(_quit_when, stop, runner)
    runner.greenlet.join()
    environment.events.quitting.fire(environment=environment, reverse=True)


def run_alone(plan: LoadPlan, say: Say, stop: Event) -> dict[str, Any]:
    """Run the plan in this process, without a master; return the report."""
    environment = make_environment(plan)
    open_stores(environment)
    runner = environment.create_local_runner()
    environment.events.init.fire(environment=environment, runner=runner, web_ui=None)
    driver = LoadDriver(environment, plan, say, stop)
    report = driver.tune() if plan.mode == "tune" else driver.run()
    environment.events.quitting.fire(environment=environment, reverse=True)
    return report


def _raise_file_limit() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(OPEN_FILES, hard) if hard != resource.RLIM_INFINITY else OPEN_FILES
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _quit_when(stop: Event, runner: Any) -> None:
    stop.wait()
    runner.quit()


def _watch(stdin: Any, stop: Event) -> None:
    """Set the event at the end of stdin."""
    while stdin.read(1024):
        pass
    stop.set()


def _own_stdout() -> IO[str]:
    """Return stdout for messages alone; all other output goes to stderr."""
    messages = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return messages


def _run(plan: LoadPlan, arguments: list[str], say: Say, stop: Event) -> None:
    """Run ``master [PORT]``, ``worker PORT [HOST]`` or ``alone``, as the arguments name it."""
    kind, *rest = arguments
    if kind == "alone":
        say("done", report=run_alone(plan, say, stop))
    elif kind == "master" and rest:
        run_master(plan, say, stop, bind="*", port=int(rest[0]))
    elif kind == "master":
        run_master(plan, say, stop)
    else:
        run_worker(plan, int(rest[0]), stop, *rest[1:])


def main(arguments: list[str]) -> int:
    messages = _own_stdout()

    def say(event: str, **data: Any) -> None:
        messages.write(json.dumps({"event": event, **data}) + "\n")

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    stdin, stop = FileObject(sys.stdin.fileno(), "rb", closefd=False), Event()
    plan = LoadPlan.of_json(stdin.readline().decode())
    gevent.spawn(_watch, stdin, stop)
    try:
        _run(plan, arguments, say, stop)
    except ZAELimiterError as error:
        say("error", text=str(error))
        sys.stderr.write(f"{error}\n")  # of a worker, whose log is quoted
        close_limiters()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
