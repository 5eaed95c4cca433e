"""The build context of the image that master and workers run on AWS, as a zip.

The context holds the installed package, the pushed folder, and the versions of the installed
libraries, so that a test runs the same code on AWS as on this machine. The same files make the same
bytes, whose digest is the tag of the image: no image is built twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import zae_limiter
import zae_limiter_lab
import zae_limiter_ops
from zae_limiter_lab.loadtest import LoadTestError
from zae_limiter_lab.loadtest.worker import LOAD_FOLDER
from zae_limiter_ops.infra.packages import zipped

TASK_ROOT = "/var/task"  # of Lambda's base images
BASE_IMAGE = "public.ecr.aws/lambda/python:3.12"  # runs functions; the master starts it otherwise
LIBRARIES = ("locust", "gevent", "botocore", "click", "PyYAML", "rich", "tzdata")
MAX_FOLDER_BYTES = 50_000_000  # locustfiles are small: a larger folder is the wrong one
LEFT_OUT = frozenset({"__pycache__", "node_modules", "venv"})

DOCKERFILE = f"""\
FROM {BASE_IMAGE}
COPY requirements.txt ./
RUN pip install --no-cache-dir -r requirements.txt
COPY package/ {TASK_ROOT}/
COPY load/ {LOAD_FOLDER}/
CMD ["zae_limiter_lab.loadtest.worker.handler"]
"""
BUILDSPEC = """\
version: 0.2
phases:
  pre_build:
    commands:
      - REGISTRY=${IMAGE_URI%%/*}
      - aws ecr get-login-password | docker login --username AWS --password-stdin "$REGISTRY"
  build:
    commands:
      - docker build -t "$IMAGE_URI" .
      - docker push "$IMAGE_URI"
"""


class ImageContext(NamedTuple):
    """A build context, and the tag of the image that it makes."""

    content: bytes

    @property
    def tag(self) -> str:
        return hashlib.sha256(self.content).hexdigest()[:16]


def build_context(folder: Path, *, max_bytes: int = MAX_FOLDER_BYTES) -> ImageContext:
    """Return the build context of an image with the files of this folder."""
    files = {
        "Dockerfile": DOCKERFILE.encode(),
        "buildspec.yml": BUILDSPEC.encode(),
        "requirements.txt": "\n".join(_requirements()).encode() + b"\n",
    }
    for package in (zae_limiter, zae_limiter_ops, zae_limiter_lab):
        source = Path(str(package.__file__)).parent
        for path in _files(source):
            inside = path.relative_to(source.parent).as_posix()
            files[f"package/{inside}"] = path.read_bytes()
    size = 0
    for path in _files(folder):
        content = path.read_bytes()
        size += len(content)
        if size > max_bytes:
            raise LoadTestError(
                f"{folder} holds more than {max_bytes // 10**6} MB; push a folder with "
                "locustfiles only: -C"
            )
        files[f"load/{path.relative_to(folder).as_posix()}"] = content
    return ImageContext(zipped({name: files[name] for name in sorted(files)}))


def _requirements() -> Iterator[str]:
    for name in LIBRARIES:
        try:
            yield f"{name}=={version(name)}"
        except PackageNotFoundError:  # deploying needs no Locust, running does
            yield name


def _files(folder: Path) -> Iterator[Path]:
    """Yield files in a fixed order, without hidden ones and caches."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in LEFT_OUT:
            continue
        if path.is_dir():
            yield from _files(path)
        elif path.is_file():
            yield path
