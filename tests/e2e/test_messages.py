"""The messages format with its official client, whatever the upstream speaks."""

import json

import anthropic
import pytest

from ask import (
    ABOUT, Harbour, IDLE, LISBON, LONG_STORY, NEWS, PARIS, PICTURE_64, RESULT, SEEN, SHAPE, STORY,
    TOOL, TWO_CITIES, WEATHER,
)
from matrix import client_of, feature

pytestmark = client_of("Messages")

TOOLS = [{"name": TOOL, "description": ABOUT, "input_schema": SHAPE}]
THINKING = {"type": "enabled", "budget_tokens": 1024}
IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": PICTURE_64},
}


def user(content):
    return {"role": "user", "content": content}


def ask(claude, model, said, **more):
    messages = [user(said)] if isinstance(said, str) else said
    more.setdefault("max_tokens", 1000)
    return claude.messages.create(model=model, messages=messages, **more)


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def calls_of(message):
    return [block for block in message.content if block.type == "tool_use"]


@feature("whole answer")
def test_an_answer_is_a_message_with_text_and_a_reason_to_end(claude, model):
    message = ask(claude, model, STORY)
    assert message.type == "message" and message.role == "assistant" and message.id
    assert message.model == model
    assert [block.type for block in message.content] == ["text"]
    assert text_of(message)
    assert message.stop_reason == "end_turn" and message.stop_sequence is None


@feature("stream says the same")
def test_a_stream_says_the_same_as_the_whole_answer(claude, model):
    whole = ask(claude, model, STORY)
    with claude.messages.stream(model=model, messages=[user(STORY)], max_tokens=1000) as stream:
        pieces = list(stream.text_stream)
        message = stream.get_final_message()
    assert len(pieces) > 2
    assert "".join(pieces) == text_of(message) == text_of(whole)
    assert message.stop_reason == whole.stop_reason
    assert message.usage.input_tokens == whole.usage.input_tokens
    assert message.usage.output_tokens == whole.usage.output_tokens


@feature("stream says the same")
def test_a_stream_opens_fills_and_closes_each_block_in_turn(claude, model):
    events = ask(claude, model, STORY, stream=True)
    kinds = [event.type for event in events if event.type != "ping"]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}


@feature("tokens add up")
def test_the_receipt_counts_what_the_answer_counts(claude, wire, model):
    raw = claude.messages.with_raw_response.create(
        model=model, messages=[user(STORY)], max_tokens=1000
    )
    usage = raw.parse().usage
    assert usage.input_tokens > 0 and usage.output_tokens > 0
    receipt = wire.get(f"/v1/usage/{raw.headers['request-id']}").json()
    assert receipt["tokens"]["input"] == usage.input_tokens
    assert receipt["tokens"]["output"] == usage.output_tokens


@feature("conversation")
def test_a_conversation_remembers(claude, model):
    turns = [
        user("My name is Ada."),
        {"role": "assistant", "content": "Hello Ada."},
        user([{"type": "text", "text": "What is my name?"}]),
    ]
    assert "Ada" in text_of(ask(claude, model, turns, system="You are polite."))


@feature("stop word")
def test_a_stop_word_ends_the_answer(claude, model):
    whole = text_of(ask(claude, model, STORY))
    word = whole.split()[4]
    cut = ask(claude, model, STORY, stop_sequences=["never said", word])
    assert text_of(cut) == whole[: whole.index(word)]
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", word)
    assert 0 < cut.usage.output_tokens


@feature("length limit")
def test_a_limit_cuts_the_answer_and_says_so(claude, model):
    for most in (20, 5):
        message = ask(claude, model, STORY, max_tokens=most)
        assert message.stop_reason == "max_tokens"
        assert 0 < message.usage.output_tokens <= most


@feature("picture")
def test_a_picture_is_seen(claude, model):
    said = [user([IMAGE, {"type": "text", "text": "What is this?"}])]
    assert SEEN in text_of(ask(claude, model, said))


@feature("structured output")
def test_an_answer_fits_the_given_shape(claude, model):
    message = claude.messages.parse(
        model=model, messages=[user(LISBON)], max_tokens=1000, output_format=Harbour
    )
    assert isinstance(message.parsed_output, Harbour)


@feature("tool choice")
def test_the_choice_of_tools_is_obeyed(claude, model):
    def names(said, choice):
        message = ask(claude, model, said, tools=TOOLS, tool_choice=choice)
        wanted = "tool_use" if calls_of(message) else "end_turn"
        assert message.stop_reason == wanted
        return [call.name for call in calls_of(message)]

    assert names(IDLE, {"type": "auto"}) == []
    assert names(WEATHER, {"type": "auto"}) == [TOOL]
    assert names(IDLE, {"type": "any"}) == [TOOL]
    assert names(IDLE, {"type": "tool", "name": TOOL}) == [TOOL]
    assert names(WEATHER, {"type": "none"}) == []


@feature("parallel tool calls")
def test_parallel_calls_keep_their_ids_apart(claude, model):
    first = ask(claude, model, TWO_CITIES, tools=TOOLS)
    cities = {call.id: call.input["city"] for call in calls_of(first)}
    assert sorted(cities.values()) == ["Oslo", "Paris"]
    results = [
        {"type": "tool_result", "tool_use_id": id, "content": f"sunny in {city}"}
        for id, city in cities.items()
    ]
    turns = [user(TWO_CITIES), {"role": "assistant", "content": first.content}, user(results)]
    text = text_of(ask(claude, model, turns, tools=TOOLS))
    assert "sunny in Paris" in text and "sunny in Oslo" in text


def test_parallel_calls_can_be_switched_off_or_the_answer_says_why_not(claude, lost, model):
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    if model == "demo-native":
        body = {"model": model, "max_tokens": 100, "messages": [user(TWO_CITIES)]}
        body |= {"tools": TOOLS, "tool_choice": choice}
        return lost("/v1/messages", body, "choice.parallel")
    assert len(calls_of(ask(claude, model, TWO_CITIES, tools=TOOLS, tool_choice=choice))) == 1


@feature("streamed tool call")
def test_a_streamed_call_adds_up_to_the_whole_one(claude, model):
    whole = ask(claude, model, WEATHER, tools=TOOLS)
    arguments = ""
    with claude.messages.stream(
        model=model, messages=[user(WEATHER)], max_tokens=1000, tools=TOOLS
    ) as stream:
        for event in stream:
            if event.type == "input_json":
                arguments += event.partial_json
        message = stream.get_final_message()
    (call,) = calls_of(message)
    assert call.name == TOOL and call.input == json.loads(arguments) == PARIS
    assert calls_of(whole)[0].input == PARIS
    assert message.stop_reason == "tool_use"


@feature("tool round trip")
def test_a_result_is_put_into_words(claude, model):
    first = ask(claude, model, WEATHER, tools=TOOLS)
    (call,) = calls_of(first)
    for failed in (False, True):
        result = {
            "type": "tool_result", "tool_use_id": call.id, "content": RESULT, "is_error": failed,
        }
        turns = [user(WEATHER), {"role": "assistant", "content": first.content}, user([result])]
        message = ask(claude, model, turns, tools=TOOLS)
        assert message.stop_reason == "end_turn" and "21" in text_of(message)


@feature("picture in a tool result")
def test_a_picture_a_tool_gave_is_seen(claude, model):
    first = ask(claude, model, WEATHER, tools=TOOLS)
    (call,) = calls_of(first)
    content = [{"type": "text", "text": "the sky over Paris"}, IMAGE]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": content}
    turns = [user(WEATHER), {"role": "assistant", "content": first.content}, user([result])]
    assert SEEN in text_of(ask(claude, model, turns, tools=TOOLS))


@anthropic.beta_tool
def get_weather(city: str, unit: str) -> str:
    """Current weather in a city.

    Args:
        city: The city.
        unit: celsius or fahrenheit.
    """
    return f"21 degrees {unit} in {city}"


@feature("the client's own tool loop")
def test_the_tool_runner_calls_and_goes_on(claude, model):
    for stream in (False, True):
        runner = claude.beta.messages.tool_runner(
            model=model, max_tokens=1000, tools=[get_weather], messages=[user(WEATHER)], stream=stream
        )
        last = runner.until_done()
        assert "21 degrees" in text_of(last), stream
        assert last.stop_reason == "end_turn"


def sealed(content):
    """What an upstream signed beside its thinking comes as a block of its own."""
    signed = [block for block in content if getattr(block, "signature", None)]
    return signed or [block for block in content if block.type == "redacted_thinking"]


@feature("thinking")
def test_thinking_comes_first_and_is_signed(claude, model, wire):
    whole = ask(claude, model, STORY, max_tokens=3000, thinking=THINKING)
    kinds = [block.type for block in whole.content]
    assert (kinds[0], kinds[-1]) == ("thinking", "text")
    assert whole.content[0].thinking
    assert sealed(whole.content)
    with claude.messages.stream(
        model=model, messages=[user(STORY)], max_tokens=3000, thinking=THINKING
    ) as stream:
        streamed = stream.get_final_message()
        receipt = wire.get(f"/v1/usage/{stream.response.headers['x-request-id']}").json()
    said = [block.type for block in streamed.content if block.type != "redacted_thinking"]
    assert said == [kind for kind in kinds if kind != "redacted_thinking"] == ["thinking", "text"]
    assert streamed.content[-1].type == "text"
    assert streamed.content[0].thinking == whole.content[0].thinking
    assert "part.seal" not in receipt["losses"]
    assert text_of(streamed) == text_of(whole)
    # An upstream that signs the end of its text does so when the text is out, and behind it is no
    # place for the seal: it is kept by the gateway, and put back when the text returns.
    dump = {"exclude": {"parsed_output"}, "exclude_none": True}
    said = [block.model_dump(**dump) for block in streamed.content]
    history = [user(STORY), {"role": "assistant", "content": said}, user("Go on.")]
    asked = {"model": model, "max_tokens": 3000, "thinking": THINKING, "messages": history}
    sent = wire.post("/v1/messages", asked, dry_run=True).json()["body"]
    assert sealed(streamed.content) or any(
        "thoughtSignature" in part for turn in sent["contents"] for part in turn["parts"]
    )


@feature("thinking")
def test_adaptive_thinking_with_an_effort_is_taken(claude, model):
    message = ask(
        claude, model, STORY, max_tokens=3000, thinking={"type": "adaptive"},
        output_config={"effort": "high"},
    )
    assert message.content[0].type == "thinking"


@feature("thinking handed back")
def test_thinking_goes_back_with_the_result_of_a_tool(claude, model):
    ask_more = {"tools": TOOLS, "max_tokens": 3000, "thinking": THINKING}
    for streamed in (False, True):
        if streamed:
            with claude.messages.stream(
                model=model, messages=[user(WEATHER)], **ask_more
            ) as stream:
                first = stream.get_final_message()
        else:
            first = ask(claude, model, WEATHER, **ask_more)
        (call,) = calls_of(first)
        assert sealed(first.content)
        result = {"type": "tool_result", "tool_use_id": call.id, "content": RESULT}
        turns = [user(WEATHER), {"role": "assistant", "content": first.content}, user([result])]
        second = ask(claude, model, turns, **ask_more)
        assert "21" in text_of(second)
        turns += [{"role": "assistant", "content": second.content}, user("Thank you.")]
        assert text_of(ask(claude, model, turns, **ask_more))


def test_thinking_with_a_damaged_signature_is_refused_by_its_own_upstream(claude):
    first = ask(claude, "demo-messages", WEATHER, tools=TOOLS, max_tokens=3000, thinking=THINKING)
    content = [block.model_dump(exclude_none=True) for block in first.content]
    content[0]["signature"] = "AAAA" + content[0]["signature"][4:]
    result = {"type": "tool_result", "tool_use_id": content[1]["id"], "content": RESULT}
    turns = [user(WEATHER), {"role": "assistant", "content": content}, user([result])]
    with pytest.raises(anthropic.BadRequestError):
        ask(claude, "demo-messages", turns, tools=TOOLS, max_tokens=3000, thinking=THINKING)


@feature("web search")
def test_a_search_gives_sources(claude, model):
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    message = ask(claude, model, NEWS, tools=tools)
    cited = [
        citation.url
        for block in message.content
        if block.type == "text"
        for citation in block.citations or []
    ]
    assert cited and all(url.startswith("https://") for url in cited)


@feature("token count")
def test_counting_comes_near_what_the_answer_counts(claude, model):
    more = {"system": "You are polite.", "tools": TOOLS}
    counted = claude.messages.count_tokens(model=model, messages=[user(IDLE)], **more)
    exact = ask(claude, model, IDLE, **more).usage.input_tokens
    assert exact / 2 < counted.input_tokens < exact * 2


@feature("errors")
def test_errors_are_told_in_the_words_of_the_client(claude, model):
    stranger = claude.with_options(api_key="sk-not-a-key")
    with pytest.raises(anthropic.AuthenticationError) as caught:
        ask(stranger, model, IDLE)
    assert caught.value.body["error"]["type"] == "authentication_error"
    with pytest.raises(anthropic.NotFoundError) as caught:
        ask(claude, "no-such-model", IDLE)
    assert caught.value.body["error"]["type"] == "not_found_error"
    assert caught.value.request_id
    for stream in (False, True):
        with pytest.raises(anthropic.BadRequestError) as caught:
            ask(claude, model, IDLE, stream=stream, extra_body={"temperature": "hot"})
        assert caught.value.body["error"]["type"] == "invalid_request_error"
        assert "temperature" in caught.value.message


@feature("stream left early")
def test_a_stream_the_caller_leaves_does_not_hurt_the_next_call(claude, wire, model):
    for _ in range(3):
        with claude.messages.stream(
            model=model, messages=[user(LONG_STORY)], max_tokens=4000
        ) as stream:
            next(iter(stream.text_stream))
    assert text_of(ask(claude, model, IDLE))


def test_models_are_listed_in_the_shape_of_the_client(claude):
    listed = {entry.id: entry for entry in claude.models.list(limit=100)}
    assert listed["demo-messages"].type == "model"
    assert claude.models.retrieve("demo-messages").id == "demo-messages"
    with pytest.raises(anthropic.NotFoundError):
        claude.models.retrieve("no-such-model")
