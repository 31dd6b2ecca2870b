"""Chatting with the official client: whole and streamed answers, and what limits them."""

from concurrent.futures import ThreadPoolExecutor

from openai.types.chat import ChatCompletionChunk

from matrix import client_of, feature

pytestmark = client_of("Chat completions")

STORY = [{"role": "user", "content": "Tell me a story about a harbour."}]


@feature("whole answer")
def test_an_answer_has_text_a_reason_to_end_and_counts(client, model):
    answer = client.chat.completions.create(model=model, messages=STORY)
    assert answer.object == "chat.completion"
    assert answer.model == model
    assert answer.id and answer.created > 0
    (choice,) = answer.choices
    assert choice.index == 0
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason == "stop"
    usage = answer.usage
    assert usage.prompt_tokens > 0 and usage.completion_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_the_same_question_gets_the_same_answer(client, model):
    ask = lambda: client.chat.completions.create(model=model, messages=STORY)
    assert ask().choices[0].message.content == ask().choices[0].message.content


def test_the_echo_model_returns_the_last_words_unchanged(client):
    for said in ["plain words", "  spaces, “quotes” and\nlines \\n  ", "naïve 港 🚢", "x" * 5000]:
        answer = client.chat.completions.create(
            model="demo-echo",
            messages=[
                {"role": "system", "content": "Repeat."},
                {"role": "user", "content": "something else"},
                {"role": "assistant", "content": "something else"},
                {"role": "user", "content": said},
            ],
        )
        assert answer.choices[0].message.content == said


@feature("stream says the same")
def test_a_stream_says_the_same_as_the_whole_answer(client, model):
    whole = client.chat.completions.create(model=model, messages=STORY)
    chunks = list(client.chat.completions.create(model=model, messages=STORY, stream=True))
    assert len(chunks) > 2
    assert text_of(chunks) == whole.choices[0].message.content
    for chunk in chunks:
        assert isinstance(chunk, ChatCompletionChunk)
        assert chunk.object == "chat.completion.chunk"
        assert chunk.model == model
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert [reason for reason in reasons if reason] == ["stop"]


def test_a_stream_counts_only_when_asked(client, model):
    chunks = list(client.chat.completions.create(model=model, messages=STORY, stream=True))
    assert all(chunk.usage is None for chunk in chunks)
    assert all(chunk.choices for chunk in chunks)


@feature("tokens add up")
def test_a_stream_that_is_asked_counts_once_at_its_end(client, model):
    whole = client.chat.completions.create(model=model, messages=STORY)
    chunks = list(
        client.chat.completions.create(
            model=model, messages=STORY, stream=True, stream_options={"include_usage": True}
        )
    )
    *others, last = chunks
    assert last.choices == []
    assert all(chunk.usage is None for chunk in others)
    assert last.usage.prompt_tokens == whole.usage.prompt_tokens
    assert last.usage.completion_tokens == whole.usage.completion_tokens
    assert last.usage.total_tokens == whole.usage.total_tokens


def test_a_stream_is_an_event_stream_to_its_last_byte(wire):
    body = {"model": "demo-chat", "messages": STORY, "stream": True}
    answer = wire.post("/v1/chat/completions", body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.body.decode().split("\n\n")
    assert events.pop() == ""
    assert events[-1] == "data: [DONE]"
    assert all(event.startswith(("data: ", ":")) for event in events)


@feature("stop word")
def test_a_stop_word_ends_the_answer_and_is_not_in_it(client, model):
    whole = client.chat.completions.create(model=model, messages=STORY).choices[0].message.content
    word = whole.split()[4]
    for stop in (word, ["never said", word]):
        cut = client.chat.completions.create(model=model, messages=STORY, stop=stop)
        assert cut.choices[0].message.content == whole[: whole.index(word)]
        assert cut.choices[0].finish_reason == "stop"


@feature("length limit")
def test_a_limit_cuts_the_answer_and_says_so(client, model):
    for name, most in (("max_tokens", 20), ("max_completion_tokens", 20), ("max_tokens", 5)):
        limit = {name: most}
        answer = client.chat.completions.create(model=model, messages=STORY, **limit)
        assert answer.choices[0].finish_reason == "length", limit
        assert 0 < answer.usage.completion_tokens <= most, limit
        chunks = list(
            client.chat.completions.create(model=model, messages=STORY, stream=True, **limit)
        )
        assert text_of(chunks) == answer.choices[0].message.content
        assert chunks[-1].choices[0].finish_reason == "length"


def test_several_answers_at_once(client):
    answer = client.chat.completions.create(model="demo-chat", messages=STORY, n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert all(choice.message.content for choice in answer.choices)
    chunks = list(
        client.chat.completions.create(model="demo-chat", messages=STORY, n=3, stream=True)
    )
    for choice in answer.choices:
        assert text_of(chunks, choice.index) == choice.message.content


@feature("conversation")
def test_a_conversation_remembers(client, model):
    messages = [
        {"role": "system", "content": "You are polite."},
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Hello Ada."},
        {"role": "user", "content": "What is my name?"},
    ]
    answer = client.chat.completions.create(model=model, messages=messages)
    assert "Ada" in answer.choices[0].message.content


def test_many_callers_at_once_each_get_their_own_answer(client):
    def ask(number):
        said = f"caller {number}"
        answer = client.chat.completions.create(
            model="demo-echo", messages=[{"role": "user", "content": said}]
        )
        return answer.choices[0].message.content == said

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(64)))


def test_a_stream_the_caller_leaves_does_not_hurt_the_next_call(client):
    for _ in range(5):
        stream = client.chat.completions.create(model="demo-chat", messages=STORY, stream=True)
        next(iter(stream))
        stream.close()
    assert client.chat.completions.create(model="demo-chat", messages=STORY).choices


def text_of(chunks, index=0):
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices if choice.index == index]
    return "".join(delta.content or "" for delta in deltas)
