"""Every setting has one default and one check, whichever way it is given."""

import inspect

import pytest

from zae_limiter import RateLimiter, Repository, SyncRateLimiter, SyncRepository, ValidationError
from zae_limiter.settings import CHECKS, Settings

DEFAULTS = Settings()._asdict()
WRONG = {
    "config_cache_ttl": -1,
    "bucket_ttl_multiplier": 1.5,
    "on_unavailable": "perhaps",
    "usage_retention_days": -1,
    "audit_retention_days": 0,
    "snapshot_windows": "yearly",
    "provision": "all",
    "request_timeout": 0,
    "rejection_cache_ttl": "1",
    "max_shards": 65,
    "clock": 5,
    "parallel_mode": "serail",
}


def keywords(call):
    """Return the settings among the keywords of a call, with their defaults."""
    found = inspect.signature(call).parameters
    return {name: each.default for name, each in found.items() if name in DEFAULTS}


def test_every_check_belongs_to_a_setting():
    assert CHECKS.keys() == WRONG.keys()
    assert CHECKS.keys() <= DEFAULTS.keys()


@pytest.mark.parametrize("repository", [Repository, SyncRepository])
def test_the_defaults_of_an_open_are_those_of_the_settings(repository):
    for call in (repository.open, repository.over, repository.__init__):
        given = keywords(call)
        assert given == {name: DEFAULTS[name] for name in given}
    assert len(keywords(repository.open)) >= 12


def test_a_limiter_leaves_every_default_to_the_settings():
    for limiter in (RateLimiter, SyncRateLimiter):
        assert set(keywords(limiter).values()) == {None}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_refused_when_it_is_given(name):
    value = WRONG[name]
    for call in (Repository.open, SyncRepository.open, RateLimiter, SyncRateLimiter):
        if name in keywords(call):
            with pytest.raises(ValidationError, match=name):
                call(**{"url": "memory://", name: value})
    for builder in (Repository.builder(), SyncRepository.builder()):
        if hasattr(builder, name):
            with pytest.raises(ValidationError, match=name):
                getattr(builder, name)(value)
