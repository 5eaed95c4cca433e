"""The tokens that a model reads: every name and every text of a request, and its attachments.

An attachment is an image, a sound, a video or a file in a field that the provider's format has for
it. Everything else is text, even a data URL inside a message, or an argument of a tool that
resembles an image.
"""

from __future__ import annotations

import codecs
import inspect
import typing
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from zae_limiter.exceptions import ValidationError

CountTokens = Callable[[str], int]

# The cost of a large image with most providers. The size of an attachment tells little about it.
PER_ATTACHMENT: Final = 1_500
# Fields that hold settings, at the top of a request or in its configuration. Providers do not show
# them to the model. A field that is not listed here counts as input, so that none is overlooked.
CONFIGS: Final = ("inferenceConfig", "generationConfig", "generation_config", "config")
_BODIES: Final = frozenset({*CONFIGS, "extra_body", "additionalModelRequestFields"})
_SETTINGS: Final = frozenset(
    [
        "audio",
        "audio_timestamp",
        "automatic_function_calling",
        "background",
        "best_of",
        "cache_control",
        "cached_content",
        "cachedContent",
        "candidate_count",
        "candidateCount",
        "dimensions",
        "echo",
        "encoding_format",
        "extra_headers",
        "extra_query",
        "frequency_penalty",
        "frequencyPenalty",
        "guardrailConfig",
        "http_options",
        "include",
        "inference_geo",
        "labels",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_output_tokens",
        "max_tokens",
        "max_tool_calls",
        "maxOutputTokens",
        "maxTokens",
        "media_resolution",
        "metadata",
        "modalities",
        "model",
        "modelId",
        "n",
        "parallel_tool_calls",
        "performanceConfig",
        "presence_penalty",
        "presencePenalty",
        "previous_response_id",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning",
        "reasoning_effort",
        "requestMetadata",
        "response_logprobs",
        "response_mime_type",
        "response_modalities",
        "responseMimeType",
        "responseModalities",
        "safety_identifier",
        "safety_settings",
        "safetySettings",
        "seed",
        "service_tier",
        "serviceTier",
        "speech_config",
        "speed",
        "stop",
        "stop_sequences",
        "stopSequences",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "thinking",
        "thinking_config",
        "thinkingConfig",
        "timeout",
        "tool_choice",
        "tool_config",
        "toolChoice",
        "top_k",
        "top_logprobs",
        "top_p",
        "topK",
        "topP",
        "truncation",
        "user",
        "verbosity",
    ]
)
# Fields of a request, and inside of messages, that hold messages or parts of messages.
_TOP_PARTS: Final = frozenset(
    ["messages", "input", "contents", "prompt", "system", "system_instruction", "systemInstruction"]
)
_INNER_PARTS: Final = frozenset(
    [
        "content",
        "parts",
        "output",
        "toolResult",
        "function_response",
        "functionResponse",
        "guardContent",
    ]
)
# Fields of a part that declare an attachment, and those that do so only in a part of one type.
_ATTACHED: Final = frozenset(
    [
        "audio",
        "audio_url",
        "document",
        "document_url",
        "file",
        "file_data",
        "file_id",
        "file_url",
        "fileData",
        "image",
        "image_url",
        "inline_data",
        "inlineData",
        "input_audio",
        "video",
        "video_url",
    ]
)
_ATTACHED_BY_TYPE: Final = {
    "document": "source",
    "image": "source",
    "image_generation_call": "result",
}
# Fields of an attachment: its address, its contents, and their type.
_ADDRESSES: Final = frozenset(
    [
        "audio_url",
        "document_url",
        "file_id",
        "file_uri",
        "file_url",
        "fileUri",
        "id",
        "image_url",
        "s3Location",
        "uri",
        "url",
        "video_url",
    ]
)
_CONTENTS: Final = frozenset(["bytes", "data", "file_data", "result"])
_MEDIA_TYPES: Final = ("media_type", "mime_type", "mimeType", "format")
_TEXT_FORMATS: Final = frozenset(["csv", "html", "md", "txt"])  # formats of documents on Bedrock
_SNIFFED: Final = 4_096  # so many characters at the beginning of data show whether it is text
_TOKEN_IDS: Final = 10**6  # no vocabulary has more tokens
_DEEPEST: Final = 100  # levels of nesting; providers refuse more, and a cycle would have no end


class InputReader:
    """Adds up the tokens of one request that a model reads."""

    def __init__(self, count: CountTokens) -> None:
        self.tokens = 0
        self._count = count

    def read(self, request: Any, name: str = "request", depth: int = 0) -> None:
        """Read the arguments of an SDK's call, or the parsed body of its request.

        For a configuration inside of a request, ``name`` and ``depth`` tell where it stands.
        """
        _check_depth(depth, name)
        fields = fields_of(request)
        if fields is None and hasattr(request, "__dict__") and not callable(request):
            fields = list(vars(request).items())
        if fields is None:
            raise ValidationError(
                "request",
                type(request).__name__,
                "must hold the arguments of the call, or the parsed body of the request "
                "(json.loads); or pass estimate= with numbers",
            )
        for inner, value in fields:
            if inner in _BODIES:
                self.read({} if value is None else value, inner, depth + 1)
            elif inner not in _SETTINGS:
                self._text(inner)
                self._value(value, inner, parts=inner in _TOP_PARTS)

    def _value(self, value: Any, name: str, depth: int = 0, *, parts: bool = False) -> None:
        """Read a value of any kind. With ``parts``, its mappings may declare attachments."""
        _check_depth(depth, name)
        if isinstance(value, str):
            self._text(value)
        elif isinstance(value, int | float | None):
            self._scalar(value, parts)
        elif isinstance(value, type) or typing.get_origin(value) is not None:
            self._schema(value, name, depth)
        elif _is_binary(value):
            self._contents(value, name, depth, "")
        elif isinstance(value, Iterator):
            raise ValidationError(
                f"request.{name}",
                type(value).__name__,
                "must be a list: an iterator can be read only once",
            )
        elif inspect.isroutine(value):  # Gemini's SDK accepts a function as a tool
            self._text(_description(value))
        elif (fields := fields_of(value)) is not None:
            self._mapping(fields, name, depth + 1, parts=parts)
        elif isinstance(value, Iterable):
            self._items(list(value), name, depth + 1, parts=parts)
        else:
            self._text(str(value))

    def _items(self, items: list[Any], name: str, depth: int, *, parts: bool) -> None:
        if not items:
            self._text("[]")
        for item in items:
            self._value(item, name, depth, parts=parts)

    def _mapping(self, fields: Fields, name: str, depth: int, *, parts: bool) -> None:
        if not fields:
            self._text("{}")
        attached = _attached_fields(fields) if parts else frozenset()
        for inner, value in fields:
            self._text(inner)
            if inner in attached:
                self._attachment(value, inner, depth, "")
            else:
                self._value(value, name, depth, parts=parts and inner in _INNER_PARTS)

    def _attachment(self, value: Any, name: str, depth: int, media_type: str) -> None:
        """Read a declared attachment: its contents, and the names and titles beside them."""
        _check_depth(depth, name)
        fields = None if isinstance(value, str) else fields_of(value)
        if fields is None:
            self._contents(value, name, depth, media_type)
            return
        by_name = dict(fields)
        if by_name.get("type") == "text":  # a document of plain text for Anthropic
            self._mapping(fields, name, depth, parts=False)
            return
        declared = [each for key in _MEDIA_TYPES if isinstance(each := by_name.get(key), str)]
        media_type = declared[0] if declared else media_type
        for inner, each in fields:
            self._text(inner)
            if inner in _ADDRESSES or inner in _CONTENTS:
                self._contents(each, inner, depth + 1, media_type)
            elif inner in ("source", "content"):
                self._nested_attachment(each, inner, depth + 1, media_type)
            else:
                self._value(each, name, depth + 1)

    def _nested_attachment(self, value: Any, name: str, depth: int, media_type: str) -> None:
        if isinstance(value, list | tuple):  # a document that consists of parts
            self._value(value, name, depth, parts=True)
        else:
            self._attachment(value, name, depth, media_type)

    def _contents(self, value: Any, name: str, depth: int, media_type: str) -> None:
        """Count contents that are text as text, and all others as one attachment."""
        if isinstance(value, str):
            self._string(value, name, media_type)
        elif isinstance(value, bytes | bytearray | memoryview):
            self._data(_text_of(bytes(value), media_type))
        elif isinstance(value, Mapping | list | tuple) and name != "s3Location":
            self._value(value, name, depth)  # no provider's format has such contents
        else:
            self._data(None)

    def _string(self, value: str, name: str, media_type: str) -> None:
        if name not in _ADDRESSES and name not in _CONTENTS:
            self._text(value)  # a document that is given as text
        elif value[:5].lower() == "data:":
            self._data(_text_of_url(value))
        elif name in _CONTENTS:
            self._data(_text_of_base64(value, media_type))
        else:  # an address costs an attachment; a longer string is no address and counts as text
            self.tokens += max(PER_ATTACHMENT, self._count(value))

    def _data(self, text: str | None) -> None:
        """Count a text, or an attachment if there is none."""
        if text is None:
            self.tokens += PER_ATTACHMENT
        else:
            self._text(text)

    def _scalar(self, value: float | None, parts: bool) -> None:
        if parts and type(value) is int and 0 <= value < _TOKEN_IDS:
            self.tokens += 1  # a text may be sent as a list of token ids
        else:
            self._text("null" if value is None else str(value))

    def _schema(self, value: Any, name: str, depth: int) -> None:
        """Read a class whose schema an SDK sends."""
        schema = getattr(value, "model_json_schema", None)
        if callable(schema):
            self._value(schema(), name, depth + 1)
            return
        self._text(str(value))
        for inner in typing.get_args(value):
            self._value(inner, name, depth + 1)

    def _text(self, text: str) -> None:
        if text:
            self.tokens += self._count(text)


Fields = list[tuple[str, Any]]


def fields_of(value: Any) -> Fields | None:
    """Return the named fields of a dictionary or an object; None if the value has none."""
    if isinstance(value, Mapping):
        return [(str(name), field) for name, field in value.items()]
    if isinstance(value, type):
        return None
    if callable(getattr(value, "model_dump", None)):  # a pydantic model yields all its fields
        return [(name, field) for name, field in value if field is not None]
    if is_dataclass(value):
        return [(each.name, getattr(value, each.name)) for each in dataclass_fields(value)]
    return list(vars(value).items()) if isinstance(value, SimpleNamespace) else None


def _check_depth(depth: int, name: str) -> None:
    if depth > _DEEPEST:
        raise ValidationError(
            f"request.{name}",
            "…",
            f"is nested deeper than {_DEEPEST} levels; pass estimate= with numbers",
        )


def _is_binary(value: Any) -> bool:
    """Tell whether a value is data, an open file, or an image that Gemini's SDK accepts."""
    return (
        isinstance(value, bytes | bytearray | memoryview)
        or callable(getattr(value, "read", None))
        or type(value).__module__.startswith("PIL.")
    )


def _attached_fields(fields: Fields) -> frozenset[str]:
    """Return the fields of one part that declare an attachment."""
    by_name = dict(fields)
    names = _ATTACHED & by_name.keys()
    kind = by_name.get("type")
    if isinstance(kind, str) and kind in _ATTACHED_BY_TYPE:
        names |= {_ATTACHED_BY_TYPE[kind]}
    if "uri" in by_name and any(name in by_name for name in _MEDIA_TYPES):
        names |= {"uri"}  # a file that was uploaded with Gemini's SDK before
    return names


def _description(function: Any) -> str:
    """Return the description of a function that an SDK sends to the model."""
    try:
        signature = str(inspect.signature(function))
    except (TypeError, ValueError):  # some built-in functions have none
        signature = "()"
    return f"{function.__name__}{signature} {inspect.getdoc(function) or ''}"


# --- contents of attachments -----------------------------------------------------------------


def _text_of_url(url: str) -> str | None:
    """Return the text of a data URL; None if it holds no text."""
    begin = url.find(",") + 1
    media_type, *options = url[5 : max(5, begin - 1)].lower().split(";")
    if "base64" in [option.strip() for option in options]:
        return _text_of_base64(url, media_type, begin)
    return _text_of(unquote_to_bytes(url[begin:]), media_type or "text/plain")


def _text_of_base64(encoded: str, media_type: str, begin: int = 0) -> str | None:
    """Return the text of base64 data; None if it holds no text. Such data is not decoded."""
    try:
        if _text_of(_decoded(encoded[begin : begin + _SNIFFED]), media_type) is None:
            return None
        return _text_of(_decoded(encoded[begin:]), "text/plain")
    except ValueError:  # this is no base64, so it is the text itself
        return encoded[begin:]


_BASE64_LETTERS: Final = {ord("-"): "+", ord("_"): "/", ord("\r"): None, ord("\n"): None}


def _decoded(encoded: str) -> bytes:
    """Decode base64 of either alphabet, with or without line breaks and padding.

    Raise ValueError for other data, such as words with blanks between them.
    """
    text = encoded.strip().rstrip("=\r\n").translate(_BASE64_LETTERS)
    text = text[:-1] if len(text) % 4 == 1 else text
    return b64decode(text + "=" * (-len(text) % 4), validate=True)


def _text_of(data: bytes, media_type: str) -> str | None:
    """Return data as text if it is declared as text, or if its beginning reads as text."""
    kind = media_type.lower()
    if kind.startswith("text/") or kind in _TEXT_FORMATS or _reads_as_text(data[:_SNIFFED]):
        return data.decode("utf-8", "replace")
    return None


def _reads_as_text(beginning: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(beginning)
    except UnicodeDecodeError:
        return False
    # Binary data that happens to be valid UTF-8 is mostly zeros. A text may contain some zeros.
    return bool(text) and 2 * text.count("\0") <= len(text)
