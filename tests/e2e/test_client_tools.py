"""Tools that the client runs itself, with the loops of the official clients: every call comes back in the
client's own form and reaches its tool, and the result reaches the model.

The demo model makes the calls that the prompt prescribes, one after another.
"""

import asyncio
import base64
import struct
import subprocess
import zlib
from pathlib import Path

import anthropic
import pytest
from agents import (
    Agent,
    ApplyPatchTool,
    Computer,
    ComputerTool,
    OpenAIResponsesModel,
    Runner,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellResult,
    ShellTool,
    apply_diff,
    set_tracing_disabled,
)
from agents.editor import ApplyPatchResult
from anthropic.lib.tools import BetaBuiltinFunctionTool
from anthropic.lib.tools._beta_builtin_memory_tool import BetaLocalFilesystemMemoryTool
from openai import AsyncOpenAI, OpenAI

from conftest import KEY, TIMEOUT, URL

set_tracing_disabled(True)


class Bash(BetaBuiltinFunctionTool):
    def to_dict(self):
        return {"type": "bash_20250124", "name": "bash"}

    def call(self, input):
        done = subprocess.run(input["command"], shell=True, capture_output=True, text=True)
        return done.stdout


class Editor(BetaBuiltinFunctionTool):
    def __init__(self, folder):
        self.folder = folder

    def to_dict(self):
        return {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}

    def call(self, input):
        path = self.folder / input["path"].lstrip("/")
        if input["command"] == "create":
            path.write_text(input["file_text"])
        elif input["command"] == "str_replace":
            path.write_text(path.read_text().replace(input["old_str"], input["new_str"]))
        return path.read_text()


@pytest.mark.parametrize("stream", [False, True])
def test_the_tool_runner_of_messages_runs_its_own_tools(model, stream, tmp_path):
    client = anthropic.Anthropic(base_url=URL, api_key=KEY, timeout=TIMEOUT)
    lines = [
        """Use the str_replace_based_edit_tool tool with {"command":"create","path":"/a.txt","file_text":"one\\ntwo"}""",
        """Use the str_replace_based_edit_tool tool with {"command":"str_replace","path":"/a.txt","old_str":"two","new_str":"three"}""",
        """Use the memory tool with {"command":"create","path":"/memories/n.txt","file_text":"kept"}""",
        """Use the bash tool with {"command":"cat %s/a.txt"}""" % tmp_path,
    ]
    turns = client.beta.messages.tool_runner(
        model=model,
        max_tokens=500,
        messages=[{"role": "user", "content": "\n".join(["Do this:", *lines])}],
        tools=[Bash(), Editor(tmp_path), BetaLocalFilesystemMemoryTool(str(tmp_path / "notes"))],
        stream=stream,
    )
    messages = [turn.get_final_message() if stream else turn for turn in turns]
    assert [message.stop_reason for message in messages] == ["tool_use"] * 4 + ["end_turn"]
    assert "three" in messages[-1].content[0].text
    assert (tmp_path / "a.txt").read_text() == "one\nthree"
    assert [path.read_text() for path in tmp_path.rglob("n.txt")] == ["kept"]


class PatchEditor:
    def __init__(self, folder):
        self.folder = folder

    def create_file(self, operation):
        text = apply_diff("", operation.diff, mode="create")
        Path(self.folder, operation.path).write_text(text)
        return ApplyPatchResult(output="created")

    def update_file(self, operation):
        path = Path(self.folder, operation.path)
        if not path.exists():
            return ApplyPatchResult(status="failed", output=f"{operation.path} does not exist")
        path.write_text(apply_diff(path.read_text(), operation.diff))
        return ApplyPatchResult(output="updated")

    def delete_file(self, operation):
        Path(self.folder, operation.path).unlink()
        return ApplyPatchResult(output="deleted")


def run_commands(request):
    outputs = []
    for command in request.data.action.commands:
        done = subprocess.run(command, shell=True, capture_output=True, text=True)
        outcome = ShellCallOutcome(type="exit", exit_code=done.returncode)
        outputs.append(ShellCommandOutput(stdout=done.stdout, stderr=done.stderr, outcome=outcome))
    return ShellResult(output=outputs)


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_of_responses_runs_its_own_tools(model, stream, tmp_path):
    lines = [
        """Use the apply_patch tool with {"operation":{"type":"create_file","path":"a.txt","diff":"+one\\n+two"}}""",
        """Use the apply_patch tool with {"operation":{"type":"update_file","path":"a.txt","diff":"@@\\n one\\n-two\\n+three"}}""",
        # The text of a patch, as other agents of that vendor send it, is understood too.
        """Use the apply_patch tool with {"input":"*** Begin Patch\\n*** Add File: b.txt\\n+four\\n*** End Patch"}""",
        # Arguments that do not fit are calls that fail and do no harm.
        """Use the shell tool with {"oops":1}""",
        """Use the apply_patch tool with {"oops":1}""",
        """Use the shell tool with {"commands":["cat %s/a.txt","false"]}""" % tmp_path,
    ]
    prompt = "\n".join(["Do this:", *lines])

    async def run():
        client = AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, timeout=TIMEOUT)
        agent = Agent(
            name="agent",
            model=OpenAIResponsesModel(model, client),
            tools=[ShellTool(executor=run_commands), ApplyPatchTool(editor=PatchEditor(tmp_path))],
        )
        if not stream:
            return await Runner.run(agent, prompt)
        result = Runner.run_streamed(agent, prompt)
        async for _ in result.stream_events():
            pass
        return result

    result = asyncio.run(run())
    assert len(result.raw_responses) == 7
    # The calls of a provider of the same format pass as they are.
    if "responses" not in model:
        assert (tmp_path / "b.txt").read_text().strip() == "four"
    assert "three" in result.final_output
    assert (tmp_path / "a.txt").read_text().strip() == "one\nthree"


def picture(width, height):
    """A grey PNG picture in base64."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * width) * height)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return base64.b64encode(png).decode()


class Screen(Computer):
    """A computer that notes what it is told to do."""

    def __init__(self):
        self.done = []

    def screenshot(self):
        return picture(64, 48)

    def click(self, x, y, button):
        self.done.append(("click", x, y, button))

    def double_click(self, x, y):
        self.done.append(("double_click", x, y))

    def scroll(self, x, y, scroll_x, scroll_y):
        self.done.append(("scroll", x, y, scroll_x, scroll_y))

    def type(self, text):
        self.done.append(("type", text))

    def wait(self):
        self.done.append(("wait",))

    def move(self, x, y):
        self.done.append(("move", x, y))

    def keypress(self, keys):
        self.done.append(("keypress", *keys))

    def drag(self, path):
        self.done.append(("drag", *path))


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_of_responses_operates_its_computer(model, stream):
    lines = [
        """Use the computer tool with {"actions":[{"type":"click","button":"left","x":3,"y":4},{"type":"type","text":"hello"}]}""",
        # The words of another vendor.
        """Use the computer tool with {"action":"key","text":"ctrl+Return"}""",
    ]
    screen = Screen()

    async def run(prompt):
        client = AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, timeout=TIMEOUT)
        agent = Agent(
            name="agent",
            model=OpenAIResponsesModel(model, client),
            tools=[ComputerTool(computer=screen)],
        )
        if not stream:
            return await Runner.run(agent, prompt)
        result = Runner.run_streamed(agent, prompt)
        async for _ in result.stream_events():
            pass
        return result

    for line in lines:
        assert len(asyncio.run(run(line)).raw_responses) == 2
    assert screen.done[:2] == [("click", 3, 4, "left"), ("type", "hello")]
    # A lane of the caller's own format gets its own words, and there is nothing to translate.
    if "responses" not in model:
        assert screen.done[2:] == [("keypress", "CTRL", "ENTER")]


def test_a_stream_has_the_commands_of_a_shell_call(model):
    client = OpenAI(base_url=f"{URL}/v1", api_key=KEY, timeout=TIMEOUT)
    events = client.responses.create(
        model=model,
        input="""Use the shell tool with {"commands":["ls","pwd"]}""",
        tools=[{"type": "shell", "environment": {"type": "local"}}],
        stream=True,
    )
    events = list(events)
    done = [event for event in events if event.type == "response.shell_call_command.done"]
    items = [event.item for event in events if event.type == "response.output_item.done"]
    calls = [item for item in items if item.type == "shell_call"]
    assert [command for call in calls for command in call.action.commands] == ["ls", "pwd"]
    if done:
        assert [(event.command_index, event.command) for event in done] == [(0, "ls"), (1, "pwd")]
        assert type(done[0]).__name__ == "ResponseShellCallCommandDoneEvent"
    # The events of a provider of the same format pass as they are.
    assert done or "responses" in model
