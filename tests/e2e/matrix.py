"""The table of what works: every official client, against every kind of upstream, by feature.

A test that carries `@feature(...)` is a cell. Python tests tell their cells through conftest.py,
Node tests through node/cells.mjs; both write lists of {format, client, feature, model, passed}.

    matrix.py write FILE CELLS...    makes the table
    matrix.py check FILE CELLS...    fails when a cell of the table is not what these cells say
"""

import json
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MODELS = ["demo-chat", "demo-responses", "demo-messages", "demo-native"]
CLIENTS = ["Python", "Node"]
FORMATS = {
    "Chat completions": ("openai", "openai"),
    "Responses": ("openai", "openai"),
    "Messages": ("anthropic", "@anthropic-ai/sdk"),
    "Native": ("google-genai", "@google/genai"),
}
FEATURES = [
    "whole answer",
    "stream says the same",
    "tokens add up",
    "conversation",
    "stop word",
    "length limit",
    "picture",
    "structured output",
    "tool choice",
    "parallel tool calls",
    "streamed tool call",
    "tool round trip",
    "picture in a tool result",
    "the client's own tool loop",
    "thinking",
    "thinking handed back",
    "web search",
    "chat session",
    "token count",
    "previous response",
    "kept responses",
    "conversations",
    "WebSocket",
    "background",
    "background stream resumed",
    "compaction",
    "errors",
    "stream left early",
]
SIGNS = {None: "–", True: "✓", "lost": "○", False: "✗"}
# A cell of several tests is as good as its worst.
ORDER = [False, "lost", True]
HEADER = """# Compatibility

Each cell is a test with an official client against a running gateway: the client's format in, an
upstream of the named format behind, so that everything off the diagonal is a translation. The
upstreams are the demo models `demo-chat`, `demo-responses`, `demo-messages` and `demo-native`.

This page is written by the tests: `cargo xtask test --only e2e` runs them, puts a new page into
`target/e2e/compatibility.md` and fails when a cell here says something else. To renew this one,
copy that file over it.

✓ works · ○ the upstream's format has no place for it, and the answer says so in `x-portunus-loss` ·
✗ does not work · – the client or its format has no such thing
"""


# The page ends with a section that no test writes; `cargo test -p dialects` compares it.
FOOTER = "\n## Objects at a provider\n"


def footer():
    page = (HERE.parent.parent / "docs/compatibility.md").read_text()
    return FOOTER + page.split(FOOTER)[1]


def feature(name):
    """Marks a test as a cell of the table; its module says `pytestmark = client_of(format)`."""
    assert name in FEATURES, name
    return pytest.mark.feature(name)


def client_of(format):
    assert format in FORMATS, format
    return pytest.mark.client_of(format)


def gather(files):
    """What each cell says."""
    cells = {}
    for file in files:
        for cell in json.loads(Path(file).read_text()):
            place = (cell["format"], cell["client"], cell["feature"], cell["model"])
            known = cell["format"] in FORMATS and cell["client"] in CLIENTS
            assert known and cell["feature"] in FEATURES and cell["model"] in MODELS, place
            cells[place] = min(cells.get(place, True), cell["passed"], key=ORDER.index)
    return cells


def versions():
    python = dict(
        line.split("==") for line in (HERE / "requirements.txt").read_text().split() if "==" in line
    )
    node = json.loads((HERE / "node/package.json").read_text())["dependencies"]
    return python, node


def write(cells):
    python, node = versions()
    page = HEADER
    for format, (in_python, in_node) in FORMATS.items():
        names = [
            f"{in_python} {python[in_python]} (Python)",
            f"{in_node} {node[in_node]} (Node)",
        ]
        page += f"\n## {format}\n\n{' and '.join(names)}.\n\n"
        columns = [(client, model) for client in CLIENTS for model in MODELS]
        heads = [f"{client} → {model.removeprefix('demo-')}" for client, model in columns]
        page += "| | " + " | ".join(heads) + " |\n|" + "---|" * (len(columns) + 1) + "\n"
        for feature in FEATURES:
            row = [cells.get((format, client, feature, model)) for client, model in columns]
            if any(cell is not None for cell in row):
                signs = [SIGNS[cell] for cell in row]
                page += f"| {feature} | " + " | ".join(signs) + " |\n"
    return page + footer()


def read(page):
    """The cells of a page that `write` made."""
    cells, format, columns = {}, None, []
    for line in page.splitlines():
        if line.startswith("## "):
            format = line[3:]
        elif line.startswith("| "):
            first, *rest = [part.strip() for part in line.strip().strip("|").split("|")]
            if first == "":
                columns = rest
            else:
                cells |= {(format, first, column): sign for column, sign in zip(columns, rest)}
    return cells


def check(committed, cells):
    """What is different, in words."""
    now, then = read(write(cells)), read(committed)
    places = sorted(set(now) | set(then))
    return [
        f"{', '.join(place)}: the page says {then.get(place, 'nothing')}, the tests say "
        f"{now.get(place, 'nothing')}"
        for place in places
        if now.get(place) != then.get(place)
    ]


def main(command, file, *cells):
    gathered = gather(cells)
    if command == "write":
        Path(file).write_text(write(gathered))
        said = list(gathered.values())
        print(f"{len(said)} cells: {said.count(True)} work, {said.count('lost')} cannot and say so, "
              f"{said.count(False)} do not work")
        return 0
    if command == "check":
        different = check(Path(file).read_text(), gathered)
        print("\n".join(different) or "the committed page says the same")
        return 1 if different else 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
