"""Journeys of the real coding agents, each with every kind of upstream.

`cargo xtask test --only agents` installs the agents and runs this. The demo models follow a script
in the prompt (docs/simulate.md), so that the calls and the words of an answer are known. Results are
the cells of docs/clients/matrix.md (see table.py).
"""

import os
import shutil

import pytest

from agents import AGENTS
from own_gateway import RestartedGateway

URL = os.environ["GATEWAY_URL"]
KEY = os.environ["GATEWAY_KEY"]
WORDS = "The harbour is open."
# Begin of the demo models' summaries.
SUMMARY = "The user talked with a demo model."
QUESTION = "Do not use any tools. What is my name?"
NAME = "You told me that your name is Ada."


@pytest.fixture(params=AGENTS, ids=lambda agent: agent.__name__)
def make(request, tmp_path, model):
    """Makes an agent in a home of its own."""
    journey = request.node.get_closest_marker("journey").args[0]
    request.node.user_properties.append(("cell", (request.param.name, journey, model)))
    if journey in request.param.not_offered:
        pytest.skip("not offered")
    yield lambda url=URL, key=KEY: request.param(tmp_path, url, key, model)
    # Some homes are large, and pytest keeps the folders of several runs.
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.mark.journey("answer")
def test_an_answer(make):
    assert WORDS in make().ask(f'Say exactly: """{WORDS}"""')


def edit_and_shell(agent):
    """Lets the agent write a file and read it with a command, whose output the model tells."""
    file = agent.work / "notes.txt"
    told = agent.edit_and_shell("notes.txt", "lantern", "cat notes.txt; echo 6 ships > ships.txt")
    assert file.read_text().strip() == "lantern"
    assert (agent.work / "ships.txt").read_text() == "6 ships\n"
    assert "lantern" in told


@pytest.mark.journey("edit and shell")
def test_a_tool_loop_edits_a_file_and_runs_a_command(make):
    edit_and_shell(make())


@pytest.mark.journey("compaction")
def test_a_long_conversation_is_compacted(make):
    agent = make()
    agent.ask(f"My name is Ada. Do not use any tools. Count to 1000.{agent.filler}")
    agent.compact()
    assert NAME in agent.ask(QUESTION, go_on=True)
    assert agent.keeps(SUMMARY)


@pytest.mark.journey("resume after a restart")
def test_a_session_goes_on_after_the_gateway_restarted(make, tmp_path_factory):
    with RestartedGateway(tmp_path_factory.mktemp("gateway")) as gateway:
        agent = make(gateway.url, gateway.key)
        edit_and_shell(agent)
        agent.ask("My name is Ada. Say exactly: \"\"\"aye\"\"\"", go_on=True)
        gateway.restart()
        assert NAME in agent.ask(QUESTION, go_on=True)
