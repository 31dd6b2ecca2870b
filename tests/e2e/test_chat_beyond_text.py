"""Pictures, thinking, search and the client's own helpers in the chat format."""

import json

import openai
import pytest

from ask import (
    ABOUT, IDLE, LONG_STORY, NEWS, PARIS, PICTURE_64, RESULT, SEEN, SHAPE, STORY, TOOL, WEATHER,
)
from matrix import client_of, feature

pytestmark = client_of("Chat completions")

TOOLS = [
    {
        "type": "function",
        "function": {"name": TOOL, "description": ABOUT, "parameters": SHAPE, "strict": True},
    }
]


def user(content):
    return {"role": "user", "content": content}


def ask(client, model, said, **more):
    messages = [user(said)] if isinstance(said, str) else said
    return client.chat.completions.create(model=model, messages=messages, **more)


@feature("picture")
def test_a_picture_is_seen(client, model):
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE_64}"}}
    answer = ask(client, model, [user([image, {"type": "text", "text": "What is this?"}])])
    assert SEEN in answer.choices[0].message.content


@feature("tokens add up")
def test_thinking_is_a_part_of_what_was_written(client, model):
    usage = ask(client, model, STORY, reasoning_effort="high").usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 < usage.completion_tokens_details.reasoning_tokens < usage.completion_tokens


@feature("streamed tool call")
def test_the_helper_for_streams_gathers_calls(client, model):
    with client.chat.completions.stream(
        model=model, messages=[user(WEATHER)], tools=TOOLS
    ) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        message = stream.get_final_completion().choices[0].message
    assert [event.parsed_arguments for event in done] == [PARIS]
    assert message.tool_calls[0].function.parsed_arguments == PARIS


@feature("thinking")
def test_thinking_is_shown_beside_the_answer(client, model):
    """There is no official field for it; this is the one other clients read."""
    whole = ask(client, model, STORY, reasoning_effort="high").choices[0].message
    assert whole.reasoning_content
    assert whole.reasoning_content not in whole.content
    deltas = [
        choice.delta
        for chunk in ask(client, model, STORY, reasoning_effort="high", stream=True)
        for choice in chunk.choices
    ]
    thoughts = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    assert thoughts == whole.reasoning_content
    assert "".join(delta.content or "" for delta in deltas) == whole.content


@feature("thinking handed back")
def test_thinking_survives_a_client_that_hands_back_the_call_alone(client, model):
    more = {"tools": TOOLS, "reasoning_effort": "medium"}
    for stream in (False, True):
        if stream:
            with client.chat.completions.stream(
                model=model, messages=[user(WEATHER)], **more
            ) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = ask(client, model, WEATHER, **more).choices[0].message
        (call,) = message.tool_calls
        bare = {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": call.function.arguments},
                }
            ],
        }
        everything = message.to_dict(exclude_none=True)
        everything.pop("parsed", None)
        result = {"role": "tool", "tool_call_id": call.id, "content": RESULT}
        for turn in (everything, bare):
            answer = ask(client, model, [user(WEATHER), turn, result], **more)
            assert "21" in answer.choices[0].message.content


@feature("web search")
def test_a_search_gives_sources(client, model):
    answer = ask(client, model, NEWS, web_search_options={})
    cited = [note.url_citation.url for note in answer.choices[0].message.annotations or []]
    assert cited and all(url.startswith("https://") for url in cited)


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
    assert ask(client, model, IDLE).choices[0].message.content


@feature("whole answer")
def test_an_answer_has_every_field_the_client_knows_and_no_wrong_one(url, key, model):
    strict = openai.OpenAI(
        base_url=f"{url}/v1", api_key=key, max_retries=0, _strict_response_validation=True
    )
    for more in ({}, {"tools": TOOLS, "tool_choice": "required"}, {"logprobs": False}):
        answer = strict.chat.completions.create(model=model, messages=[user(IDLE)], **more)
        assert json.loads(answer.to_json())["choices"]
