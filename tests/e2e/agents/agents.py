"""The coding agents: settings, command lines and records of each, in an empty home.

The gateway is all an agent can reach. Each class has its own way to say the same things: ask, go on
with the last conversation, compact it.
"""

import json
import os
import re
import subprocess
from pathlib import Path

from sockets_only import sockets_only

NOWHERE = "http://127.0.0.1:9"
# Steps for the demo model: it makes these calls with these arguments (docs/simulate.md).
STEP = "Use the {} tool with {}."


class Agent:
    """An agent with a home and a working folder of its own."""

    # Name in the table (table.py).
    name = None
    # Words that make a conversation long.
    filler = " The tide comes and goes." * 2000
    # Journeys that the agent does not have.
    not_offered = ()

    def __init__(self, home, url, key, model):
        self.home, self.url, self.key, self.model = home, url, key, model
        self.work = home / "work"
        self.work.mkdir()
        # Further words of the command line.
        self.more = []
        self.prepare()

    def prepare(self):
        """Writes the settings."""

    def env(self):
        return {}

    def run(self, program, *words, text=""):
        env = {
            "HOME": str(self.home),
            "PATH": f"{os.environ['NODE_BIN']}:{os.environ['PATH']}",
            "HTTPS_PROXY": NOWHERE,
            "https_proxy": NOWHERE,
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            # Some agents refuse to act without asking when root starts them outside a container.
            "IS_SANDBOX": "1",
            "TERM": "dumb",
        }
        done = subprocess.run(
            [program, *words],
            cwd=self.work, env=env | self.env(), input=text, capture_output=True,
            text=True, timeout=180,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def edit_and_shell(self, file, text, command):
        """Writes a file and runs a command, each with a tool of the agent."""
        steps = self.steps(file, text, command)
        return self.ask(" ".join(STEP.format(tool, json.dumps(given)) for tool, given in steps))

    def compact(self):
        """Makes the agent compact its conversation in this or in the next turn."""
        raise NotImplementedError

    def keeps(self, text):
        """Whether the agent's own records of its conversations contain a text."""
        files = (file for file in self.home.rglob("*") if file.is_file())
        return any(text.encode() in file.read_bytes() for file in files)


def npm(program):
    return Path(os.environ["AGENTS_BIN"]) / program


class ClaudeCode(Agent):
    name = "Claude Code"

    def env(self):
        return {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_AUTH_TOKEN": self.key,
            "ANTHROPIC_MODEL": self.model,
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": self.model,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def ask(self, prompt, go_on=False):
        more = ["--continue"] if go_on else []
        return self.run(npm("claude"), "-p", prompt, "--allowedTools", "Bash,Write", *more)

    def steps(self, file, text, command):
        return (
            ("Write", {"file_path": str(self.work / file), "content": text}),
            ("Bash", {"command": command, "description": "Shows the file"}),
        )

    def compact(self):
        self.ask("/compact", go_on=True)


class Codex(Agent):
    name = "Codex"
    # Its compaction keeps the words of the user.
    filler = ""
    web_sockets = "false"

    def prepare(self):
        (self.home / "config.toml").write_text(
            f"""
model = "{self.model}"
model_provider = "portunus"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[model_providers.portunus]
name = "Portunus"
base_url = "{self.url}/v1"
env_key = "PORTUNUS_KEY"
wire_api = "responses"
supports_websockets = {self.web_sockets}

[analytics]
enabled = false
"""
        )

    def env(self):
        return {"CODEX_HOME": str(self.home), "PORTUNUS_KEY": self.key}

    def ask(self, prompt, go_on=False):
        resume = ["resume", "--last"] if go_on else []
        words = ["--skip-git-repo-check", *self.more, *resume]
        return self.run(npm("codex"), "exec", *words, prompt)

    def steps(self, file, text, command):
        return (
            ("exec_command", {"cmd": f"printf '%s' '{text}' > {file}"}),
            ("exec_command", {"cmd": command}),
        )

    def compact(self):
        # Less than the conversation has, more than it has without the numbers: a limit below the
        # agent's own instructions would make it compact without end.
        used = re.findall(r'"last_token_usage":{[^}]*"total_tokens":(\d+)', self.session())
        self.more = ["-c", f"model_auto_compact_token_limit={int(used[-1]) - 1000}"]

    def session(self):
        return "".join(file.read_text() for file in (self.home / "sessions").rglob("*.jsonl"))


class CodexOverWebSocket(Codex):
    name = "Codex over WebSocket"
    web_sockets = "true"

    def prepare(self):
        self.url = sockets_only(self.url)
        super().prepare()


class GeminiCli(Agent):
    name = "Gemini CLI"

    def prepare(self):
        self.settings({})

    def settings(self, model):
        (self.home / ".gemini").mkdir(exist_ok=True)
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"disableAutoUpdate": True},
            "model": model,
            # Compaction has a model of the vendor by default.
            "modelConfigs": {
                "customAliases": {
                    "chat-compression-default": {"modelConfig": {"model": self.model}}
                }
            },
        }
        (self.home / ".gemini/settings.json").write_text(json.dumps(settings))

    def env(self):
        return {"GEMINI_API_KEY": self.key, "GOOGLE_GEMINI_BASE_URL": self.url}

    def ask(self, prompt, go_on=False):
        more = ["--resume", "latest"] if go_on else []
        words = ["-m", self.model, "--skip-trust", "--approval-mode", "yolo", *more, "-p", prompt]
        return self.run(npm("gemini"), *words)

    def steps(self, file, text, command):
        return (
            ("write_file", {"file_path": str(self.work / file), "content": text}),
            ("run_shell_command", {"command": command}),
        )

    def compact(self):
        # A share of the million tokens that it assumes.
        self.settings({"compressionThreshold": 0.005})


class OpenCode(Agent):
    name = "opencode"

    def prepare(self):
        self.settings(200_000)

    def settings(self, window):
        model = {"name": self.model, "limit": {"context": window, "output": 4096}}
        settings = {
            "$schema": "https://opencode.ai/config.json",
            "provider": {
                "portunus": {
                    "npm": "@ai-sdk/openai-compatible",
                    "name": "Portunus",
                    "options": {"baseURL": f"{self.url}/v1", "apiKey": "{env:PORTUNUS_KEY}"},
                    "models": {self.model: model},
                }
            },
            "model": f"portunus/{self.model}",
            "small_model": f"portunus/{self.model}",
            "autoupdate": False,
            "share": "disabled",
            "permission": {"bash": "allow", "edit": "allow"},
        }
        folder = self.home / ".config/opencode"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "opencode.json").write_text(json.dumps(settings))

    def env(self):
        return {"PORTUNUS_KEY": self.key, "OPENCODE_DISABLE_MODELS_FETCH": "1"}

    def ask(self, prompt, go_on=False):
        more = ["--continue"] if go_on else []
        # An argument with blanks would be quoted.
        return self.run(npm("opencode"), "run", *more, text=prompt)

    def steps(self, file, text, command):
        return (
            ("write", {"filePath": str(self.work / file), "content": text}),
            ("bash", {"command": command, "description": "Shows the file"}),
        )

    def compact(self):
        # More than the instructions of the agent, less than they and the conversation. The turn that
        # compacts goes on with words of opencode, so that a question of its own would be lost.
        self.settings(24_000)
        self.ask("Do not use any tools. Say aye.", go_on=True)
        self.settings(200_000)


class QwenCode(Agent):
    name = "Qwen Code"

    def prepare(self):
        # On its pseudo-terminal the output of a short command can be lost when the machine is busy.
        folder = self.home / ".qwen"
        folder.mkdir()
        settings = {"tools": {"shell": {"enableInteractiveShell": False}}}
        (folder / "settings.json").write_text(json.dumps(settings))

    def env(self):
        return {
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": self.key,
            "OPENAI_MODEL": self.model,
        }

    def ask(self, prompt, go_on=False):
        more = ["--continue"] if go_on else []
        words = ["--auth-type", "openai", "--approval-mode", "yolo", *more, "-p", prompt]
        return self.run(npm("qwen"), *words)

    def steps(self, file, text, command):
        return (
            ("write_file", {"file_path": str(self.work / file), "content": text}),
            ("run_shell_command", {"command": command, "is_background": False}),
        )

    def compact(self):
        self.ask("/compress", go_on=True)


class Aider(Agent):
    name = "aider"

    def env(self):
        return {"OPENAI_API_BASE": f"{self.url}/v1", "OPENAI_API_KEY": self.key}

    def ask(self, prompt, go_on=False):
        words = [
            "--model", f"openai/{self.model}", "--edit-format", "whole", "--yes-always", "--no-git",
            "--no-analytics", "--no-check-update", "--no-show-model-warnings", "--no-pretty",
            "--no-show-release-notes", "--no-gitignore", "--no-suggest-shell-commands",
        ]
        if go_on:
            words.append("--restore-chat-history")
        return self.run(os.environ["AIDER_BIN"], *words, *self.more, "--message", prompt)

    def edit_and_shell(self, file, text, command):
        """It has no tools: edits are blocks of text, and a failed test goes back to the model."""
        fail_once = f"test -e tested || {{ touch tested; {command}; exit 1; }}"
        self.more = ["--test-cmd", fail_once, "--auto-test"]
        told = self.ask(f'Say exactly: """\n{file}\n```\n{text}\n```\n"""')
        self.more = []
        return told

    def compact(self):
        self.more = ["--max-chat-history-tokens", "1000", "--llm-history-file", "llm.history"]


FUNCTIONS = """
import pathlib, subprocess

def write_file(path: str, content: str) -> str:
    "Writes a file"
    pathlib.Path(path).write_text(content)
    return "written"

def shell(command: str) -> str:
    "Runs a command"
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout
"""


class Llm(Agent):
    name = "llm"
    # It always sends the whole conversation.
    not_offered = ("compaction",)

    def prepare(self):
        folder = self.home / "llm"
        folder.mkdir()
        (folder / "extra-openai-models.yaml").write_text(
            f"""
- model_id: {self.model}
  model_name: {self.model}
  api_base: {self.url}/v1
  api_key_name: portunus
  supports_tools: true
"""
        )
        (folder / "keys.json").write_text(json.dumps({"portunus": self.key}))

    def env(self):
        return {"LLM_USER_PATH": str(self.home / "llm")}

    def ask(self, prompt, go_on=False):
        words = ["--continue"] if go_on else ["-m", self.model]
        return self.run(os.environ["LLM_BIN"], "prompt", *words, "--functions", FUNCTIONS, prompt)

    def steps(self, file, text, command):
        return (
            ("write_file", {"path": file, "content": text}), ("shell", {"command": command})
        )


AGENTS = [ClaudeCode, Codex, CodexOverWebSocket, GeminiCli, OpenCode, QwenCode, Aider, Llm]
