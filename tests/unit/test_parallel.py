"""How the sync tree runs independent calls, and what it warns of."""

import os
import sys
import threading
import types
import warnings

import pytest

from zae_limiter import SyncRepository, ValidationError
from zae_limiter.runtime.parallel import Parallel, gather


@pytest.fixture
def processors(monkeypatch):
    """Sets the number of CPUs that the machine seems to have."""

    def pretend(number):
        monkeypatch.setattr(os, "cpu_count", lambda: number)

    pretend(4)
    return pretend


@pytest.fixture
def gevent(monkeypatch):
    """A gevent that counts greenlets and runs them when joined."""
    spawned = []

    class Greenlet:
        def __init__(self, call):
            spawned.append(self)
            self._call = call
            self._error = None
            self._value = None

        def run(self):
            try:
                self._value = self._call()
            except Exception as error:  # noqa: BLE001 - as gevent does, kept for get()
                self._error = error

        def get(self):
            if self._error is not None:
                raise self._error
            return self._value

    module = types.ModuleType("gevent")
    module.spawn = Greenlet
    module.joinall = lambda greenlets: [each.run() for each in greenlets]
    monkey = types.ModuleType("gevent.monkey")
    monkey.patched = {"socket"}
    monkey.is_module_patched = lambda name: name in monkey.patched
    module.monkey = monkey
    module.spawned = spawned
    monkeypatch.setitem(sys.modules, "gevent", module)
    monkeypatch.setitem(sys.modules, "gevent.monkey", monkey)
    return module


@pytest.fixture
def opened():
    """Runners that are closed at the end."""
    runners = []

    def make(mode="auto"):
        runners.append(Parallel(mode))
        return runners[-1]

    yield make
    for runner in runners:
        runner.close()


# --- which mode


@pytest.mark.parametrize(("number", "mode"), [(1, "serial"), (None, "serial"), (2, "threadpool")])
def test_auto_picks_threads_where_there_are_several_cpus(processors, opened, number, mode):
    processors(number)
    assert opened("auto").mode == mode


@pytest.mark.parametrize("number", [1, 4])
def test_auto_picks_gevent_where_it_is_patched_in(processors, gevent, opened, number):
    processors(number)
    assert opened("auto").mode == "gevent"
    gevent.monkey.patched.clear()
    assert opened("auto").mode != "gevent"


@pytest.mark.parametrize("mode", ["gevent", "threadpool", "serial"])
def test_a_mode_that_was_asked_for_is_kept(processors, gevent, opened, mode):
    assert opened(mode).mode == mode


@pytest.mark.parametrize("mode", ["", "AUTO", "threads", None, 5])
def test_other_modes_are_refused(mode):
    with pytest.raises(ValidationError, match="auto, gevent, threadpool, serial") as caught:
        Parallel(mode)
    assert caught.value.field == "parallel_mode"


# --- what is warned of


@pytest.mark.parametrize("number", [1, 4])
def test_auto_and_serial_never_warn(processors, opened, number):
    processors(number)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened("auto")
        opened("serial")


def test_gevent_without_its_patches_warns_and_runs_one_by_one(processors, opened):
    with pytest.warns(UserWarning, match="gevent"):
        runner = opened("gevent")
    threads = runner.run([threading.get_ident, threading.get_ident])
    assert threads == [threading.get_ident()] * 2


def test_threads_on_one_cpu_warn_and_run_all_the_same(processors, opened):
    processors(1)
    with pytest.warns(UserWarning, match="single CPU"):
        runner = opened("threadpool")
    assert len(set(runner.run([threading.get_ident, threading.get_ident]))) == 2


def test_the_warning_names_the_line_that_opened_the_repository(processors):
    with pytest.warns(UserWarning, match="gevent") as caught:
        SyncRepository.open(url="memory://", parallel_mode="gevent").close()
    assert [each.filename for each in caught] == [__file__]


# --- running


@pytest.fixture(params=["serial", "threadpool", "gevent"])
def runner(request, processors, gevent, opened):
    return opened(request.param)


def test_results_come_in_the_order_of_the_calls(runner):
    assert runner.run([lambda number=number: number for number in range(5)]) == list(range(5))
    assert runner.run([]) == []
    assert gather(runner, lambda: 1, lambda: 2) == [1, 2]


def test_the_first_error_in_order_is_raised(runner):
    def fail(error):
        raise error

    with pytest.raises(KeyError):
        runner.run([lambda: 1, lambda: fail(KeyError()), lambda: fail(ValueError())])


def test_threads_run_side_by_side(processors, opened):
    barrier = threading.Barrier(2, timeout=10)
    assert sorted(opened("threadpool").run([barrier.wait, barrier.wait])) == [0, 1]


def test_with_threads_every_call_has_ended_when_an_error_is_raised(processors, opened):
    failed, ended = threading.Event(), threading.Event()

    def fail():
        failed.set()
        raise KeyError

    def end_later():
        failed.wait(10)
        ended.set()

    with pytest.raises(KeyError):
        opened("threadpool").run([fail, end_later])
    assert ended.is_set()


def test_greenlets_are_used_where_gevent_is_patched_in(gevent, opened):
    assert opened("gevent").run([lambda: 1, lambda: 2]) == [1, 2]
    assert len(gevent.spawned) == 2


def test_closing_ends_the_threads(processors):
    runner = Parallel("threadpool")
    (_, second) = runner.run([threading.current_thread, threading.current_thread])
    runner.close()
    assert not second.is_alive()
    runner.close()


def test_code_without_a_module_name_is_warned_as_any_other(processors):
    """As an interactive shell or a notebook may run it: by exec, with globals of its own."""
    source = "SyncRepository.open(url='memory://', parallel_mode='gevent').close()"
    code = compile(source, "<cell>", "exec")
    with pytest.warns(UserWarning, match="gevent") as caught:
        exec(code, {"SyncRepository": SyncRepository, "__builtins__": __builtins__})
    assert [each.filename for each in caught] == ["<cell>"]
