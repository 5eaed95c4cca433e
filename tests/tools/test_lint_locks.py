from textwrap import dedent, indent

import pytest

from tools import lint_locks


def findings(tmp_path, body):
    text = "async def f(self):\n" + indent(dedent(body).strip("\n"), "    ")
    (tmp_path / "a.py").write_text(text, encoding="utf-8")
    return [line.split(":", 1)[1] for line in lint_locks.report(tmp_path / "a.py")]


@pytest.mark.parametrize(
    ("body", "wait"),
    [
        ("await g()", "await"),
        ("x = [1, h(await g())]", "await"),
        ("async for a in b: pass", "async for"),
        ("async with a: pass", "async with"),
        ("x = [a async for a in b]", "async for"),
        ("yield 1", "yield"),
        ("if a:\n    for b in c:\n        await g()", "await"),
    ],
)
def test_a_wait_under_a_lock_is_found(tmp_path, body, wait):
    body = "with self._lock:\n    x = 1\n" + indent(body, "    ")
    (found,) = findings(tmp_path, body)
    assert found.endswith(f": {wait} while holding self._lock")


@pytest.mark.parametrize(
    "lock", ["lock", "self._cache_lock", "self._locks[key]", "lock_for(key)", "threading.RLock()"]
)
def test_locks_are_recognised_by_name(tmp_path, lock):
    assert findings(tmp_path, f"with {lock}:\n    await g()") == [f"3: await while holding {lock}"]


@pytest.mark.parametrize(
    "manager", ["clock", "self._clock.frozen()", "block", "lock.other()", "open(a)"]
)
def test_other_context_managers_may_contain_waits(tmp_path, manager):
    assert findings(tmp_path, f"with {manager}:\n    await g()") == []


def test_an_async_lock_may_be_held_across_a_wait(tmp_path):
    assert findings(tmp_path, "async with self._lock:\n    await g()") == []


def test_a_wait_before_or_after_the_lock_is_fine(tmp_path):
    body = """
        await g()
        with await open_it(), self._lock:
            x = 1
        await g()
    """
    assert findings(tmp_path, body) == []


def test_a_wait_in_a_later_item_of_the_same_with_is_found(tmp_path):
    body = "with self._lock, await open_it():\n    x = 1"
    assert findings(tmp_path, body) == ["2: await while holding self._lock"]


def test_a_function_defined_under_the_lock_does_not_run_there(tmp_path):
    body = """
        with self._lock:
            async def later():
                await g()
    """
    assert findings(tmp_path, body) == []


def test_a_coroutine_inside_another_is_looked_at(tmp_path):
    body = """
        async def inner():
            with self._lock:
                await g()
    """
    assert findings(tmp_path, body) == ["4: await while holding self._lock"]


def test_the_command_names_file_and_line_and_fails(tmp_path, capsys):
    (tmp_path / "deep").mkdir()
    file = tmp_path / "deep/a.py"
    file.write_text("async def f(lock):\n    with lock:\n        await g()\n", encoding="utf-8")
    assert lint_locks.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == f"{file}:3: await while holding lock\n"


def test_the_command_is_silent_on_clean_code(tmp_path, capsys):
    (tmp_path / "a.py").write_text("async def f():\n    await g()\n", encoding="utf-8")
    assert lint_locks.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""


def test_a_folder_without_code_is_an_error(tmp_path):
    assert lint_locks.main([str(tmp_path / "gone")]) == 1
