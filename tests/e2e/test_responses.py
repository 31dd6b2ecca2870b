"""The responses format with its official client, whatever the upstream speaks."""

import json

import openai
import pytest

from ask import (
    ABOUT, Harbour, IDLE, LISBON, LONG_STORY, NEWS, PARIS, PICTURE_64, RESULT, SEEN, SHAPE, STORY,
    TOOL, TWO_CITIES, WEATHER,
)
from matrix import client_of, feature

pytestmark = client_of("Responses")

TOOLS = [{"type": "function", "name": TOOL, "description": ABOUT, "parameters": SHAPE, "strict": True}]
IMAGE = {
    "type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PICTURE_64}",
}
SEALED = {
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "reasoning": {"effort": "medium", "summary": "auto"},
}


def ask(client, model, said, **more):
    return client.responses.create(model=model, input=said, **more)


def user(content):
    return {"role": "user", "content": content}


def calls_of(response):
    return [item for item in response.output if item.type == "function_call"]


def result_of(call, output):
    return {"type": "function_call_output", "call_id": call.call_id, "output": output}


@feature("whole answer")
def test_an_answer_is_complete_and_carries_its_settings(client, model):
    response = ask(client, model, STORY, instructions="Be kind.", metadata={"of": "tests"})
    assert response.object == "response" and response.status == "completed"
    assert response.model == model
    assert response.output_text
    (item,) = response.output
    assert item.type == "message" and item.role == "assistant" and item.status == "completed"
    assert response.instructions == "Be kind." and response.metadata == {"of": "tests"}
    assert response.error is None and response.incomplete_details is None


@feature("stream says the same")
def test_a_stream_says_the_same_as_the_whole_answer(client, model):
    whole = ask(client, model, STORY)
    with client.responses.stream(model=model, input=STORY) as stream:
        events = list(stream)
        final = stream.get_final_response()
    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(pieces) > 2
    assert "".join(pieces) == final.output_text == whole.output_text
    assert final.usage == whole.usage


@feature("stream says the same")
def test_a_stream_is_numbered_and_in_order(client, model):
    events = list(ask(client, model, STORY, stream=True))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    for kind in ("output_item.added", "content_part.added", "content_part.done", "output_item.done"):
        assert kinds.count(f"response.{kind}") == 1


@feature("tokens add up")
def test_counts_add_up_and_the_receipt_says_the_same(client, wire, model):
    raw = client.responses.with_raw_response.create(
        model=model, input=STORY, reasoning={"effort": "medium"}
    )
    usage = raw.parse().usage
    assert usage.input_tokens > 0 and usage.output_tokens > 0
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert 0 < usage.output_tokens_details.reasoning_tokens < usage.output_tokens
    receipt = wire.get(f"/v1/usage/{raw.headers['x-request-id']}").json()
    assert receipt["tokens"]["input"] == usage.input_tokens
    assert receipt["tokens"]["output"] == usage.output_tokens


@feature("conversation")
def test_a_conversation_remembers(client, model):
    said = [
        {"role": "developer", "content": "You are polite."},
        user("My name is Ada."),
        {"role": "assistant", "content": "Hello Ada."},
        user([{"type": "input_text", "text": "What is my name?"}]),
    ]
    assert "Ada" in ask(client, model, said).output_text


@feature("length limit")
def test_a_limit_cuts_the_answer_and_says_so(client, model):
    response = ask(client, model, STORY, max_output_tokens=16)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert 0 < response.usage.output_tokens <= 16
    *_, last = ask(client, model, STORY, max_output_tokens=16, stream=True)
    assert last.type == "response.incomplete"
    assert last.response.output_text == response.output_text


@feature("picture")
def test_a_picture_is_seen(client, model):
    said = [user([IMAGE, {"type": "input_text", "text": "What is this?"}])]
    assert SEEN in ask(client, model, said).output_text


@feature("structured output")
def test_an_answer_fits_the_given_shape(client, model):
    response = client.responses.parse(model=model, input=LISBON, text_format=Harbour)
    assert isinstance(response.output_parsed, Harbour)
    with client.responses.stream(model=model, input=LISBON, text_format=Harbour) as stream:
        streamed = stream.get_final_response()
    assert streamed.output_parsed == response.output_parsed


@feature("tool choice")
def test_the_choice_of_tools_is_obeyed(client, model):
    def names(said, choice):
        response = ask(client, model, said, tools=TOOLS, tool_choice=choice)
        return [call.name for call in calls_of(response)]

    assert names(IDLE, "auto") == []
    assert names(WEATHER, "auto") == [TOOL]
    assert names(IDLE, "required") == [TOOL]
    assert names(IDLE, {"type": "function", "name": TOOL}) == [TOOL]
    assert names(WEATHER, "none") == []


@feature("parallel tool calls")
def test_parallel_calls_keep_their_ids_apart(client, model):
    first = ask(client, model, TWO_CITIES, tools=TOOLS)
    calls = calls_of(first)
    cities = {call.call_id: json.loads(call.arguments)["city"] for call in calls}
    assert sorted(cities.values()) == ["Oslo", "Paris"]
    results = [result_of(call, f"sunny in {cities[call.call_id]}") for call in calls]
    text = ask(client, model, [user(TWO_CITIES), *first.output, *results], tools=TOOLS).output_text
    assert "sunny in Paris" in text and "sunny in Oslo" in text


def test_parallel_calls_can_be_switched_off_or_the_answer_says_why_not(client, lost, model):
    body = {"model": model, "input": TWO_CITIES, "tools": TOOLS, "parallel_tool_calls": False}
    if model == "demo-native":
        return lost("/v1/responses", body, "choice.parallel")
    assert len(calls_of(client.responses.create(**body))) == 1


@feature("streamed tool call")
def test_a_streamed_call_adds_up_to_the_whole_one(client, model):
    with client.responses.stream(model=model, input=WEATHER, tools=TOOLS) as stream:
        arguments = "".join(
            event.delta for event in stream if event.type == "response.function_call_arguments.delta"
        )
        (call,) = calls_of(stream.get_final_response())
    assert call.name == TOOL and call.status == "completed"
    assert json.loads(call.arguments) == json.loads(arguments) == PARIS


@feature("tool round trip")
def test_a_result_is_put_into_words(client, model):
    first = ask(client, model, WEATHER, tools=TOOLS)
    (call,) = calls_of(first)
    said = [user(WEATHER), *first.output, result_of(call, RESULT)]
    second = ask(client, model, said, tools=TOOLS)
    assert "21" in second.output_text and not calls_of(second)


@feature("picture in a tool result")
def test_a_picture_a_tool_gave_is_seen(client, model):
    first = ask(client, model, WEATHER, tools=TOOLS)
    (call,) = calls_of(first)
    output = [{"type": "input_text", "text": "the sky over Paris"}, IMAGE]
    said = [user(WEATHER), *first.output, result_of(call, output)]
    assert SEEN in ask(client, model, said, tools=TOOLS).output_text


@feature("thinking")
def test_a_summary_of_the_thinking_comes_first(client, model):
    reasoning = {"effort": "medium", "summary": "auto"}
    whole = ask(client, model, STORY, reasoning=reasoning)
    kinds = [item.type for item in whole.output]
    # What an upstream signed beside its thinking comes as an item of its own.
    assert kinds[0] == "reasoning" and kinds.count("message") == 1
    summary = "".join(part.text for part in whole.output[0].summary)
    assert summary
    with client.responses.stream(model=model, input=STORY, reasoning=reasoning) as stream:
        streamed = "".join(
            event.delta for event in stream if event.type == "response.reasoning_summary_text.delta"
        )
        final = stream.get_final_response()
    assert streamed == summary
    assert sorted(item.type for item in final.output) == sorted(kinds)
    assert whole.usage.output_tokens_details.reasoning_tokens > 0


@feature("thinking handed back")
def test_sealed_thinking_goes_back_with_the_result_of_a_tool(client, model):
    for streamed in (False, True):
        if streamed:
            with client.responses.stream(
                model=model, input=WEATHER, tools=TOOLS, **SEALED
            ) as stream:
                output = stream.get_final_response().output
        else:
            output = ask(client, model, WEATHER, tools=TOOLS, **SEALED).output
        (call,) = [item for item in output if item.type == "function_call"]
        assert any(item.encrypted_content for item in output if item.type == "reasoning")
        items = [item.to_dict(exclude_none=True) for item in output]
        for item in items:
            item.pop("parsed_arguments", None)
        said = [user(WEATHER), *items, result_of(call, RESULT)]
        second = ask(client, model, said, tools=TOOLS, **SEALED)
        assert "21" in second.output_text
        said += [item.to_dict(exclude_none=True) for item in second.output]
        assert ask(client, model, [*said, user("Thank you.")], tools=TOOLS, **SEALED).output_text


@feature("web search")
def test_a_search_gives_sources(client, model):
    response = ask(client, model, NEWS, tools=[{"type": "web_search"}])
    cited = [
        annotation.url
        for item in response.output
        if item.type == "message"
        for part in item.content
        for annotation in part.annotations
    ]
    assert cited and all(url.startswith("https://") for url in cited)


@feature("token count")
def test_counting_comes_near_what_the_answer_counts(client, model):
    ask_more = {"instructions": "You are polite.", "tools": TOOLS}
    counted = client.responses.input_tokens.count(model=model, input=IDLE, **ask_more)
    exact = ask(client, model, IDLE, **ask_more).usage.input_tokens
    assert exact / 2 < counted.input_tokens < exact * 2


@feature("errors")
def test_errors_are_told_in_the_words_of_the_client(client, model):
    stranger = client.with_options(api_key="sk-not-a-key")
    for stream in (False, True):
        with pytest.raises(openai.AuthenticationError):
            ask(stranger, model, IDLE, stream=stream)
        with pytest.raises(openai.NotFoundError) as caught:
            ask(client, "no-such-model", IDLE, stream=stream)
        assert caught.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, model, IDLE, temperature=9, stream=stream)
        assert caught.value.param == "temperature"


@feature("stream left early")
def test_a_stream_the_caller_leaves_does_not_hurt_the_next_call(client, model):
    for _ in range(3):
        stream = ask(client, model, LONG_STORY, stream=True)
        next(iter(stream))
        stream.close()
    assert ask(client, model, IDLE).output_text
