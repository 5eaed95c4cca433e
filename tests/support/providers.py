"""A local server that speaks the wire formats of OpenAI, Anthropic, Gemini and Bedrock.

Each request takes the next of ``answers``; without one it gets the default. Real SDKs talk to it.
"""

import json
import struct
import threading
import time
from binascii import crc32
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Answer:
    """How the provider answers one request.

    ``end`` of a stream: ``complete``; ``early``, a clean end without the last event; ``cut``, the
    socket is closed; ``hang``, nothing more until the client goes; ``error``, an error event.
    """

    texts: tuple[str, ...] = ("alpha ", "beta ", "gamma")
    input_tokens: int = 20
    output_tokens: int = 9
    cached_tokens: int = 0
    reports_usage: bool = True
    end: str = "complete"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: dict = field(default_factory=dict)


class Provider:
    """The running server: what it was asked, and how it is to answer."""

    def __init__(self):
        self.answers = deque()
        self.requests = []
        self.gone = threading.Event()  # a client has left in the middle of a stream
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.provider = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def next_answer(self):
        try:
            return self.answers.popleft()
        except IndexError:
            return Answer()

    @contextmanager
    def running(self):
        self._thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or "{}")
        provider = self.server.provider
        provider.requests.append((self.path, body, dict(self.headers)))
        answer = provider.next_answer()
        wire = wire_of(self.path)
        if answer.status != 200:
            self._json(answer.status, answer.body or wire.error(answer.status), answer.headers)
        elif wire.streams(self.path, body):
            self._stream(wire, answer, body)
        else:
            self._json(200, wire.whole(answer), answer.headers)

    def _json(self, status, body, headers):
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, wire, answer, body):
        self.send_response(200)
        self.send_header("content-type", wire.stream_type)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        provider = self.server.provider
        try:
            for event in wire.events(answer, body):
                self._chunk(event)
            if answer.end == "hang":
                self._wait_for_the_client_to_go()
            elif answer.end == "cut":
                self.close_connection = True
            else:
                self._chunk(b"")
        except OSError:
            provider.gone.set()
            self.close_connection = True

    def _chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _wait_for_the_client_to_go(self):
        self.connection.settimeout(20)
        if self.connection.recv(1) == b"":
            self.server.provider.gone.set()
        self.close_connection = True


def sse(event, kind=None):
    head = b"" if kind is None else b"event: %s\n" % kind.encode()
    return head + b"data: " + json.dumps(event).encode() + b"\n\n"


class Chat:
    stream_type = "text/event-stream"

    def streams(self, path, body):
        return bool(body.get("stream"))

    def error(self, status):
        return {"error": {"message": "refused", "type": "refused", "code": str(status)}}

    def usage(self, answer):
        if not answer.reports_usage:
            return None
        return {
            "prompt_tokens": answer.input_tokens,
            "completion_tokens": answer.output_tokens,
            "total_tokens": answer.input_tokens + answer.output_tokens,
            "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
        }

    def head(self, kind):
        return {"id": "c1", "object": kind, "created": int(time.time()), "model": "m"}

    def whole(self, answer):
        message = {"role": "assistant", "content": "".join(answer.texts)}
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        return {
            **self.head("chat.completion"),
            "choices": choices,
            "usage": self.usage(answer),
        }

    def chunk(self, choices, usage=None):
        return sse({**self.head("chat.completion.chunk"), "choices": choices, "usage": usage})

    def events(self, answer, body):
        for text in answer.texts:
            yield self.chunk([{"index": 0, "delta": {"content": text}, "finish_reason": None}])
        if answer.end == "error":
            yield sse({"error": {"message": "overloaded", "type": "server_error"}})
        if answer.end == "complete":
            yield self.chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}])
            if (body.get("stream_options") or {}).get("include_usage"):
                yield self.chunk([], self.usage(answer))
            yield b"data: [DONE]\n\n"


class Embeddings(Chat):
    def whole(self, answer):
        data = [{"object": "embedding", "index": 0, "embedding": [0.5]}]
        usage = {"prompt_tokens": answer.input_tokens, "total_tokens": answer.input_tokens}
        return {"object": "list", "data": data, "model": "m", "usage": usage}


class Responses(Chat):
    def usage(self, answer):
        return {
            "input_tokens": answer.input_tokens,
            "output_tokens": answer.output_tokens,
            "total_tokens": answer.input_tokens + answer.output_tokens,
            "input_tokens_details": {"cached_tokens": answer.cached_tokens},
            "output_tokens_details": {"reasoning_tokens": 0},
        }

    def response(self, status, answer, usage):
        content = [{"type": "output_text", "text": "".join(answer.texts), "annotations": []}]
        message = {
            "type": "message",
            "id": "m1",
            "role": "assistant",
            "status": status,
            "content": content,
        }
        return {
            "id": "r1",
            "object": "response",
            "created_at": time.time(),
            "model": "m",
            "status": status,
            "output": [message],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": usage,
        }

    def whole(self, answer):
        return self.response("completed", answer, self.usage(answer))

    def events(self, answer, body):
        started = self.response("in_progress", Answer(texts=()), None)
        yield sse({"type": "response.created", "sequence_number": 0, "response": started})
        for number, text in enumerate(answer.texts, 1):
            yield sse(
                {
                    "type": "response.output_text.delta",
                    "sequence_number": number,
                    "item_id": "m1",
                    "output_index": 0,
                    "content_index": 0,
                    "delta": text,
                    "logprobs": [],
                }
            )
        if answer.end == "error":
            yield sse({"type": "error", "sequence_number": 8, "message": "overloaded"}, "error")
        if answer.end == "complete":
            done = self.whole(answer)
            yield sse({"type": "response.completed", "sequence_number": 9, "response": done})


class Anthropic:
    stream_type = "text/event-stream"

    def streams(self, path, body):
        return bool(body.get("stream"))

    def error(self, status):
        return {"type": "error", "error": {"type": "refused", "message": "refused"}}

    def message(self, answer, texts, output_tokens):
        return {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "text", "text": text} for text in texts],
            "stop_reason": "end_turn" if texts else None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": answer.input_tokens - answer.cached_tokens,
                "cache_read_input_tokens": answer.cached_tokens,
                "cache_creation_input_tokens": 0,
                "output_tokens": output_tokens,
            },
        }

    def whole(self, answer):
        return self.message(answer, ["".join(answer.texts)], answer.output_tokens)

    def event(self, kind, **fields):
        return sse({"type": kind, **fields}, kind)

    def events(self, answer, body):
        yield self.event("message_start", message=self.message(answer, [], 1))
        block = {"type": "text", "text": ""}
        yield self.event("content_block_start", index=0, content_block=block)
        for text in answer.texts:
            delta = {"type": "text_delta", "text": text}
            yield self.event("content_block_delta", index=0, delta=delta)
        if answer.end == "error":
            yield self.event("error", error={"type": "overloaded_error", "message": "overloaded"})
        if answer.end == "complete":
            yield self.event("content_block_stop", index=0)
            delta = {"stop_reason": "end_turn", "stop_sequence": None}
            usage = {"output_tokens": answer.output_tokens}
            yield self.event("message_delta", delta=delta, usage=usage)
            yield self.event("message_stop")


class Gemini:
    stream_type = "text/event-stream"

    def streams(self, path, body):
        return ":streamGenerateContent" in path

    def error(self, status):
        return {"error": {"code": status, "message": "refused", "status": "RESOURCE_EXHAUSTED"}}

    def chunk(self, texts, usage, finish=None):
        candidate = {
            "content": {"role": "model", "parts": [{"text": text} for text in texts]},
            "index": 0,
        }
        if finish:
            candidate["finishReason"] = finish
        return {"candidates": [candidate], "usageMetadata": usage}

    def usage(self, answer):
        return {
            "promptTokenCount": answer.input_tokens,
            "candidatesTokenCount": answer.output_tokens,
            "cachedContentTokenCount": answer.cached_tokens,
            "totalTokenCount": answer.input_tokens + answer.output_tokens,
        }

    def whole(self, answer):
        return self.chunk(["".join(answer.texts)], self.usage(answer), "STOP")

    def events(self, answer, body):
        for text in answer.texts:
            yield sse(self.chunk([text], {"promptTokenCount": answer.input_tokens}))
        if answer.end == "error":
            yield sse({"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}})
        if answer.end == "complete":
            yield sse(self.chunk([], self.usage(answer), "STOP"))


class Bedrock:
    stream_type = "application/vnd.amazon.eventstream"

    def streams(self, path, body):
        return path.endswith("/converse-stream")

    def error(self, status):
        return {"message": "refused", "__type": "ThrottlingException"}

    def usage(self, answer):
        return {
            "inputTokens": answer.input_tokens - answer.cached_tokens,
            "outputTokens": answer.output_tokens,
            "totalTokens": answer.input_tokens + answer.output_tokens,
            "cacheReadInputTokens": answer.cached_tokens,
        }

    def whole(self, answer):
        content = [{"text": "".join(answer.texts)}]
        return {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": "end_turn",
            "usage": self.usage(answer),
            "metrics": {"latencyMs": 5},
        }

    def events(self, answer, body):
        yield frame("messageStart", {"role": "assistant"})
        for text in answer.texts:
            delta = {"contentBlockIndex": 0, "delta": {"text": text}}
            yield frame("contentBlockDelta", delta)
        if answer.end == "error":
            yield frame("internalServerException", {"message": "overloaded"}, "exception")
        if answer.end == "complete":
            yield frame("contentBlockStop", {"contentBlockIndex": 0})
            yield frame("messageStop", {"stopReason": "end_turn"})
            metrics = {"latencyMs": 5}
            yield frame("metadata", {"usage": self.usage(answer), "metrics": metrics})


def frame(kind, payload, message_type="event"):
    """One message of AWS's binary event stream."""
    headers = b""
    for name, value in (
        (f":{message_type}-type", kind),
        (":content-type", "application/json"),
        (":message-type", message_type),
    ):
        headers += struct.pack("!B", len(name)) + name.encode()
        headers += struct.pack("!BH", 7, len(value)) + value.encode()
    data = json.dumps(payload).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(data), len(headers))
    message = prelude + struct.pack("!I", crc32(prelude)) + headers + data
    return message + struct.pack("!I", crc32(message))


WIRES = {
    "/chat/completions": Chat(),
    "/embeddings": Embeddings(),
    "/responses": Responses(),
    "/messages": Anthropic(),
    "/model/": Bedrock(),
    ":generateContent": Gemini(),
    ":streamGenerateContent": Gemini(),
}


def wire_of(path):
    return next(wire for part, wire in WIRES.items() if part in path)
