"""Limits as the official clients see them: what is left on every answer, and refusals."""

import datetime
import os
import re

import anthropic
import openai
import pytest
from google.genai import errors

from conftest import TIMEOUT, URL, native_client

MESSAGES = [{"role": "user", "content": "Hello!"}]
# Made by `cargo xtask test`: a thousand requests and a million tokens per minute; one request.
ROOMY = os.environ["GATEWAY_ROOMY_KEY"]
TIGHT = os.environ["GATEWAY_TIGHT_KEY"]


def chat_client(key):
    return openai.OpenAI(base_url=f"{URL}/v1", api_key=key, max_retries=0, timeout=TIMEOUT)


def messages_client(key):
    return anthropic.Anthropic(base_url=URL, api_key=key, max_retries=0, timeout=TIMEOUT)


@pytest.fixture(scope="module")
def tight(wire):
    """The key with its one request of the minute used."""
    wire.post("/v1/chat/completions", {"model": "demo-chat", "messages": MESSAGES}, key=TIGHT)
    return TIGHT


@pytest.mark.parametrize("stream", [False, True])
def test_chat_and_responses_tell_what_is_left(stream):
    client = chat_client(ROOMY)
    before = 1_001
    for raw in (
        client.chat.completions.with_raw_response.create(
            model="demo-chat", messages=MESSAGES, max_tokens=8, stream=stream
        ),
        client.responses.with_raw_response.create(
            model="demo-chat", input="Hello!", max_output_tokens=16, stream=stream
        ),
    ):
        headers = raw.headers
        assert headers["x-ratelimit-limit-requests"] == "1000"
        assert headers["x-ratelimit-limit-tokens"] == "1000000"
        left = int(headers["x-ratelimit-remaining-requests"])
        assert left < before
        before = left
        assert 0 < int(headers["x-ratelimit-remaining-tokens"]) < 1_000_000
        for what in ("requests", "tokens"):
            assert re.fullmatch(r"(\d+m)?[\d.]+(s|ms)", headers[f"x-ratelimit-reset-{what}"])
        if stream:
            list(raw.parse())


def test_messages_tell_what_is_left_and_until_when():
    raw = messages_client(ROOMY).messages.with_raw_response.create(
        model="demo-messages", messages=MESSAGES, max_tokens=8
    )
    for what, limit in (("requests", 1_000), ("tokens", 1_000_000)):
        prefix = f"anthropic-ratelimit-{what}"
        assert int(raw.headers[f"{prefix}-limit"]) == limit
        assert 0 < int(raw.headers[f"{prefix}-remaining"]) < limit
        reset = datetime.datetime.fromisoformat(raw.headers[f"{prefix}-reset"])
        assert reset.tzinfo is not None


def test_a_key_without_limits_hears_nothing_of_them(client):
    raw = client.chat.completions.with_raw_response.create(model="demo-chat", messages=MESSAGES)
    assert not [name for name in raw.headers if "ratelimit" in name]


def test_chat_is_refused_with_a_time_to_come_back(tight):
    with pytest.raises(openai.RateLimitError) as refused:
        chat_client(tight).chat.completions.create(model="demo-chat", messages=MESSAGES)
    check_retry(refused.value.response.headers)
    assert refused.value.code == "rate_limit_exceeded"
    assert refused.value.response.headers["x-ratelimit-remaining-requests"] == "0"


def test_messages_are_refused_with_a_time_to_come_back(tight):
    with pytest.raises(anthropic.RateLimitError) as refused:
        messages_client(tight).messages.create(
            model="demo-messages", messages=MESSAGES, max_tokens=8
        )
    check_retry(refused.value.response.headers)
    assert refused.value.body["error"]["type"] == "rate_limit_error"
    assert refused.value.response.headers["anthropic-ratelimit-requests-remaining"] == "0"


def test_native_is_refused_with_details(tight):
    client = native_client(key=tight)
    with pytest.raises(errors.ClientError) as refused:
        client.models.generate_content(model="demo-native", contents="Hello!")
    assert (refused.value.code, refused.value.status) == (429, "RESOURCE_EXHAUSTED")
    details = {one["@type"].rsplit(".")[-1]: one for one in refused.value.details["error"]["details"]}
    assert re.fullmatch(r"[\d.]+s", details["RetryInfo"]["retryDelay"])
    assert "requests per minute" in details["QuotaFailure"]["violations"][0]["description"]


def test_an_idempotent_call_is_answered_twice_and_charged_once(client, wire):
    ask = {"model": "demo-chat", "messages": MESSAGES, "max_tokens": 8}
    raw = client.chat.completions.with_raw_response
    headers = {"Idempotency-Key": os.urandom(8).hex()}
    first = raw.create(**ask, extra_headers=headers)
    spent = wire.get("/v1/key").json()["spent_usd"]
    again = raw.create(**ask, extra_headers=headers)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.parse() == first.parse()
    assert wire.get("/v1/key").json()["spent_usd"] == spent
    with pytest.raises(openai.BadRequestError):
        raw.create(**{**ask, "max_tokens": 9}, extra_headers=headers)


def check_retry(headers):
    assert headers["x-should-retry"] == "true"
    assert 1 <= int(headers["retry-after"]) <= 60
    assert 1 <= int(headers["retry-after-ms"]) <= 60_000
