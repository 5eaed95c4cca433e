from pathlib import Path
from textwrap import dedent

import pytest

from tools import unasync

SOURCE = unasync.ROOT / "tools/unasync.py"


def rewritten(text):
    return unasync.rewrite(dedent(text))


class Tree:
    """A checkout with one async folder."""

    def __init__(self, root: Path):
        self.root = root
        self.source = root / "src/zae_limiter/_async"
        self.mirror = root / "src/zae_limiter/_sync"

    def write(self, name, text):
        self._put(self.source / name, text)

    def write_by_hand(self, name, text=""):
        self._put(self.mirror / name, text)

    @staticmethod
    def _put(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")

    def generate(self):
        assert unasync.main([], root=self.root) == 0

    def check(self):
        return unasync.main(["--check"], root=self.root)

    def mirrored(self, name):
        return (self.mirror / name).read_text(encoding="utf-8")

    def mirror_files(self):
        files = unasync.all_files(self.mirror)
        return sorted(path.relative_to(self.mirror).as_posix() for path in files)


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


@pytest.mark.parametrize(
    ("source", "mirror"),
    [
        ("async def f(): pass", "def f(): pass"),
        ("async with a as b: pass", "with a as b: pass"),
        ("async for a in b: pass", "for a in b: pass"),
        ("[a async for a in b]", "[a for a in b]"),
        ("x = await f(await g())", "x = f(g())"),
        ("return -await f() ** 2", "return -f() ** 2"),
        ("await(f)", "(f)"),
        ("awaited = is_async", "awaited = is_async"),
    ],
)
def test_the_keywords_of_async_code_are_dropped(source, mirror):
    assert unasync.rewrite(source) == mirror


@pytest.mark.parametrize(
    ("source", "mirror"),
    [
        ("x = (await f(a, b=[1])).c", "x = f(a, b=[1]).c"),
        ("x = (\n    await f()\n).c", "x = f().c"),
        ("x = (await (await f()).g()).h", "x = (f().g()).h"),
        ("if not (await f()): pass", "if not f(): pass"),
        ("x = (await f() or 1).c", "x = (f() or 1).c"),
        ("x = (await f(),)", "x = (f(),)"),
        ("g(await f())", "g(f())"),
        ("g(1)(await f())[0](await f())", "g(1)(f())[0](f())"),
    ],
)
def test_brackets_that_only_held_an_await_go_with_it(source, mirror):
    assert unasync.rewrite(source) == mirror


@pytest.mark.parametrize(("name", "mirror"), unasync.NAMES.items())
def test_every_name_of_the_table_is_replaced_in_code_and_in_text(name, mirror):
    assert unasync.rewrite(f"x = a.{name}(b)") == f"x = a.{mirror}(b)"
    assert unasync.rewrite(f"x = '{name}'  # {name}.") == f"x = '{mirror}'  # {mirror}."


@pytest.mark.parametrize(
    "name", ["Leases", "MyLease", "Lease2", "RateLimiterUnavailable", "asleep_"]
)
def test_a_name_that_only_contains_one_of_the_table_stays(name):
    assert unasync.rewrite(f"{name} = '{name}'  # {name}") == f"{name} = '{name}'  # {name}"


def test_imports_follow_the_tree():
    source = "from zae_limiter._async.engines import x\nfrom .._async import y\nimport a._async.b\n"
    mirror = "from zae_limiter._sync.engines import x\nfrom .._sync import y\nimport a._sync.b\n"
    assert unasync.rewrite(source) == mirror


@pytest.mark.parametrize(
    ("source", "mirror"),
    [
        ("def f(g: Callable[[], Awaitable[X]]): ...", "def f(g: Callable[[], X]): ..."),
        ("x: Awaitable[dict[str, Lease]]", "x: dict[str, SyncLease]"),
        ("x: typing.Awaitable[X] | None", "x: X | None"),
        ('x: Awaitable["Lease"]', 'x: "SyncLease"'),
        ("x: Coroutine[Any, Any, tuple[A, B]]", "x:  tuple[A, B]"),
        ("x: Coroutine[tuple[A, B], Lease, Awaitable[C]]", "x:  C"),
        ("x: AsyncGenerator[A, None]", "x: Generator[A, None, None]"),
        ("x: AsyncGenerator[tuple[A, B], C]", "x: Generator[tuple[A, B], C, None]"),
        ("x = cast('Awaitable[X]', y)", "x = cast('X', y)"),
        ("x: Awaitable", "x: Awaitable"),
        ("x: MyAwaitable[X]", "x: MyAwaitable[X]"),
    ],
)
def test_generic_types_lose_what_only_async_code_has(source, mirror):
    assert unasync.rewrite(source) == mirror


@pytest.mark.parametrize(
    ("source", "mirror"),
    [
        ("'zae_limiter._async.open'", "'zae_limiter._sync.open'"),
        ("'tests/_async/test_x.py'", "'tests/_sync/test_x.py'"),
        ("'is_async, _async_x'", "'is_async, _async_x'"),
        ("'a Lease.'", "'a SyncLease.'"),
        (r"'a\nLease\tLease'", r"'a\nSyncLease\tSyncLease'"),
        (r"r'\bLease\b'", r"r'\bSyncLease\b'"),
        ("'callers await the answer'", "'callers await the answer'"),
        ("'use `async with` here'", "'use `with` here'"),
        ("'lease = await limiter.get(1)'", "'lease = limiter.get(1)'"),
    ],
)
def test_strings_speak_of_the_sync_classes(source, mirror):
    assert unasync.rewrite(source) == mirror


@pytest.mark.parametrize(
    ("source", "mirror"),
    [
        ("f'{await f()} await'", "f'{f()} await'"),
        ("f'{(await f()).a!r:>{await w}}'", "f'{f().a!r:>{w}}'"),
        ("f'{{await x}} {await x}'", "f'{{await x}} {x}'"),
        ("f'{[a async for a in b]}'", "f'{[a for a in b]}'"),
        ("""f'{a["{"]} {await x} {b["}"]} {await y}'""", """f'{a["{"]} {x} {b["}"]} {y}'"""),
        (
            "f'Lease {Lease!r} {lease} {Leases} {{Lease}}'",
            "f'SyncLease {SyncLease!r} {lease} {Leases} {{SyncLease}}'",
        ),
        ("f'{x[\"_async\"]}/_async'", "f'{x[\"_sync\"]}/_sync'"),
        ("rf'''\n{await f()}\n'' Lease'''", "rf'''\n{f()}\n'' SyncLease'''"),
        ("F'{await a}' 'await b' fR'{await c}'", "F'{a}' 'await b' fR'{c}'"),
        ("""f'{f"{await x}"} {await y}'""", """f'{f"{x}"} {y}'"""),
        ("f'{x:{y}}' + await z", "f'{x:{y}}' + z"),
        ("f'é→ {await é}' + await z  # é", "f'é→ {é}' + z  # é"),
    ],
)
def test_f_strings_are_text_outside_their_fields_and_code_inside(source, mirror):
    assert unasync.rewrite(source) == mirror


def test_docstrings_and_comments_survive_with_the_names_of_the_tree():
    source = '''
        # The RateLimiter's own.
        async def f(self) -> Lease:  # noqa: X1
            """Return a `Lease`.

            >>> async with limiter.acquire("a") as lease:
            ...     await lease.adjust(tokens=1)
            """
            # asynchronous code would await here
            return await self._get()
    '''
    mirror = '''
        # The SyncRateLimiter's own.
        def f(self) -> SyncLease:  # noqa: X1
            """Return a `SyncLease`.

            >>> with limiter.acquire("a") as lease:
            ...     lease.adjust(tokens=1)
            """
            # asynchronous code would await here
            return self._get()
    '''
    assert rewritten(source) == dedent(mirror)


@pytest.mark.parametrize(
    "line",
    [
        "@pytest.mark.asyncio",
        "@pytest.mark.asyncio  # why",
        '@pytest.mark.asyncio(loop_scope="module")',
        '@pytest.mark.asyncio(\n    loop_scope="module",\n)',
        "pytestmark = pytest.mark.asyncio",
    ],
)
def test_asyncio_marks_are_dropped(line):
    assert (
        unasync.rewrite(f"a = 1\n{line}\nasync def test_x(): ...\n") == "a = 1\ndef test_x(): ...\n"
    )


def test_an_asyncio_mark_in_a_list_of_marks_is_dropped():
    source = "pytestmark = [\n    pytest.mark.asyncio,\n    pytest.mark.slow,\n]\n"
    assert unasync.rewrite(source) == "pytestmark = [\n    pytest.mark.slow,\n]\n"


def test_a_kept_line_is_left_as_it_is():
    source = """
        from a import Lease, ALock  # unasync: keep
        x = f(
            "Lease",  # unasync: keep
            Lease,
        )
    """
    mirror = """
        from a import Lease, ALock  # unasync: keep
        x = f(
            "Lease",  # unasync: keep
            SyncLease,
        )
    """
    assert rewritten(source) == dedent(mirror)


def test_a_string_that_ends_on_a_kept_line_is_left_as_it_is():
    source = 'x = """\nLease\n"""  # unasync: keep\ny = Lease\n'
    assert unasync.rewrite(source) == 'x = """\nLease\n"""  # unasync: keep\ny = SyncLease\n'


def test_a_removed_line_is_not_in_the_mirror():
    source = """
        import asyncio  # unasync: remove
        @decorated  # unasync: remove
        async def f():
            await asyncio.wait(
                tasks, timeout=1
            )  # unasync: remove
            return [
                "a",
                "b",  # unasync: remove
            ]  # why
    """
    mirror = """
        def f():
            return [
                "a",
            ]  # why
    """
    assert rewritten(source) == dedent(mirror)


def test_only_simple_statements_can_be_removed():
    with pytest.raises(unasync.UnasyncError, match="line 1: only a simple statement"):
        unasync.rewrite("if x:  # unasync: remove\n    # why\n    pass\n")


def test_an_unknown_directive_is_an_error():
    with pytest.raises(unasync.UnasyncError, match="line 2: no such directive: # unasync: kep"):
        unasync.rewrite("\nx = 1  # unasync: kep\n")


def test_rewriting_the_mirror_again_changes_nothing():
    source = SOURCE.read_text(encoding="utf-8")
    text = source[source.index("class UnasyncError") :].replace("def ", "async def ")
    once = unasync.rewrite(text)
    assert once != text
    assert unasync.rewrite(once) == once


def test_generated_files_say_so_and_are_tidy(tree):
    tree.write(
        "engines/memory.py",
        """
        from collections.abc import Awaitable, AsyncIterator
        from a import RateLimiter, Other

        __all__ = ["Other", "RateLimiter", "f"]

        async def f(x: Awaitable[Other], y: AsyncIterator[RateLimiter]) -> None:
            await g( (await x) )
        """,
    )
    tree.generate()
    assert tree.mirrored("engines/memory.py") == dedent(
        """\
        # Generated by tools/unasync.py; do not edit. Source:
        # src/zae_limiter/_async/engines/memory.py

        from collections.abc import Iterator

        from a import Other, SyncRateLimiter

        __all__ = ["Other", "SyncRateLimiter", "f"]


        def f(x: Other, y: Iterator[SyncRateLimiter]) -> None:
            g(x)
        """
    )


def test_a_sync_line_is_code_in_the_mirror_alone():
    source = "class A:\n    # sync: def f(self) -> int:\n    # sync:     return 1\n    x = 1\n"
    assert (
        unasync.rewrite(source)
        == "class A:\n    def f(self) -> int:\n        return 1\n    x = 1\n"
    )


def test_an_empty_module_has_a_mirror(tree):
    tree.write("__init__.py", "")
    tree.generate()
    assert tree.mirrored("__init__.py").startswith("# Generated by")
    assert tree.check() == 0


def test_generating_twice_writes_once(tree, capsys):
    tree.write("a.py", "x = 1\n")
    tree.generate()
    assert capsys.readouterr().out == "wrote: src/zae_limiter/_sync/a.py\n"
    tree.generate()
    assert capsys.readouterr().out == ""


def test_the_check_accepts_an_exact_mirror_and_writes_nothing(tree, capsys):
    tree.write("a.py", "async def f(): ...\n")
    tree.generate()
    before = tree.mirrored("a.py")
    capsys.readouterr()
    assert tree.check() == 0
    assert capsys.readouterr() == ("", "")
    assert tree.mirrored("a.py") == before


def test_the_check_reports_every_stale_missing_and_orphan_file(tree, capsys):
    tree.write("a.py", "x = 1\n")
    tree.write("b.py", "x = 1\n")
    tree.generate()
    tree.write("a.py", "x = 2\n")
    tree.write("deep/c.py", "x = 1\n")
    tree.write_by_hand("__init__.py")
    tree.write_by_hand("deep/py.typed")
    capsys.readouterr()
    assert tree.check() == 1
    assert capsys.readouterr().out.splitlines() == [
        "orphan: src/zae_limiter/_sync/__init__.py",
        "stale: src/zae_limiter/_sync/a.py",
        "missing: src/zae_limiter/_sync/deep/c.py",
        "orphan: src/zae_limiter/_sync/deep/py.typed",
    ]
    assert tree.mirror_files() == ["__init__.py", "a.py", "b.py", "deep/py.typed"]


def test_the_check_finds_a_hand_edit(tree):
    tree.write("a.py", "x = 1\n")
    tree.generate()
    tree.write_by_hand("a.py", tree.mirrored("a.py") + "y = 2\n")
    assert tree.check() == 1


def test_generating_deletes_orphans_and_what_they_leave_empty(tree, capsys):
    tree.write("a.py", "x = 1\n")
    tree.write_by_hand("old/b.py")
    tree.write_by_hand("old/__pycache__/b.pyc")
    tree.generate()
    assert "deleted: src/zae_limiter/_sync/old/b.py\n" in capsys.readouterr().out
    assert tree.mirror_files() == ["a.py"]
    assert not (tree.mirror / "old").exists()


def test_bytecode_is_no_orphan(tree):
    tree.write("a.py", "x = 1\n")
    tree.generate()
    tree.write_by_hand("__pycache__/a.pyc")
    assert tree.check() == 0


def test_a_mirror_without_a_source_folder_is_an_orphan(tree):
    tree.write_by_hand("a.py")
    assert tree.check() == 1
    tree.generate()
    assert tree.mirror_files() == []


def test_a_checkout_without_any_of_the_folders_is_fine(tree):
    tree.generate()
    assert tree.check() == 0


@pytest.mark.parametrize("text", ["x = (\n", "async def f(:\n    pass\n", "x = '''\n"])
def test_a_source_that_is_no_python_is_reported_by_name(tree, capsys, text):
    tree.write("a.py", text)
    assert unasync.main([], root=tree.root) == 1
    assert "src/zae_limiter/_async/a.py: " in capsys.readouterr().err
    assert tree.mirror_files() == []


def test_mirrors_are_siblings_of_their_source():
    for source, mirror in unasync.FOLDERS.items():
        assert Path(source).parent == Path(mirror).parent
