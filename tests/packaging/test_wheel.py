"""What users install is what is tested."""

import subprocess
import sys
import zipfile

import pytest

PROGRAM = """
import zae_limiter
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
assert zae_limiter.__file__.startswith({place!r}), zae_limiter.__file__
with SyncRepository.open(url="sqlite:///limits.db") as repo:
    limiter = SyncRateLimiter(repository=repo)
    limiter.set_system_defaults([Limit.per_minute("rpm", 1)])
    with limiter.acquire("key", "api", {{"rpm": 1}}):
        pass
    print(limiter.available("key", "api"))
"""


def run(*command, **options):
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("dist")
    run(
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--outdir",
        str(folder),
        str(request.config.rootpath),
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "zae_limiter/py.typed" in names
    assert "zae_limiter/_sync/limiter.py" in names
    tops = {name.split("/")[0] for name in names}
    assert tops == {"zae_limiter", next(top for top in tops if top.endswith(".dist-info"))}


@pytest.mark.slow
def test_the_installed_wheel_limits(wheel, tmp_path):
    place = tmp_path / "site"
    run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        str(place),
        str(wheel),
    )
    program = PROGRAM.format(place=str(place))
    out = run(
        sys.executable, "-c", program, cwd=tmp_path, env={"PYTHONPATH": str(place), "PATH": ""}
    )
    assert out.strip() == "{'rpm': 0}"
