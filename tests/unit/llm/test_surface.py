"""The names of `zae_limiter.llm` and `zae_limiter.web`, and what importing them costs."""

import inspect
import json
import subprocess
import sys

import pytest

from zae_limiter import llm, web


def loaded_after(code):
    script = f"import sys, json; {code}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("package", [llm, web])
def test_every_name_can_be_imported_and_is_documented(package):
    assert set(package.__all__) == set(dir(package))
    for name in package.__all__:
        value = getattr(package, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, name
            for method, function in vars(value).items() if inspect.isclass(value) else ():
                if inspect.isfunction(function) and not method.startswith("_"):
                    assert function.__doc__, f"{name}.{method}"
    with pytest.raises(AttributeError, match="nothing_like_this"):
        package.nothing_like_this  # noqa: B018 - the access is the test


def test_both_forms_have_the_same_methods():
    def public(cls):
        return {name for name in dir(cls) if not name.startswith("_")} - {"aclose"}

    for name in ("LlmCall", "LlmReservation", "LlmStream"):
        assert public(getattr(llm, name)) == public(getattr(llm, f"Sync{name}"))


def test_the_limiter_loads_neither():
    loaded = loaded_after("from zae_limiter import RateLimiter, SyncRateLimiter")
    assert not {name for name in loaded if name.startswith(("zae_limiter.llm", "zae_limiter.web"))}


def test_they_load_no_sdk_and_no_framework_that_is_not_used():
    foreign = {"anthropic", "boto3", "botocore", "django", "fastapi", "flask", "google.genai"}
    foreign |= {"httpx", "httpx2", "openai", "starlette"}
    code = "from zae_limiter import llm, web; web.AsgiMiddleware, web.WsgiMiddleware, web.header; "
    assert not foreign & loaded_after(code + "[getattr(llm, name) for name in llm.__all__]")
