"""A Django site in one file: every client address has its limit, and a search costs more.

python -m examples.django_app runserver
"""

import os
import sys

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.web import client_address


def limiter() -> SyncRateLimiter:
    """Called once, when Django loads its middleware."""
    url = os.environ.get("ZAEL_URL", "sqlite:///django.db")
    made = SyncRateLimiter(repository=SyncRepository.open(url=url))
    made.set_resource_defaults("site", [Limit.per_minute("credits", 20)])
    return made


def cost(request: HttpRequest) -> dict[str, int]:
    return {"credits": 5 if request.path == "/search" else 1}


def index(request: HttpRequest) -> JsonResponse:
    left = request.lease.remaining["credits"]
    return JsonResponse({"hello": "world", "credits": left})


def search(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"found": [], "credits": request.lease.remaining["credits"]})


urlpatterns = [path("", index), path("search", search)]

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["127.0.0.1", "localhost"],
        ROOT_URLCONF=__name__,
        SECRET_KEY="only for this example",
        MIDDLEWARE=["zae_limiter.web.django.RateLimitMiddleware"],
        ZAE_LIMITER={
            "LIMITER": limiter,
            "KEY": client_address,
            "RESOURCE": "site",
            "COST": cost,
        },
    )

application = get_wsgi_application()

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
