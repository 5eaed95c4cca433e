"""Options that cannot work are refused when the application starts, not by every request."""

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from flask import Flask

from tests.integration.web import django_site
from zae_limiter import RateLimiter, SyncRateLimiter, SyncRepository, ValidationError, web

WRONG = {
    "bogus": 1,
    "on_unavailable": "alow",
    "on_error": "forget",
    "mode": "shade",
    "timeout": "3",
    "cost": 3,
    "cost_after": {"rpm": 1},
    "skip": "/health",
    "resource": "a b",
    "limits": [],
    "style": "iettf",
    "key": 7,
}


async def app(*arguments):
    raise AssertionError("no request comes")


def asgi(options):
    web.AsgiMiddleware(app, RateLimiter(url="memory://"), **options)


def fastapi(options):
    web.rate_limit(RateLimiter(url="memory://"), **options)


def wsgi(options):
    web.WsgiMiddleware(app, SyncRateLimiter(url="memory://"), **options)


def flask(options):
    web.init_flask(Flask("test"), SyncRateLimiter(url="memory://"), **options)


FRAMEWORKS = [asgi, fastapi, wsgi, flask]


@pytest.mark.each_value_once
@pytest.mark.parametrize("make", FRAMEWORKS)
@pytest.mark.parametrize("option", WRONG)
def test_a_wrong_option_is_refused_at_the_start(make, option):
    with pytest.raises(ValidationError, match=option):
        make({"key": "all", option: WRONG[option]})


@pytest.mark.parametrize("make", FRAMEWORKS)
def test_a_misspelt_option_is_answered_with_the_one_that_was_meant(make):
    with pytest.raises(ValidationError, match="did you mean on_unavailable"):
        make({"key": "all", "on_unavailble": "allow"})


@pytest.mark.parametrize("make", FRAMEWORKS)
def test_options_that_depend_on_the_request_are_checked_with_it(make):
    def of_request(request):
        raise AssertionError("no request comes")

    make({"key": of_request, "resource": of_request, "cost": of_request, "skip": of_request})


@pytest.mark.each_value_once
@pytest.mark.parametrize("make", [wsgi, flask])
@pytest.mark.parametrize("option", ["key", "resource", "cost", "cost_after", "skip"])
def test_an_async_function_is_refused_where_nothing_awaits_it(make, option):
    class Callable:
        async def __call__(self, *arguments):
            raise AssertionError("no request comes")

    for function in (app, Callable()):
        with pytest.raises(ValidationError, match=f"{option}.*must not be async"):
            make({"key": "all", option: function})


def test_a_dependency_refuses_cost_after_and_says_what_settles_its_cost():
    with pytest.raises(ValidationError, match=r"lease\.settle"):
        fastapi({"key": "all", "cost_after": lambda request, outcome: None})


NO_LIMITERS = ["memory://", 3, RateLimiter, SyncRateLimiter]


@pytest.mark.parametrize("limiter", [*NO_LIMITERS, SyncRateLimiter(url="memory://")])
def test_async_adapters_refuse_what_is_no_async_limiter(limiter):
    for make in (
        lambda: web.AsgiMiddleware(app, limiter, key="all"),
        lambda: web.rate_limit(limiter, key="all"),
        lambda: web.lifespan(limiter),
    ):
        with pytest.raises(ValidationError, match=r"limiter: must be a RateLimiter"):
            make()


@pytest.mark.parametrize("limiter", [*NO_LIMITERS, RateLimiter(url="memory://")])
def test_sync_adapters_refuse_what_is_no_sync_limiter(limiter):
    for make in (
        lambda: web.WsgiMiddleware(app, limiter, key="all"),
        lambda: web.init_flask(Flask("test"), limiter, key="all"),
    ):
        with pytest.raises(ValidationError, match=r"limiter: must be a SyncRateLimiter"):
            make()


def test_a_repository_is_no_limiter():
    with (
        SyncRepository.open(url="memory://") as repository,
        pytest.raises(ValidationError, match=r"SyncRateLimiter\(repository\)"),
    ):
        web.WsgiMiddleware(app, repository, key="all")


# --- Django


def django(**changes):
    django_site.current["limiter"] = SyncRateLimiter(url="memory://")
    return django_site.handler(WSGIHandler, **changes)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("KNOWNONLY", "KNOWN_ONLY"),
        ("ON_UNAVAILABLE", "OPTIONS"),
        ("TIMEOUT", "OPTIONS"),
        ("BOGUS", "LIMITER"),
    ],
)
def test_django_refuses_a_setting_that_it_does_not_know(name, advice):
    with pytest.raises(ImproperlyConfigured, match=rf"{name}.*{advice}"):
        django(**{name: True})


@pytest.mark.parametrize(
    "changes", [{"OPTIONS": {"timeout": "3"}}, {"COST": 3}, {"RESOURCE": "a b"}, {"STYLE": "iettf"}]
)
def test_django_refuses_a_wrong_value_at_the_start(changes):
    with pytest.raises(ValidationError):
        django(**changes)


@pytest.mark.each_value_once
@pytest.mark.parametrize("limiter", [3, lambda: "memory://"])
@pytest.mark.parametrize("handler", [WSGIHandler, ASGIHandler])
def test_django_refuses_what_is_no_limiter(limiter, handler):
    django_site.current["limiter"] = None
    with pytest.raises(ValidationError, match=r"limiter: must be a (Sync)?RateLimiter"):
        django_site.handler(handler, LIMITER=limiter)


def test_django_under_wsgi_refuses_an_async_limiter():
    django_site.current["limiter"] = RateLimiter(url="memory://")
    with pytest.raises(ImproperlyConfigured, match="must be a SyncRateLimiter"):
        django_site.handler(WSGIHandler)


def test_django_imports_functions_that_are_named_by_their_path():
    site = "tests.integration.web.django_site"
    django(
        KEY="zae_limiter.web.client_address", COST_AFTER=f"{site}.cost_after", SKIP=f"{site}.key"
    )
