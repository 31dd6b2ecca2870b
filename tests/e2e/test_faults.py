"""A faulty upstream behind the gateway: every official client hears of it, none takes a broken answer
for a short one. The faults are ordered in the prompt; see docs/simulate.md."""

import anthropic
import openai
import pytest
from google.genai import errors

# The demo model says exactly what it is told to.
TEXT = (
    "The harbour is quiet at dawn and gulls wheel over the façade of the old customs house – "
    "naïve tourists, 港口, ships 🚢 and a tide that turns as slowly as ever"
)
UPSTREAMS = ["faulty-chat", "faulty-responses", "faulty-messages", "faulty-native"]
# What each client raises.
RAISED = {
    "chat": openai.APIError,
    "responses": openai.APIError,
    "messages": anthropic.APIError,
    "native": errors.APIError,
}
BREAKS = [
    "reset-after after=1",
    "reset-after after=7",
    "truncate after=7",
    "end-early after=7",
    "bad-json after=7",
    "error-event after=7",
    "giant-frame after=7",
    "endless-line after=7",
]
HARMLESS = [
    "shred size=5",
    "dress how=crlf",
    "dress how=cr",
    "dress how=bom",
    "dress how=multi",
    "dress how=comments",
    "dress how=fields",
    "unknown-event",
    "bad-event",
    "done-twice",
    "after-done",
    "interim",
    "swap",
    "no-usage",
]
REFUSALS = ["reset", "close", "empty", "html", "wrong-shape", "status code=500", "length-lie"]


def prompt(fault):
    return f"[[fault: {fault}]] Say exactly: {TEXT}"


@pytest.fixture(params=list(RAISED))
def caller(request, client, claude, make_gemini):
    """One official client: its name, a whole answer's text, and a stream's text piece by piece."""

    def chat(model, text):
        ask = {"model": model, "messages": [{"role": "user", "content": text}]}
        whole = lambda: client.chat.completions.create(**ask).choices[0].message.content

        def stream():
            for chunk in client.chat.completions.create(stream=True, **ask):
                if chunk.choices:
                    yield chunk.choices[0].delta.content or ""

        return whole, stream

    def responses(model, text):
        ask = {"model": model, "input": text, "store": False}
        whole = lambda: client.responses.create(**ask).output_text

        def stream():
            for event in client.responses.create(stream=True, **ask):
                if event.type == "response.output_text.delta":
                    yield event.delta

        return whole, stream

    def messages(model, text):
        said = [{"role": "user", "content": text}]
        ask = {"model": model, "max_tokens": 500, "messages": said}
        whole = lambda: claude.messages.create(**ask).content[0].text

        def stream():
            with claude.messages.stream(**ask) as pieces:
                yield from pieces.text_stream

        return whole, stream

    def native(model, text):
        gemini = make_gemini()
        ask = {"model": model, "contents": text}
        whole = lambda: gemini.models.generate_content(**ask).text

        def stream():
            for chunk in gemini.models.generate_content_stream(**ask):
                yield chunk.text or ""

        return whole, stream

    known = {"chat": chat, "responses": responses, "messages": messages, "native": native}
    return request.param, known[request.param]


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("fault", BREAKS)
def test_a_stream_that_breaks_is_an_error_and_never_a_short_answer(caller, upstream, fault):
    name, make = caller
    _, stream = make(upstream, prompt(fault))
    heard = []
    with pytest.raises(RAISED[name]):
        for piece in stream():
            heard.append(piece)
    assert TEXT.startswith("".join(heard))


# Silence takes its time, so each client meets it once.
def test_a_stream_that_falls_silent_is_an_error(caller):
    name, make = caller
    _, stream = make(f"faulty-{name}", prompt("stall-between after=7"))
    heard = []
    with pytest.raises(RAISED[name]):
        for piece in stream():
            heard.append(piece)
    assert heard and "".join(heard) != TEXT


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("fault", HARMLESS)
def test_oddities_change_nothing(caller, upstream, fault):
    _, make = caller
    _, stream = make(upstream, prompt(fault))
    assert "".join(stream()) == TEXT


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("fault", REFUSALS)
def test_an_answer_that_is_none_is_an_error(caller, upstream, fault):
    name, make = caller
    whole, _ = make(upstream, prompt(fault))
    with pytest.raises(RAISED[name]) as caught:
        whole()
    status = getattr(caught.value, "status_code", None) or getattr(caught.value, "code", None)
    assert status == 503, caught.value
