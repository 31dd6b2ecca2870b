"""The table of agents: each agent against every kind of upstream, by journey.

    table.py write FILE CELLS    makes the page
    table.py check FILE CELLS    fails when the page says something else
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
MODELS = ["demo-chat", "demo-responses", "demo-messages", "demo-native"]
JOURNEYS = ["answer", "edit and shell", "compaction", "resume after a restart"]
# Package of each agent, and the format that it speaks.
AGENTS = {
    "Claude Code": ("@anthropic-ai/claude-code", "messages", "claude-code.md"),
    "Codex": ("@openai/codex", "responses", "codex.md"),
    "Codex over WebSocket": ("@openai/codex", "responses", "codex.md"),
    "Gemini CLI": ("@google/gemini-cli", "native", "gemini-cli.md"),
    "opencode": ("opencode-ai", "chat", "opencode.md"),
    "Qwen Code": ("@qwen-code/qwen-code", "chat", "qwen-code.md"),
    "aider": ("aider-chat", "chat", "aider.md"),
    "llm": ("llm", "chat", "llm.md"),
}
HEADER = """# Coding agents

Each cell is a run of the real program in an empty home, with nothing but the gateway to reach and
an upstream of the named format behind it. The upstreams are the demo models `demo-chat`,
`demo-responses`, `demo-messages` and `demo-native`.

- **answer**: one prompt, one answer.
- **edit and shell**: the agent writes a file and runs a command, each by a call of the model, and the
  model tells the output of the command. aider has no tools: the model writes the file as a block of
  text, and the output of a failed test command goes back to it.
- **compaction**: a long conversation is replaced by a summary that the model writes. The next answer
  needs a fact from before it. Codex keeps the words of the user beside its summary.
- **resume after a restart**: the gateway is killed with SIGKILL and started again between two turns
  of a session with tool calls. The next answer needs a fact from before it.

This page is written by the tests: `cargo xtask test --only agents` runs them, puts a new page into
`target/agents/matrix.md` and fails when this one says something else. To renew this one, copy that
file over it.
"""


def versions():
    found = dict(json.loads((HERE / "package.json").read_text())["dependencies"])
    for file in ["aider.txt", "llm.txt"]:
        lines = (HERE / file).read_text().splitlines()
        found |= dict(line.split("==") for line in lines if "==" in line)
    return found


def write(cells):
    found = versions()
    results = {(cell["agent"], cell["journey"], cell["model"]): cell["result"] for cell in cells}
    page = HEADER
    for journey in JOURNEYS:
        heads = [model.removeprefix("demo-") for model in MODELS]
        page += f"\n## {journey.capitalize()}\n\n| agent | its format | " + " | ".join(heads) + " |\n"
        page += "|" + "---|" * (len(MODELS) + 2) + "\n"
        for agent, (package, format, link) in AGENTS.items():
            row = [results.get((agent, journey, model), "not run") for model in MODELS]
            name = f"[{agent}]({link}) {found[package]}"
            page += f"| {name} | {format} | " + " | ".join(row) + " |\n"
    return page


def main(command, file, cells):
    cells = json.loads(Path(cells).read_text())
    page = write(cells)
    if command == "write":
        Path(file).write_text(page)
        said = [cell["result"] for cell in cells]
        print(f"{len(said)} cells: {said.count('pass')} pass, {said.count('fail')} fail, "
              f"{said.count('not offered')} not offered")
        return 0
    if command == "check":
        path = Path(file)
        old = path.read_text().splitlines() if path.exists() else []
        different = [line for line in page.splitlines() if line not in old]
        print("\n".join(different) or "the committed page says the same")
        return 1 if page.splitlines() != old else 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
