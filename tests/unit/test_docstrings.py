"""Every public name, and every public method and property of it, says what it is."""

import importlib
import inspect

import pytest

PACKAGES = (
    "zae_limiter",
    "zae_limiter.hooks",
    "zae_limiter.llm",
    "zae_limiter_ops.manifest",
    "zae_limiter.models",
    "zae_limiter.schema",
    "zae_limiter.testing",
    "zae_limiter.web",
    "zae_limiter_aggregator",
    "zae_limiter_provisioner",
)


def exported(package):
    module = importlib.import_module(package)
    return {name: getattr(module, name) for name in getattr(module, "__all__", ())}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_has_a_docstring(package):
    assert importlib.import_module(package).__doc__
    names = exported(package).items()
    assert not [name for name, value in names if callable(value) and not own_text(name, value)]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_method_and_property_has_a_docstring(package):
    assert not [
        f"{name}.{member}"
        for name, owner in exported(package).items()
        if inspect.isclass(owner)
        for member, value in inspect.getmembers(owner)
        if is_own(member, value) and not inspect.getdoc(value)
    ]


def own_text(name, value):
    """The docstring, unless it is the signature that dataclasses make one of."""
    text = value.__doc__ or ""
    return "" if text.startswith(f"{name}(") else text


def is_own(member, value):
    """Whether a member is public and written by us: not that of a tuple or an exception."""
    home = getattr(getattr(value, "fget", value), "__module__", None) or ""
    is_code = inspect.isroutine(value) or isinstance(value, property)
    return is_code and not member.startswith("_") and home.startswith("zae_limiter")
