"""The image of master and workers: its files, and the calls that build it."""

import io
import zipfile

import pytest

from zae_limiter_lab.loadtest import LoadTestError
from zae_limiter_lab.loadtest.builder import ImageBuilder
from zae_limiter_lab.loadtest.lambda_builder import build_context
from zae_limiter_ops.transport.control import ControlError

OUTPUTS = {
    "RepositoryUri": "1.dkr.ecr.us-east-1.amazonaws.com/load",
    "FilesBucket": "files",
    "BuildProject": "build",
}


class RecordingControl:
    """Answers calls of the control plane from a list, and remembers them."""

    def __init__(self, **answers):
        self.calls = []
        self._answers = {name: list(values) for name, values in answers.items()}

    def call(self, service, operation, **parameters):
        self.calls.append((service, operation, parameters))
        answer = self._answers[operation].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


MISSING = ControlError("ecr", "ImageNotFoundException", "none")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "load").mkdir()
    (tmp_path / "load/simple.py").write_text("x = 1\n")
    (tmp_path / "load/.secret").write_text("no")
    (tmp_path / "load/__pycache__").mkdir()
    (tmp_path / "load/__pycache__/simple.pyc").write_text("no")
    return tmp_path / "load"


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    """Of a folder with one file; reading and packing all modules takes a third of a second."""
    folder = tmp_path_factory.mktemp("load")
    (folder / "simple.py").write_text("x = 1\n")
    return build_context(folder)


def names_in(context):
    with zipfile.ZipFile(io.BytesIO(context.content)) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_the_context_holds_package_folder_and_libraries(folder):
    files = names_in(build_context(folder))
    assert files["load/simple.py"] == "x = 1\n"
    assert "package/zae_limiter_lab/loadtest/worker.py" in files
    assert not [name for name in files if "pycache" in name or "secret" in name]
    assert any(line.startswith("locust==") for line in files["requirements.txt"].splitlines())
    assert 'CMD ["zae_limiter_lab.loadtest.worker.handler"]' in files["Dockerfile"]


def test_the_same_files_make_the_same_tag(folder, context):
    assert build_context(folder).tag == context.tag
    (folder / "simple.py").write_text("x = 2\n")
    assert build_context(folder).tag != context.tag


def test_a_folder_that_is_too_large_is_refused(folder):
    with pytest.raises(LoadTestError, match="push a folder with locustfiles only"):
        build_context(folder, max_bytes=3)


def test_an_image_that_exists_is_not_built_again(context):
    control = RecordingControl(describe_images=[{"imageDetails": [{}]}])
    uri = ImageBuilder(control, OUTPUTS, print).build(context)
    assert uri == f"{OUTPUTS['RepositoryUri']}:{context.tag}"
    assert [operation for _, operation, _ in control.calls] == ["describe_images"]


def test_codebuild_gets_the_context_and_the_name(context):
    control = RecordingControl(
        describe_images=[MISSING],
        put_object=[{}],
        start_build=[{"build": {"id": "build:1"}}],
        batch_get_builds=[
            {"builds": [{"buildStatus": "IN_PROGRESS"}]},
            {"builds": [{"buildStatus": "SUCCEEDED"}]},
        ],
    )
    uri = ImageBuilder(control, OUTPUTS, print, look_s=0).build(context)
    calls = {operation: parameters for _, operation, parameters in control.calls}
    assert calls["describe_images"]["repositoryName"] == "load"
    assert calls["put_object"] == {"Bucket": "files", "Key": "image.zip", "Body": context.content}
    variable = {"name": "IMAGE_URI", "value": uri, "type": "PLAINTEXT"}
    assert calls["start_build"]["environmentVariablesOverride"] == [variable]


def test_a_build_that_fails_says_where_its_log_is(context):
    control = RecordingControl(
        describe_images=[MISSING],
        put_object=[{}],
        start_build=[{"build": {"id": "build:1"}}],
        batch_get_builds=[{"builds": [{"buildStatus": "FAILED"}]}],
    )
    with pytest.raises(LoadTestError, match="ended with FAILED; its log is in CodeBuild, build"):
        ImageBuilder(control, OUTPUTS, print, look_s=0).build(context)
