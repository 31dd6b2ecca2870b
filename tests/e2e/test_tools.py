"""Calling functions and answering in a given shape, with the official client's own helpers."""

import json

from ask import Harbour, Mood
from matrix import client_of, feature

pytestmark = client_of("Chat completions")

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather in a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
QUESTION = {"role": "user", "content": "What is the weather in Paris, in celsius?"}


@feature("tool round trip")
def test_a_tool_is_called_and_its_result_is_put_into_words(client, model):
    first = client.chat.completions.create(model=model, messages=[QUESTION], tools=[WEATHER])
    (choice,) = first.choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert call.type == "function" and call.id
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris", "unit": "celsius"}

    result = {"role": "tool", "tool_call_id": call.id, "content": '{"temperature": 21}'}
    second = client.chat.completions.create(
        model=model, messages=[QUESTION, choice.message, result], tools=[WEATHER]
    )
    assert second.choices[0].finish_reason == "stop"
    assert second.choices[0].message.content
    assert not second.choices[0].message.tool_calls


@feature("streamed tool call")
def test_a_streamed_call_adds_up_to_the_whole_one(client, model):
    ask = {"model": model, "messages": [QUESTION], "tools": [WEATHER]}
    whole = client.chat.completions.create(**ask).choices[0]
    name, arguments, reasons, ids = "", "", [], set()
    for chunk in client.chat.completions.create(stream=True, **ask):
        for choice in chunk.choices:
            reasons.append(choice.finish_reason)
            for part in choice.delta.tool_calls or []:
                assert part.index == 0
                ids |= {part.id} if part.id else set()
                name += part.function.name or ""
                arguments += part.function.arguments or ""
    (call,) = whole.message.tool_calls
    assert name == call.function.name
    assert json.loads(arguments) == json.loads(call.function.arguments)
    assert len(ids) == 1
    assert [reason for reason in reasons if reason] == ["tool_calls"]


@feature("tool choice")
def test_the_choice_of_tools_is_obeyed(client, model):
    def calls(messages, choice):
        answer = client.chat.completions.create(
            model=model, messages=messages, tools=[WEATHER], tool_choice=choice
        )
        return answer.choices[0].message.tool_calls or []

    idle = [{"role": "user", "content": "Good morning."}]
    named = {"type": "function", "function": {"name": "get_weather"}}
    assert calls([QUESTION], "none") == []
    assert calls(idle, "auto") == []
    assert [call.function.name for call in calls(idle, "required")] == ["get_weather"]
    assert [call.function.name for call in calls(idle, named)] == ["get_weather"]


@feature("parallel tool calls")
def test_parallel_calls_keep_their_ids_apart(client, model):
    question = {"role": "user", "content": "What is the weather in Paris and in Oslo, in celsius?"}
    first = client.chat.completions.create(model=model, messages=[question], tools=[WEATHER])
    message = first.choices[0].message
    cities = {call.id: json.loads(call.function.arguments)["city"] for call in message.tool_calls}
    assert sorted(cities.values()) == ["Oslo", "Paris"]
    results = [
        {"role": "tool", "tool_call_id": call, "content": f"sunny in {city}"}
        for call, city in cities.items()
    ]
    second = client.chat.completions.create(
        model=model, messages=[question, message, *results], tools=[WEATHER]
    )
    assert second.choices[0].message.content


@feature("structured output")
def test_an_answer_fits_the_given_shape(client, model):
    messages = [{"role": "user", "content": "Describe the harbour of Lisbon."}]
    answer = client.chat.completions.parse(
        model=model, messages=messages, response_format=Harbour
    )
    harbour = answer.choices[0].message.parsed
    assert isinstance(harbour, Harbour)
    assert harbour.city
    assert all(isinstance(ship.mood, Mood) for ship in harbour.ships)


@feature("structured output")
def test_a_streamed_answer_fits_the_given_shape(client, model):
    messages = [{"role": "user", "content": "Describe the harbour of Lisbon."}]
    with client.chat.completions.stream(
        model=model, messages=messages, response_format=Harbour
    ) as stream:
        for _ in stream:
            pass
        answer = stream.get_final_completion()
    assert isinstance(answer.choices[0].message.parsed, Harbour)


def test_json_without_a_shape_is_an_object_or_the_answer_says_why_not(client, lost, model):
    if model == "demo-messages":
        messages = [{"role": "user", "content": "Answer in JSON."}]
        body = {"model": model, "messages": messages, "response_format": {"type": "json_object"}}
        return lost("/v1/chat/completions", body, "format.json")
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Answer in JSON: what is a harbour?"}],
        response_format={"type": "json_object"},
    )
    assert isinstance(json.loads(answer.choices[0].message.content), dict)
