"""Builds the image of master and workers: by Docker on this machine, else by CodeBuild."""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from zae_limiter_lab.loadtest import LoadTestError
from zae_limiter_lab.loadtest.lambda_builder import ImageContext
from zae_limiter_ops.transport.control import Control, ControlError

PLATFORM = "linux/amd64"  # of functions and master, whatever this machine is
BUNDLE = "image.zip"  # the source of the CodeBuild project in the template
LOOK_EVERY_S = 5.0
BUILT_WITHIN_S = 1800.0
DOCKER_ANSWERS_S = 10.0

Say = Callable[[str], None]


def has_docker() -> bool:
    """Return whether a Docker engine answers here."""
    program = shutil.which("docker")
    if program is None:
        return False
    try:
        done = subprocess.run(
            [program, "info"], capture_output=True, check=False, timeout=DOCKER_ANSWERS_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


class ImageBuilder:
    """Brings the image of a build context to a repository, unless it is there."""

    def __init__(
        self, control: Control, outputs: dict[str, str], say: Say, *, look_s: float = LOOK_EVERY_S
    ) -> None:
        """``outputs`` are those of the load-test stack."""
        self._control = control
        self._repository = outputs["RepositoryUri"]
        self._bucket = outputs["FilesBucket"]
        self._project = outputs["BuildProject"]
        self._say = say
        self._look_s = look_s

    def build(self, context: ImageContext, *, docker: bool | None = None) -> str:
        """Return the URI of the image, which is built first if it is missing."""
        uri = f"{self._repository}:{context.tag}"
        if self._exists(context.tag):
            self._say(f"image {context.tag} exists already")
            return uri
        if has_docker() if docker is None else docker:
            self._say(f"building image {context.tag} with Docker")
            self._build_here(context, uri)
        else:
            self._say(f"building image {context.tag} with CodeBuild, since no Docker runs here")
            self._build_there(context, uri)
        return uri

    def _exists(self, tag: str) -> bool:
        name = self._repository.partition("/")[2]
        try:
            answer = self._control.call(
                "ecr", "describe_images", repositoryName=name, imageIds=[{"imageTag": tag}]
            )
        except ControlError as error:
            if error.code == "ImageNotFoundException":
                return False
            raise
        return bool(answer["imageDetails"])

    def _build_here(self, context: ImageContext, uri: str) -> None:
        registry = self._repository.partition("/")[0]
        answer = self._control.call("ecr", "get_authorization_token")
        token = answer["authorizationData"][0]["authorizationToken"]
        user, _, password = base64.b64decode(token).decode().partition(":")
        with tempfile.TemporaryDirectory(prefix="zael-image-") as folder:
            context.unpack(Path(folder))
            _docker("login", "--username", user, "--password-stdin", registry, stdin=password)
            _docker("build", "--platform", PLATFORM, "--provenance=false", "-t", uri, folder)
            _docker("push", uri)

    def _build_there(self, context: ImageContext, uri: str) -> None:
        self._control.call(
            "s3", "put_object", Bucket=self._bucket, Key=BUNDLE, Body=context.content
        )
        variable = {"name": "IMAGE_URI", "value": uri, "type": "PLAINTEXT"}
        answer = self._control.call(
            "codebuild",
            "start_build",
            projectName=self._project,
            environmentVariablesOverride=[variable],
        )
        build_id = answer["build"]["id"]
        until = time.monotonic() + BUILT_WITHIN_S
        while True:
            answer = self._control.call("codebuild", "batch_get_builds", ids=[build_id])
            status = answer["builds"][0]["buildStatus"]
            if status == "SUCCEEDED":
                return
            if status != "IN_PROGRESS":
                raise LoadTestError(
                    f"the build of the image ended with {status}; its log is in CodeBuild, build "
                    f"{build_id}"
                )
            if time.monotonic() > until:
                raise LoadTestError(f"build {build_id} takes longer than {BUILT_WITHIN_S:.0f} s")
            time.sleep(self._look_s)


def _docker(*words: str, stdin: str = "") -> None:
    done = subprocess.run(
        ["docker", *words], input=stdin, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason was given"]
        raise LoadTestError(f"docker {words[0]} failed: {lines[-1]}")
