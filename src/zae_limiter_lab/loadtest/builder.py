"""Builds the image of master and workers with the CodeBuild project of the stack."""

from __future__ import annotations

import time
from collections.abc import Callable

from zae_limiter_lab.loadtest import LoadTestError
from zae_limiter_lab.loadtest.lambda_builder import ImageContext
from zae_limiter_ops.transport.control import Control, ControlError

BUNDLE = "image.zip"  # the source of the CodeBuild project in the template
LOOK_EVERY_S = 5.0
BUILT_WITHIN_S = 1800.0

Say = Callable[[str], None]


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

    def build(self, context: ImageContext) -> str:
        """Return the URI of the image, which is built first if it is missing."""
        uri = f"{self._repository}:{context.tag}"
        if self._exists(context.tag):
            self._say(f"image {context.tag} exists already")
            return uri
        self._say(f"building image {context.tag} with CodeBuild")
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
        self._wait_for(answer["build"]["id"])
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

    def _wait_for(self, build_id: str) -> None:
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
