"""Conversations as the client has them, for every model."""

import openai
import pytest

from ask import IDLE, STORY
from matrix import client_of, feature

pytestmark = client_of("Responses")

NAME = "What is my name?"


@feature("conversations")
def test_a_conversation_remembers_and_grows(client, model):
    first = [{"type": "message", "role": "user", "content": "My name is Ada."}]
    talk = client.conversations.create(items=first, metadata={"topic": "names"})
    whole = client.responses.create(model=model, input=NAME, conversation=talk.id)
    assert whole.conversation.id == talk.id
    assert "Ada" in whole.output_text
    with client.responses.stream(model=model, input=IDLE, conversation=talk.id) as stream:
        stream.get_final_response()
    with client.responses.connect() as connection:
        connection.response.create(model=model, input=NAME, conversation=talk.id, store=False)
        for event in connection:
            if event.type == "response.completed":
                assert "Ada" in event.response.output_text
                break
    items = list(client.conversations.items.list(talk.id, order="asc", limit=2))
    roles = [item.role for item in items if item.type == "message"]
    assert roles == ["user", "user", "assistant", "user", "assistant", "user", "assistant"]
    newest = next(iter(client.conversations.items.list(talk.id, limit=1)))
    assert newest.id == items[-1].id


def test_a_conversation_and_its_items_are_changed_and_deleted(client):
    talk = client.conversations.create()
    assert (talk.object, talk.metadata) == ("conversation", {})
    assert client.conversations.retrieve(talk.id) == talk
    changed = client.conversations.update(talk.id, metadata={"topic": "harbour"})
    assert changed.metadata == {"topic": "harbour"}
    said = [{"role": "user", "content": STORY}, {"role": "assistant", "content": "Once."}]
    added = client.conversations.items.create(talk.id, items=said)
    assert [item.role for item in added.data] == ["user", "assistant"]
    one = client.conversations.items.retrieve(added.first_id, conversation_id=talk.id)
    assert (one.content[0].text, one.status) == (STORY, "completed")
    left = client.conversations.items.delete(added.first_id, conversation_id=talk.id)
    assert left.id == talk.id
    assert [item.id for item in client.conversations.items.list(talk.id)] == [added.last_id]
    gone = client.conversations.delete(talk.id)
    assert (gone.deleted, gone.object) == (True, "conversation.deleted")
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(talk.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="demo-chat", input=STORY, conversation=talk.id)
