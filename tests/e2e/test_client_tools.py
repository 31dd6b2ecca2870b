"""Tools that the client runs itself, with the loops of the official clients: every call comes back in the
client's own form and reaches its tool, and the result reaches the model.

The demo model makes the calls that the prompt prescribes, one after another.
"""

import asyncio
import subprocess
from pathlib import Path

import anthropic
import pytest
from agents import (
    Agent,
    ApplyPatchTool,
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
from openai import AsyncOpenAI

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
    assert len(result.raw_responses) == 6
    assert "three" in result.final_output
    assert (tmp_path / "a.txt").read_text().strip() == "one\nthree"
