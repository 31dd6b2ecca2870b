"""The real coding agents, each in an empty home, with every kind of upstream: one run that answers,
one that uses the agent's shell. `cargo xtask test --only agents` installs and runs them.

The demo model calls a tool when it is plainly asked to; the command it runs is always `ls`. What an
agent puts before the prompt is read with it by so small a model, so that the words of an answer are
only compared where the agent puts nothing before it.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

URL = os.environ["GATEWAY_URL"]
KEY = os.environ["GATEWAY_KEY"]
BIN = Path(os.environ["AGENTS_BIN"])
NODE = os.environ["NODE_BIN"]
CAPITAL = "What is the capital of France?"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def run(tmp_path):
    """Runs an agent with nothing but its own settings; the gateway is all it can reach."""

    def go(*command, **settings):
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        (work / "harbour.txt").touch()
        env = {
            "HOME": str(tmp_path),
            "PATH": f"{NODE}:{os.environ['PATH']}",
            "HTTPS_PROXY": NOWHERE,
            "https_proxy": NOWHERE,
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            # Some agents refuse to act without asking when root starts them outside a container.
            "IS_SANDBOX": "1",
        }
        done = subprocess.run(
            [BIN / command[0], *command[1:]],
            cwd=work, env=env | settings, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return go


@pytest.fixture
def claude_code(run, model):
    settings = {
        "ANTHROPIC_BASE_URL": URL,
        "ANTHROPIC_AUTH_TOKEN": KEY,
        "ANTHROPIC_MODEL": model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    return lambda *words: run("claude", "-p", *words, **settings)


def test_claude_code_answers(claude_code):
    assert claude_code(CAPITAL, "--tools", "").strip() == "The capital of France is Paris."


def test_claude_code_runs_a_command(claude_code):
    told = claude_code("Use the Bash tool to run: echo harbour", "--allowedTools", "Bash")
    assert told.startswith("According to Bash: harbour.txt.")


@pytest.fixture(params=[False, True], ids=["http", "websocket"])
def codex(run, tmp_path, model, request):
    (tmp_path / "config.toml").write_text(
        f"""
model = "{model}"
model_provider = "portunus"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
web_search = "disabled"

[model_providers.portunus]
name = "Portunus"
base_url = "{URL}/v1"
env_key = "PORTUNUS_KEY"
wire_api = "responses"
supports_websockets = {str(request.param).lower()}

[analytics]
enabled = false
"""
    )
    settings = {"CODEX_HOME": str(tmp_path), "PORTUNUS_KEY": KEY}
    return lambda *words: run("codex", "exec", "--skip-git-repo-check", *words, **settings)


def test_codex_answers(codex):
    assert codex(CAPITAL).strip()


def test_codex_runs_a_command(codex):
    told = codex("Use exec_command to run: echo harbour")
    assert told.startswith("According to exec_command:")
    assert "harbour.txt" in told


@pytest.fixture
def gemini_cli(run, tmp_path, model):
    (tmp_path / ".gemini").mkdir()
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True},
    }
    (tmp_path / ".gemini/settings.json").write_text(json.dumps(settings))
    words = ["gemini", "-m", model, "--skip-trust", "--approval-mode", "yolo", "-p"]
    env = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": URL}
    return lambda *more: run(*words, *more, **env)


def test_gemini_cli_answers(gemini_cli):
    assert gemini_cli(CAPITAL).strip()


def test_gemini_cli_runs_a_command(gemini_cli):
    told = gemini_cli("Use run_shell_command to run: echo harbour")
    assert told.startswith("According to run_shell_command:")
    assert "harbour.txt" in told
