"""A model server that is not ours behind the gateway (independent.py): every client, whole and
streamed. What it says is noise, and much of it is not UTF-8; nothing may break on that."""

from decimal import Decimal

import anthropic
import openai
import pytest
from google.genai import errors, types

PROMPT = "Tell me something."
LIMIT = 24
MODELS = ["noise-chat", "noise-responses", "noise-messages"]


@pytest.fixture(params=MODELS)
def noise(request):
    return request.param


def billed(wire, headers, tokens):
    """The call was billed for the tokens the answer told of. Noise may end before its limit."""
    told = wire.get(f"/v1/usage/{headers['x-request-id']}").json()
    assert 0 < tokens <= LIMIT
    assert told["tokens"]["output"] == tokens, told
    assert Decimal(told["cost_usd"]) >= Decimal(tokens * 2) / 1_000_000, told


def test_chat_whole_and_streamed(client, wire, noise):
    ask = {"model": noise, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": LIMIT}
    raw = client.chat.completions.with_raw_response.create(**ask)
    answer = raw.parse()
    assert answer.choices[0].message.content
    billed(wire, raw.headers, answer.usage.completion_tokens)
    raw = client.chat.completions.with_raw_response.create(
        stream=True, stream_options={"include_usage": True}, **ask
    )
    chunks = list(raw.parse())
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1]
    billed(wire, raw.headers, chunks[-1].usage.completion_tokens)


def test_responses_whole_and_streamed(client, wire, noise):
    ask = {"model": noise, "input": PROMPT, "max_output_tokens": LIMIT}
    raw = client.responses.with_raw_response.create(**ask)
    answer = raw.parse()
    assert answer.output_text
    billed(wire, raw.headers, answer.usage.output_tokens)
    raw = client.responses.with_raw_response.create(stream=True, **ask)
    events = list(raw.parse())
    assert events[0].type == "response.created"
    assert events[-1].type in ("response.completed", "response.incomplete")
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text
    billed(wire, raw.headers, events[-1].response.usage.output_tokens)


def test_a_responses_chain_goes_on_over_noise(client, noise):
    ask = {"model": noise, "input": PROMPT, "max_output_tokens": LIMIT}
    first = client.responses.create(**ask)
    assert client.responses.create(previous_response_id=first.id, **ask).output_text


def test_messages_whole_and_streamed(claude, wire, noise):
    ask = {"model": noise, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": LIMIT}
    raw = claude.messages.with_raw_response.create(**ask)
    message = raw.parse()
    assert message.content[0].text
    billed(wire, raw.headers, message.usage.output_tokens)
    # Event by event: this server leaves out `message_start` when its first bytes are no UTF-8, and
    # what the caller's own format says is handed through as it is.
    raw = claude.messages.with_raw_response.create(stream=True, **ask)
    events = list(raw.parse())
    assert any(event.type == "content_block_delta" for event in events)
    assert [event.type for event in events[-2:]] == ["message_delta", "message_stop"]
    billed(wire, raw.headers, events[-2].usage.output_tokens)


def test_native_whole_and_streamed(make_gemini, wire, noise):
    gemini = make_gemini()
    config = types.GenerateContentConfig(max_output_tokens=LIMIT)
    reply = gemini.models.generate_content(model=noise, contents=PROMPT, config=config)
    assert reply.text
    headers = reply.sdk_http_response.headers
    billed(wire, headers, reply.usage_metadata.candidates_token_count)
    pieces = list(
        gemini.models.generate_content_stream(model=noise, contents=PROMPT, config=config)
    )
    assert "".join(piece.text or "" for piece in pieces)
    assert pieces[-1].candidates[0].finish_reason
    assert 0 < pieces[-1].usage_metadata.candidates_token_count <= LIMIT


def test_what_it_refuses_is_told_in_the_callers_words(client, claude, make_gemini, noise):
    """A picture: it has no eyes. The refusal is the upstream's own."""
    url = "data:image/png;base64,iVBORw0KGgo="
    image = {"type": "image_url", "image_url": {"url": url}}
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(
            model=noise, messages=[{"role": "user", "content": [image]}], max_tokens=LIMIT
        )
    assert caught.value.message and caught.value.status_code in (400, 500, 502, 503)
    block = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
    }
    with pytest.raises(anthropic.APIStatusError) as caught:
        claude.messages.create(
            model=noise, messages=[{"role": "user", "content": [block]}], max_tokens=LIMIT
        )
    assert caught.value.body["error"]["message"]
    gemini = make_gemini()
    part = types.Part.from_bytes(data=b"\x89PNG\r\n\x1a\n", mime_type="image/png")
    with pytest.raises(errors.APIError) as caught:
        gemini.models.generate_content(model=noise, contents=[part])
    assert caught.value.message


def test_a_prompt_too_long_for_it_is_refused_and_costs_nothing(client, wire, noise):
    before = Decimal(wire.get("/v1/key").json()["spent_usd"])
    with pytest.raises(openai.APIStatusError):
        client.chat.completions.create(
            model=noise, messages=[{"role": "user", "content": "long " * 2000}], max_tokens=LIMIT
        )
    assert Decimal(wire.get("/v1/key").json()["spent_usd"]) == before


def test_a_stream_left_early_does_not_hurt_the_next_call(client, noise):
    ask = {"model": noise, "messages": [{"role": "user", "content": PROMPT}]}
    for _ in range(3):
        stream = client.chat.completions.create(stream=True, max_tokens=256, **ask)
        next(iter(stream))
        stream.close()
    assert client.chat.completions.create(max_tokens=LIMIT, **ask).choices
