"""A Django site for tests: its settings are made once for the process."""

import asyncio

import django
from django.conf import settings
from django.http import JsonResponse, StreamingHttpResponse
from django.urls import path

current = {}  # the limiter of the test that runs


def limiter():
    return current["limiter"]


def key(request):
    return request.headers.get("x-api-key")


def cost_after(request, outcome):
    current["outcome"] = outcome
    return {"tpm": outcome.body_bytes} if request.GET.get("measured") else None


def hello(request):
    return JsonResponse({"hello": "world"})


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


async def chat(request):
    return StreamingHttpResponse(await current["chat"]())


views = (hello, chat, inner, async_inner, stream, async_stream)
urlpatterns = [path(view.__name__, view) for view in views]


def configure():
    if not settings.configured:
        settings.configure(
            ALLOWED_HOSTS=["*"],
            ROOT_URLCONF=__name__,
            SECRET_KEY="test",
            MIDDLEWARE=["zae_limiter.web.django.RateLimitMiddleware"],
            ZAE_LIMITER={
                "LIMITER": limiter,
                "KEY": key,
                "COST": {"rpm": 1, "tpm": 50},
                "COST_AFTER": cost_after,
            },
            LOGGING_CONFIG=None,
        )
        django.setup()
