"""What the responses format remembers: chains, kept answers, background runs, compaction."""

import time

import openai
import pytest

from ask import ABOUT, IDLE, LONG_STORY, RESULT, SHAPE, STORY, TOOL, WEATHER
from matrix import client_of, feature

pytestmark = client_of("Responses")

TOOLS = [{"type": "function", "name": TOOL, "description": ABOUT, "parameters": SHAPE, "strict": True}]
NAME = "What is my name?"


@feature("previous response")
def test_a_chain_remembers_what_was_said_three_answers_ago(client, model):
    first = client.responses.create(model=model, input="My name is Ada.")
    second = client.responses.create(model=model, input=IDLE, previous_response_id=first.id)
    with client.responses.stream(
        model=model, input=IDLE, previous_response_id=second.id
    ) as stream:
        third = stream.get_final_response()
    fourth = client.responses.create(model=model, input=NAME, previous_response_id=third.id)
    assert fourth.previous_response_id == third.id
    assert "Ada" in fourth.output_text
    branch = client.responses.create(model=model, input=NAME, previous_response_id=first.id)
    assert "Ada" in branch.output_text


@feature("previous response")
def test_the_result_of_a_tool_needs_only_the_chain(client, model):
    more = {"model": model, "tools": TOOLS, "reasoning": {"effort": "medium"}}
    first = client.responses.create(input=WEATHER, **more)
    (call,) = [item for item in first.output if item.type == "function_call"]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}
    second = client.responses.create(input=[result], previous_response_id=first.id, **more)
    assert "21" in second.output_text


def test_a_chain_may_change_its_model(client):
    answer = None
    for model in ("demo-chat", "demo-native", "demo-messages", "demo-responses"):
        said = NAME if answer else "My name is Ada."
        previous = answer.id if answer else None
        answer = client.responses.create(model=model, input=said, previous_response_id=previous)
        assert not previous or "Ada" in answer.output_text


@feature("kept responses")
def test_an_answer_is_kept_until_it_is_deleted(client, model):
    said = [
        {"role": "developer", "content": "You are polite."},
        {"role": "user", "content": STORY},
    ]
    made = client.responses.create(model=model, input=said)
    assert client.responses.retrieve(made.id) == made
    items = list(client.responses.input_items.list(made.id, order="asc", limit=1))
    assert [item.role for item in items] == ["developer", "user"]
    assert items[1].content[0].text == STORY
    latest = client.responses.input_items.list(made.id)
    assert [item.role for item in latest.data] == ["user", "developer"]
    client.responses.delete(made.id)
    for gone in (
        lambda: client.responses.retrieve(made.id),
        lambda: client.responses.delete(made.id),
        lambda: client.responses.input_items.list(made.id),
    ):
        with pytest.raises(openai.NotFoundError):
            gone()
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model=model, input=IDLE, previous_response_id=made.id)


@feature("kept responses")
def test_an_answer_that_is_not_to_be_kept_is_not(client, model):
    made = client.responses.create(model=model, input=STORY, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def finished(client, id):
    """The response once it is no longer under way; a run of the demo model takes moments."""
    limit = time.monotonic() + 20
    while True:
        response = client.responses.retrieve(id)
        if response.status not in ("queued", "in_progress"):
            return response
        assert time.monotonic() < limit, response.status
        time.sleep(0.02)


@feature("background")
def test_a_background_run_is_polled_to_its_end(client, model):
    made = client.responses.create(model=model, input=STORY, background=True)
    assert made.status in ("queued", "in_progress") and made.background
    response = finished(client, made.id)
    assert response.status == "completed"
    assert response.output_text == client.responses.create(model=model, input=STORY).output_text
    assert response.usage.total_tokens > 0


@feature("background")
def test_a_background_run_that_is_cancelled_ends(client, model):
    made = client.responses.create(model=model, input=LONG_STORY, background=True)
    cancelled = client.responses.cancel(made.id)
    # The run may have ended before the cancellation came.
    assert cancelled.status in ("cancelled", "completed")
    assert finished(client, made.id).status == cancelled.status
    assert client.responses.cancel(made.id).status == cancelled.status


@feature("background stream resumed")
def test_a_background_stream_goes_on_where_it_was_left(client, model):
    stream = client.responses.create(model=model, input=STORY, background=True, stream=True)
    seen = []
    for event in stream:
        seen.append(event)
        if event.type == "response.output_text.delta":
            break
    stream.close()
    at = seen[-1].sequence_number
    rest = list(client.responses.retrieve(seen[0].response.id, stream=True, starting_after=at))
    events = seen + rest
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text


@feature("compaction")
def test_a_compacted_conversation_can_be_gone_on_with(client, model):
    said = [
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Hello Ada."},
        {"role": "user", "content": "I live in Oslo."},
        {"role": "assistant", "content": "A fine city."},
    ]
    compacted = client.responses.compact(model=model, input=said)
    assert compacted.object == "response.compaction"
    assert compacted.output and compacted.usage.total_tokens > 0
    items = [item.to_dict(exclude_none=True) for item in compacted.output]
    again = client.responses.create(model=model, input=[*items, {"role": "user", "content": NAME}])
    assert again.status == "completed" and again.output_text
