"""Responses over a WebSocket, with the client's own `responses.connect()`."""

import asyncio
import time

import openai

from ask import ABOUT, IDLE, RESULT, SHAPE, STORY, TOOL, WEATHER
from conftest import KEY, URL
from matrix import client_of, feature

pytestmark = client_of("Responses")

TOOLS = [{"type": "function", "name": TOOL, "description": ABOUT, "parameters": SHAPE, "strict": True}]
NAME = "What is my name?"
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


def ask(connection, **fields):
    """Creates a response and returns its events."""
    connection.response.create(**fields)
    events = []
    for event in connection:
        events.append(event)
        if event.type in ENDS:
            return events


@feature("WebSocket")
def test_a_web_socket_says_the_same_as_a_stream(client, model):
    whole = client.responses.create(model=model, input=STORY)
    with client.responses.connect() as connection:
        events = ask(connection, model=model, input=STORY)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    assert events[-1].response.output_text == whole.output_text


@feature("WebSocket")
def test_a_connection_remembers_what_is_not_stored(client, model):
    with client.responses.connect() as connection:
        first = ask(connection, model=model, input="My name is Ada.", store=False)[-1].response
        more = {"model": model, "store": False}
        second = ask(connection, input=IDLE, previous_response_id=first.id, **more)[-1].response
        third = ask(connection, input=NAME, previous_response_id=second.id, **more)[-1].response
        assert "Ada" in third.output_text
    with client.responses.connect() as connection:
        (error,) = ask(connection, input=NAME, previous_response_id=second.id, **more)
        assert error.error.code == "previous_response_not_found"
        assert error.status == 404
        assert ask(connection, model=model, input=IDLE)[-1].type == "response.completed"


@feature("WebSocket")
def test_a_prepared_response_is_continued(client, model):
    with client.responses.connect() as connection:
        more = {"model": model, "store": False, "instructions": "My name is Ada."}
        created, completed = ask(connection, input=[], generate=False, **more)
        assert (created.type, completed.type) == ("response.created", "response.completed")
        assert completed.response.usage.total_tokens == 0
        said = ask(connection, input=STORY, previous_response_id=completed.response.id, **more)
        assert said[-1].response.output_text


def loop(ask_once, turns):
    """Lets a model call a tool again and again, with one new item each time."""
    item, previous, begun = {"role": "user", "content": WEATHER}, None, time.monotonic()
    for _ in range(turns):
        response = ask_once([item], previous)
        (call,) = [item for item in response.output if item.type == "function_call"]
        output = {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}
        answer = ask_once([output], response.id)
        assert "21" in answer.output_text
        item, previous = {"role": "user", "content": WEATHER}, answer.id
    return time.monotonic() - begun


@feature("WebSocket")
def test_a_tool_is_called_in_turns(client, model):
    with client.responses.connect() as connection:
        def over_socket(items, previous):
            more = {"previous_response_id": previous} if previous else {}
            events = ask(
                connection, model=model, input=items, tools=TOOLS, store=False,
                reasoning={"effort": "medium"}, **more,
            )
            return events[-1].response

        loop(over_socket, 3)


def test_streams_run_beside_each_other():
    async def run():
        client = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
        async with client.responses.connect() as connection:
            for name in ("a", "b"):
                await connection.response.create(model="demo-chat", input=STORY, stream_id=name)
            ended = set()
            async for event in connection:
                assert event.stream_id in ("a", "b")
                if event.type in ENDS:
                    ended.add(event.stream_id)
                if len(ended) == 2:
                    return

    asyncio.run(run())
