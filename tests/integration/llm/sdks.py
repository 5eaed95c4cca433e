"""One face for the SDKs: a whole answer, a stream, and the client that both need."""

from contextlib import asynccontextmanager, contextmanager

import boto3
from botocore.config import Config

from tests.support.lazy import Lazy

anthropic, genai, openai = Lazy("anthropic"), Lazy("google.genai"), Lazy("openai")

MESSAGES = [{"role": "user", "content": "hello"}]
CHAT = {"model": "m", "messages": MESSAGES, "max_tokens": 500}
RESPONSES = {"model": "m", "input": "hello", "max_output_tokens": 500}
GEMINI = {"model": "m", "contents": "hello", "config": {"max_output_tokens": 500}}
BEDROCK = {
    "modelId": "m",
    "messages": [{"role": "user", "content": [{"text": "hello"}]}],
    "inferenceConfig": {"maxTokens": 500},
}
USAGE = {"stream_options": {"include_usage": True}}


class OpenAIChat:
    request = CHAT

    def whole(self, client):
        return client.chat.completions.create(**CHAT)

    def stream(self, client):
        return client.chat.completions.create(**CHAT, stream=True, **USAGE)

    def options(self, provider, retries):
        return {"api_key": "k", "base_url": f"{provider.url}/v1", "max_retries": retries}

    @contextmanager
    def sync_client(self, provider, retries=0):
        with openai.OpenAI(**self.options(provider, retries)) as client:
            yield client

    @asynccontextmanager
    async def client(self, provider, retries=0):
        async with openai.AsyncOpenAI(**self.options(provider, retries)) as client:
            yield client


class OpenAIResponses(OpenAIChat):
    request = RESPONSES

    def whole(self, client):
        return client.responses.create(**RESPONSES)

    def stream(self, client):
        return client.responses.create(**RESPONSES, stream=True)


class Anthropic(OpenAIChat):
    def whole(self, client):
        return client.messages.create(**CHAT)

    def stream(self, client):
        return client.messages.create(**CHAT, stream=True)

    def options(self, provider, retries):
        return {"api_key": "k", "base_url": provider.url, "max_retries": retries}

    @contextmanager
    def sync_client(self, provider, retries=0):
        with anthropic.Anthropic(**self.options(provider, retries)) as client:
            yield client

    @asynccontextmanager
    async def client(self, provider, retries=0):
        async with anthropic.AsyncAnthropic(**self.options(provider, retries)) as client:
            yield client


class Gemini:
    request = GEMINI

    def whole(self, client):
        return client.models.generate_content(**GEMINI)

    def stream(self, client):
        return client.models.generate_content_stream(**GEMINI)

    def made(self, provider):
        options = genai.types.HttpOptions(base_url=provider.url)
        return genai.Client(api_key="k", http_options=options)

    @contextmanager
    def sync_client(self, provider, retries=0):
        with self.made(provider) as client:
            yield client

    @asynccontextmanager
    async def client(self, provider, retries=0):
        whole = self.made(provider)
        async with whole.aio as client:
            yield client
        whole.close()


class Bedrock:
    request = BEDROCK

    def whole(self, client):
        return client.converse(**BEDROCK)

    def stream(self, client):
        return client.converse_stream(**BEDROCK)

    @contextmanager
    def sync_client(self, provider, retries=0):
        client = boto3.client(
            "bedrock-runtime",
            region_name="eu-west-1",
            endpoint_url=provider.url,
            aws_access_key_id="a",
            aws_secret_access_key="b",
            config=Config(retries={"total_max_attempts": 1 + retries, "mode": "standard"}),
        )
        yield client
        client.close()


ASYNC_SDKS = {
    "openai-chat": OpenAIChat(),
    "openai-responses": OpenAIResponses(),
    "anthropic": Anthropic(),
    "gemini": Gemini(),
}
SYNC_SDKS = {**ASYNC_SDKS, "bedrock": Bedrock()}
