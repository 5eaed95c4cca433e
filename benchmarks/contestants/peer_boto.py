"""One UpdateItem per acquire with the AWS libraries, as one writes it by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import ClientError

from benchmarks.cases import (
    ASYNC,
    ASYNC_CROWD,
    ASYNC_TASKS,
    ASYNC_TASKS_MANY,
    SYNC,
    SYNC_TEN,
    Acquire,
    AsyncAcquire,
    Contestant,
    Setting,
)
from benchmarks.contestants._by_hand import is_refusal, prepared
from benchmarks.contestants._table import BUSY, EMPTY, PARENT
from benchmarks.contestants.own_dynamodb import FAMILY, FAMILY_SHAPES
from benchmarks.dynamodb_server import CLIENT_OPTIONS, CONFIG, boto_client
from zae_limiter import Limit

AIO, BOTO = "plain aiobotocore", "plain boto3"


def aio_client(endpoint: str) -> Any:
    config = AioConfig(**CONFIG)
    return get_session().create_client(
        "dynamodb", endpoint_url=endpoint, config=config, **CLIENT_OPTIONS
    )


@contextmanager
def open_boto(setting: Setting) -> Iterator[Acquire]:
    with prepared(BUSY, setting.keys) as by_hand:
        client = boto_client(by_hand.place.endpoint)

        def acquire(key: str) -> bool:
            client.update_item(**by_hand.update(key))
            return True

        yield acquire
        client.close()


@asynccontextmanager
async def open_aio(limits: list[Limit], setting: Setting) -> AsyncIterator[AsyncAcquire]:
    with prepared(limits, setting.keys) as by_hand:
        async with aio_client(by_hand.place.endpoint) as client:

            async def acquire(key: str) -> bool:
                try:
                    await client.update_item(**by_hand.update(key))
                except ClientError as error:
                    if not is_refusal(error):
                        raise
                    return False
                return True

            yield acquire


@asynccontextmanager
async def open_rejected(setting: Setting) -> AsyncIterator[AsyncAcquire]:
    async with open_aio(EMPTY, setting) as acquire:
        yield acquire


@asynccontextmanager
async def open_cascading(setting: Setting) -> AsyncIterator[AsyncAcquire]:
    async with open_aio(BUSY, setting) as acquire_one:

        async def acquire(key: str) -> bool:
            return all(await asyncio.gather(acquire_one(key), acquire_one(PARENT)))

        yield acquire


CONTESTANTS = [
    Contestant(BOTO, FAMILY, open_boto, None, (SYNC, SYNC_TEN), reference=True, remote=True),
    Contestant(
        AIO,
        FAMILY,
        open_boto,
        partial(open_aio, BUSY),
        (ASYNC, ASYNC_TASKS_MANY, ASYNC_TASKS, ASYNC_CROWD),
        reference=True,
        remote=True,
    ),
    Contestant(
        AIO,
        FAMILY,
        open_boto,
        open_cascading,
        FAMILY_SHAPES,
        scenario="cascade",
        reference=True,
        remote=True,
    ),
    Contestant(
        AIO,
        FAMILY,
        open_boto,
        open_rejected,
        (ASYNC,),
        scenario="rejected",
        grants=False,
        reference=True,
        remote=True,
    ),
]
