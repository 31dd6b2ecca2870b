"""MCP servers with the official clients: named in requests to every model, and joined at one address."""

import asyncio
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

import own

QUESTION = "What is the weather in Paris?"
ANSWER = "21 degrees and sunny in Paris"
SERVED = ["demo-chat", "demo-responses", "demo-messages", "demo-native"]


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """A real server, and a gateway that may ask it."""
    port = own.free_port()
    program = pathlib.Path(__file__).with_name("mcp_server.py")
    process = subprocess.Popen([sys.executable, program, str(port)])
    server = f"http://127.0.0.1:{port}/mcp"
    try:
        for _ in range(600):
            assert process.poll() is None
            try:
                urllib.request.urlopen(server, timeout=5)
            except urllib.error.HTTPError:
                break
            except OSError:
                time.sleep(0.05)
        config = f'[media]\nallow = ["127.0.0.1"]\n[mcp.servers.wx]\nurl = "{server}"\n'
        with own.gateway(tmp_path_factory.mktemp("mcp"), config) as gateway:
            yield SimpleNamespace(server=server, url=gateway.url, key=gateway.key)
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def client(stage):
    return openai.OpenAI(base_url=f"{stage.url}/v1", api_key=stage.key, max_retries=0)


def mcp_tool(stage, **more):
    return {"type": "mcp", "server_label": "wx", "server_url": stage.server, **more}


@pytest.mark.parametrize("served", SERVED)
def test_responses(stage, client, served):
    asked = {"model": served, "input": QUESTION, "tools": [mcp_tool(stage, require_approval="never")]}
    whole = client.responses.create(**asked)
    assert ANSWER in whole.output_text
    call = next(item for item in whole.output if item.type == "mcp_call")
    assert (call.name, call.server_label, call.error) == ("get_weather", "wx", None)
    with client.responses.stream(**asked) as stream:
        events = [event.type for event in stream]
        streamed = stream.get_final_response()
    assert [item.type for item in streamed.output] == [item.type for item in whole.output]
    assert streamed.output_text == whole.output_text
    assert "response.mcp_list_tools.completed" in events and "response.mcp_call.completed" in events
    again = client.responses.create(
        model=served, previous_response_id=streamed.id, input="Thanks.", tools=asked["tools"]
    )
    assert [item.type for item in again.output][-1] == "message"


def test_approval(stage, client):
    asked = client.responses.create(model="demo-chat", input=QUESTION, tools=[mcp_tool(stage)])
    request = asked.output[-1]
    assert request.type == "mcp_approval_request"
    approval = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
    answered = client.responses.create(
        model="demo-chat", previous_response_id=asked.id, input=[approval], tools=[mcp_tool(stage)]
    )
    assert answered.output[0].type == "mcp_call" and ANSWER in answered.output_text


def test_background(stage, client):
    tools = [mcp_tool(stage, require_approval="never")]
    run = client.responses.create(model="demo-chat", input=QUESTION, tools=tools, background=True)
    for _ in range(200):
        if run.status not in ("queued", "in_progress"):
            break
        time.sleep(0.05)
        run = client.responses.retrieve(run.id)
    assert run.status == "completed" and ANSWER in run.output_text


def test_a_broken_tool_is_read_by_the_model(stage, client):
    tools = [mcp_tool(stage, require_approval="never")]
    answer = client.responses.create(model="demo-chat", input="Show the radar of Paris", tools=tools)
    call = next(item for item in answer.output if item.type == "mcp_call")
    assert call.status == "failed" and call.error.type == "mcp_tool_execution_error"


@pytest.mark.parametrize("served", SERVED)
def test_messages(stage, served):
    client = anthropic.Anthropic(base_url=stage.url, api_key=stage.key, max_retries=0)
    asked = {
        "model": served,
        "max_tokens": 500,
        "betas": ["mcp-client-2025-11-20"],
        "messages": [{"role": "user", "content": QUESTION}],
        "mcp_servers": [{"type": "url", "name": "wx", "url": stage.server}],
        "tools": [{"type": "mcp_toolset", "mcp_server_name": "wx"}],
    }
    whole = client.beta.messages.create(**asked)
    kinds = [block.type for block in whole.content if "thinking" not in block.type]
    assert kinds == ["mcp_tool_use", "mcp_tool_result", "text"] and whole.stop_reason == "end_turn"
    assert ANSWER in whole.content[-1].text
    with client.beta.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    assert [block.type for block in streamed.content] == [block.type for block in whole.content]
    assert streamed.usage.output_tokens == whole.usage.output_tokens
    content = [block.model_dump(exclude_none=True) for block in streamed.content]
    asked["messages"] += [{"role": "assistant", "content": content}, {"role": "user", "content": "Thanks."}]
    assert client.beta.messages.create(**asked).content[-1].type == "text"


@pytest.mark.parametrize("served", SERVED)
def test_native(stage, served):
    client = genai.Client(api_key=stage.key, http_options=types.HttpOptions(base_url=stage.url))
    transport = types.StreamableHttpTransport(url=stage.server)
    server = types.McpServer(name="wx", streamable_http_transport=transport)
    config = types.GenerateContentConfig(tools=[types.Tool(mcp_servers=[server])])
    asked = {"model": served, "contents": QUESTION, "config": config}
    whole = client.models.generate_content(**asked)
    assert ANSWER in whole.text
    pieces = list(client.models.generate_content_stream(**asked))
    assert "".join(piece.text or "" for piece in pieces) == whole.text
    assert pieces[-1].usage_metadata.total_token_count == whole.usage_metadata.total_token_count


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("path, name", [("/mcp", "wx__get_weather"), ("/mcp/wx", "get_weather")])
def test_joined_servers(stage, mode, path, name):
    async def use():
        headers = {"Authorization": f"Bearer {stage.key}"}
        async with httpx2.AsyncClient(headers=headers) as http:
            transport = streamable_http_client(stage.url + path, http_client=http)
            async with Client(transport, mode=mode) as client:
                listed = await client.list_tools()
                called = await client.call_tool(name, {"city": "Paris"})
                return [tool.name for tool in listed.tools], called

    names, called = asyncio.run(use())
    assert name in names and ANSWER in called.content[0].text
