import os
import socket
import subprocess
import sys

import pytest

from zae_limiter import InvalidIdentifierError, InvalidNameError, ValidationError
from zae_limiter.naming import (
    check_entity_id,
    check_limit_name,
    check_namespace,
    check_resource,
    check_resource_or_default,
    check_stack_name,
)
from zae_limiter_ops.infra.names import provisioner_function

USER_NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")  # where Python looks for the user first
MODEL_IDS = [
    "us.anthropic.claude-3-5-sonnet-20241022-v2:0",
    "llama3:8b",
    "ft:gpt-4o-mini:acme::x",
    "claude-3-5-sonnet@20240620",
    "01-ai/Yi-34B",
    "4o+tools",
]
NOT_TEXT = [None, 5, 5.0, True, b"bytes", ["a"], {"a": 1}, len]
CHECKS = [
    check_entity_id,
    check_limit_name,
    check_namespace,
    check_resource,
    check_resource_or_default,
    check_stack_name,
]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("value", NOT_TEXT, ids=repr)
def test_a_name_must_be_text(check, value):
    with pytest.raises(ValidationError, match="must be a string"):
        check(value)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("value", ["", " ", "\t", "\n"], ids=repr)
def test_a_name_must_not_be_empty(check, value):
    with pytest.raises(ValidationError):
        check(value)


@pytest.mark.parametrize(
    ("check", "longest"),
    [
        (check_entity_id, 256),
        (check_resource, 128),
        (check_limit_name, 64),
        (check_namespace, 64),
        (check_stack_name, 45),
    ],
)
def test_a_name_has_a_greatest_length(check, longest):
    assert check("a" * longest) == "a" * longest
    with pytest.raises(ValidationError, match=str(longest)):
        check("a" * (longest + 1))


def test_a_stack_is_named_like_a_table_and_leaves_room_for_its_functions():
    assert check_stack_name("abc") == "abc"
    with pytest.raises(InvalidNameError, match="at least 3 characters"):
        check_stack_name("ab")
    assert len(provisioner_function("a" * 45)) == 64


@pytest.mark.parametrize("check", CHECKS[1:])
@pytest.mark.parametrize(
    "value", ["a b", "a#b", "a=b", "a~b", "a\n", "\na", "é", "a\x00", "_a", "-a", ".a", "ａ"]
)
def test_a_name_holds_plain_characters_only(check, value):
    with pytest.raises(InvalidNameError):
        check(value)


@pytest.mark.parametrize(
    "value",
    ["u", "user-1", "a@example.org", "日本", "arn:aws:iam::1:user/x", "a b", "~x", "a$", "/", "-"],
)
def test_an_entity_id_is_nearly_any_text(value):
    assert check_entity_id(value) == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a#b", "'#'"),
        ("#", "'#'"),
        ("$SYSTEM", r"'\$'"),
        (" a", "printable"),
        ("a ", "printable"),
        ("a\u00a0", "printable"),
        ("a\nb", "printable"),
        ("a\x00b", "printable"),
        ("a\u200bb", "printable"),
        ("\ud800", "printable"),
    ],
)
def test_an_entity_id_that_would_break_keys_or_hide_something_is_refused(value, reason):
    with pytest.raises(InvalidIdentifierError, match=reason):
        check_entity_id(value)


@pytest.mark.parametrize("value", ["日" * 256, "a" * 256, "😀" * 225])
def test_an_entity_id_may_be_long(value):
    assert check_entity_id(value) == value


@pytest.mark.parametrize("value", ["😀" * 226, "😀" * 256])
def test_an_entity_id_of_more_than_900_bytes_is_refused(value):
    with pytest.raises(InvalidIdentifierError, match="at most 900 bytes"):
        check_entity_id(value)


@pytest.mark.parametrize("value", ["gpt-4", "openai/gpt-4.1", "a", "A_b.c-d/e", *MODEL_IDS])
def test_a_resource_may_be_a_model_id(value):
    assert check_resource(value) == value


@pytest.mark.parametrize("value", ["/a", ":a", "@a", "+a", "a$", "a=b", "a,b", "a?b", "a%b", "a\\"])
def test_a_resource_starts_with_a_letter_or_digit_and_has_few_marks(value):
    with pytest.raises(InvalidNameError, match=r"/ : @ \+, starting with a letter or digit"):
        check_resource(value)


@pytest.mark.parametrize("check", [check_limit_name, check_namespace, check_stack_name])
@pytest.mark.parametrize("value", ["a:b", "a@b", "a+b"])
def test_names_other_than_resources_have_fewer_marks(check, value):
    with pytest.raises(InvalidNameError):
        check(value)


@pytest.mark.parametrize("value", ["_default_", "_Default_", "_x_"])
def test_the_default_resource_is_no_resource(value):
    with pytest.raises(InvalidNameError):
        check_resource(value)
    if value == "_default_":
        assert check_resource_or_default(value) == value
    else:
        with pytest.raises(InvalidNameError):
            check_resource_or_default(value)


@pytest.mark.parametrize("value", ["rpm", "tokens_per_day", "a.b-c", "x1"])
def test_limit_names(value):
    assert check_limit_name(value) == value


@pytest.mark.parametrize("value", ["wcu", "WCU", "Wcu"])
def test_the_name_of_the_internal_limit_is_reserved(value):
    with pytest.raises(InvalidNameError, match="reserved"):
        check_limit_name(value)


@pytest.mark.parametrize("value", ["a/b", "1a"])
def test_a_limit_name_has_no_slash_and_no_leading_digit(value):
    with pytest.raises(InvalidNameError):
        check_limit_name(value)


def test_a_namespace_may_start_with_a_digit_and_is_never_the_reserved_one():
    assert check_namespace("2026-prod") == "2026-prod"
    with pytest.raises(InvalidNameError):
        check_namespace("_")


@pytest.mark.parametrize("value", ["a_b", "a.b", "1a"])
def test_a_stack_name_follows_cloudformation(value):
    assert check_stack_name("my-Stack-1") == "my-Stack-1"
    with pytest.raises(InvalidNameError):
        check_stack_name(value)


@pytest.mark.parametrize("check", CHECKS)
def test_the_error_names_the_field_and_shows_the_value(check):
    with pytest.raises(ValidationError) as caught:
        check("", "which_field")
    assert caught.value.field == "which_field"
    assert caught.value.value == ""
    assert "which_field" in str(caught.value)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run a program as another user")
def test_the_author_of_a_process_whose_user_has_no_name_is_a_number():
    script = "from zae_limiter import naming as i; import os, getpass, socket; os.setuid(54321)"
    names = {name: value for name, value in os.environ.items() if name not in USER_NAMES}
    done = subprocess.run(
        [sys.executable, "-c", f"{script}; print(i.process_author())"],
        capture_output=True,
        text=True,
        check=True,
        env=names,
    )
    assert done.stdout == f"54321@{socket.gethostname()}\n"
