"""A Django site in one file: every client address has its limit, and a search costs more.

gunicorn examples.django_app:application --workers 2
"""

import atexit
import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.web import client_address


def limiter() -> SyncRateLimiter:
    """Django calls this once in each process, when it loads its middleware."""
    made = SyncRateLimiter(url=os.environ.get("ZAEL_URL", "sqlite:///limits.db"))
    # Stores limits where there are none: a restart keeps what an operator has set.
    made.set_resource_defaults("site", [Limit.per_hour("credits", 20)], if_missing=True)
    atexit.register(made.close)  # WSGI servers do not tell an application that they end
    return made


def cost(request: HttpRequest) -> dict[str, int]:
    return {"credits": 5 if request.path == "/search" else 1}


def index(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"hello": "world", "credits": credits_left(request)})


def search(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"found": [], "credits": credits_left(request)})


def credits_left(request: HttpRequest) -> int | None:
    """Return None if an outage let the request pass: nobody knows the rest then."""
    return request.lease.remaining.get("credits")


urlpatterns = [path("", index), path("search", search)]

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["127.0.0.1", "localhost"],
        ROOT_URLCONF=__name__,
        SECRET_KEY="only for this example",
        MIDDLEWARE=["zae_limiter.web.django.RateLimitMiddleware"],
        ZAE_LIMITER={
            "LIMITER": limiter,  # in a settings file "shop.limits.limiter"
            "KEY": client_address,
            "RESOURCE": "site",
            "COST": cost,
        },
    )

application = get_wsgi_application()
