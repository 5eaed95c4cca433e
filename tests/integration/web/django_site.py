"""A Django site for tests: its settings are made once for the process."""

import asyncio

import django
from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import JsonResponse, StreamingHttpResponse
from django.test import override_settings
from django.urls import path
from django.utils.decorators import sync_and_async_middleware

current = {}  # the limiter of the test that runs


def limiter():
    return current["limiter"]


def key(request):
    return request.headers.get("x-api-key")


def cost_after(request, outcome):
    current["outcome"] = outcome
    if request.GET.get("faulty"):
        raise LookupError("a mistake of the application")
    return {"tpm": outcome.body_bytes} if request.GET.get("measured") else None


@sync_and_async_middleware
def around(get_response):
    """A middleware around the limits, which does to a response what a test says."""
    if iscoroutinefunction(get_response):

        async def pass_async(request):
            response = await get_response(request)
            if "around" in current:
                await current["around"]()
            return response

        return pass_async

    def pass_sync(request):
        response = get_response(request)
        if "around" in current:
            current["around"]()
        return response

    return pass_sync


def hello(request):
    return JsonResponse({"lease": None if request.lease is None else request.lease.consumed})


def inner(request):
    with limiter().acquire("key", "inner", {"rpm": 1}):
        return JsonResponse({"hello": "world"})


async def async_inner(request):
    async with limiter().acquire("key", "inner", {"rpm": 1}):
        return JsonResponse({"hello": "world"})


def stream(request):
    chunks = int(request.GET.get("chunks", 3))

    def body():
        with limiter().acquire("key", "inner", {"rpm": 1}):
            for number in range(chunks):
                yield f"chunk {number}\n"

    return StreamingHttpResponse(body())


async def async_stream(request):
    chunks = int(request.GET.get("chunks", 3))

    async def body():
        async with limiter().acquire("key", "inner", {"rpm": 1}):
            for number in range(chunks):
                yield f"chunk {number}\n"
                await asyncio.sleep(0.001)

    return StreamingHttpResponse(body())


def async_body(request):
    async def body():
        for number in range(3):
            yield f"chunk {number}\n"

    return StreamingHttpResponse(body())


async def hold(request):
    current["held"].append(request.GET["name"])
    await current["release"].wait()
    return JsonResponse({})


def broken_body(request):
    async def body():
        yield "chunk 0\n"
        raise LookupError("a mistake of the application")

    return StreamingHttpResponse(body())


async def chat(request):
    return StreamingHttpResponse(await current["chat"]())


views = (hello, chat, hold, inner, async_inner, stream, async_stream, async_body, broken_body)
urlpatterns = [path("", hello), *[path(view.__name__, view) for view in views]]


LIMITED = {
    "LIMITER": limiter,
    "KEY": key,
    "COST": {"rpm": 1, "tpm": 50},
    "COST_AFTER": cost_after,
}


def configure():
    if not settings.configured:
        settings.configure(
            ALLOWED_HOSTS=["*"],
            ROOT_URLCONF=__name__,
            SECRET_KEY="test",
            MIDDLEWARE=[f"{__name__}.around", "zae_limiter.web.django.RateLimitMiddleware"],
            ZAE_LIMITER=LIMITED,
            LOGGING_CONFIG=None,
        )
        django.setup()


def handler(kind, **changes):
    """Return a handler of Django whose settings differ from those of the site."""
    configure()
    with override_settings(ZAE_LIMITER={**LIMITED, **changes}):
        return kind()
