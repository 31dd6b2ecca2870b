"""The native format with its official client, at both of its addresses, whatever the upstream speaks."""

import pytest
from google.genai import errors, types

from ask import (
    ABOUT, Harbour, IDLE, LISBON, LONG_STORY, NEWS, PARIS, PICTURE, RESULT, SEEN, SHAPE, STORY,
    TOOL, TWO_CITIES, WEATHER,
)
from matrix import client_of, feature

pytestmark = client_of("Native")

BY_HAND = types.AutomaticFunctionCallingConfig(disable=True)
TOOLS = [
    types.Tool(
        function_declarations=[
            types.FunctionDeclaration(name=TOOL, description=ABOUT, parameters_json_schema=SHAPE)
        ]
    )
]
THINKING = types.ThinkingConfig(include_thoughts=True, thinking_budget=1024)


def config(**fields):
    return types.GenerateContentConfig(automatic_function_calling=BY_HAND, **fields)


def ask(gemini, model, contents, **fields):
    return gemini.models.generate_content(model=model, contents=contents, config=config(**fields))


def stream(gemini, model, contents, **fields):
    return gemini.models.generate_content_stream(
        model=model, contents=contents, config=config(**fields)
    )


def user(*parts):
    return types.Content(role="user", parts=list(parts))


def said(text):
    return user(types.Part(text=text))


def answer_part(call, response):
    answered = types.FunctionResponse(id=call.id, name=call.name, response=response)
    return types.Part(function_response=answered)


@feature("whole answer")
def test_an_answer_has_text_and_a_reason_to_end(gemini, model):
    reply = ask(gemini, model, STORY)
    (candidate,) = reply.candidates
    assert reply.text
    assert candidate.content.role == "model"
    assert candidate.finish_reason == types.FinishReason.STOP
    assert reply.model_version and reply.response_id


@feature("stream says the same")
def test_a_stream_says_the_same_as_the_whole_answer(gemini, model):
    whole = ask(gemini, model, STORY)
    pieces = list(stream(gemini, model, STORY))
    assert len(pieces) > 2
    assert "".join(piece.text or "" for piece in pieces) == whole.text
    assert pieces[-1].candidates[0].finish_reason == types.FinishReason.STOP
    assert pieces[-1].usage_metadata.total_token_count == whole.usage_metadata.total_token_count
    assert len({piece.response_id for piece in pieces}) == 1


@feature("tokens add up")
def test_counts_add_up_with_and_without_thinking(gemini, model):
    for fields in ({}, {"thinking_config": THINKING}):
        usage = ask(gemini, model, STORY, **fields).usage_metadata
        parts = (usage.prompt_token_count, usage.candidates_token_count)
        assert all(part > 0 for part in parts)
        assert usage.total_token_count == sum(parts) + (usage.thoughts_token_count or 0)


@feature("conversation")
def test_a_conversation_remembers(gemini, model):
    contents = [
        said("My name is Ada."),
        types.Content(role="model", parts=[types.Part(text="Hello "), types.Part(text="Ada.")]),
        said("What is my name?"),
    ]
    assert "Ada" in ask(gemini, model, contents, system_instruction="You are polite.").text


@feature("stop word")
def test_a_stop_word_ends_the_answer(gemini, model):
    whole = ask(gemini, model, STORY).text
    word = whole.split()[4]
    cut = ask(gemini, model, STORY, stop_sequences=["never said", word])
    assert cut.text == whole[: whole.index(word)]
    assert cut.candidates[0].finish_reason == types.FinishReason.STOP


@feature("length limit")
def test_a_limit_cuts_the_answer_and_says_so(gemini, model):
    for most in (20, 5):
        reply = ask(gemini, model, STORY, max_output_tokens=most)
        assert reply.candidates[0].finish_reason == types.FinishReason.MAX_TOKENS
        assert 0 < reply.usage_metadata.candidates_token_count <= most


@feature("picture")
def test_a_picture_is_seen(gemini, model):
    picture = types.Part.from_bytes(data=PICTURE, mime_type="image/png")
    assert SEEN in ask(gemini, model, user(picture, types.Part(text="What is this?"))).text


@feature("structured output")
def test_an_answer_fits_the_given_shape(gemini, model):
    for shape in (
        {"response_schema": Harbour},
        {"response_json_schema": Harbour.model_json_schema()},
    ):
        reply = ask(gemini, model, LISBON, response_mime_type="application/json", **shape)
        assert Harbour.model_validate_json(reply.text).city
        assert reply.parsed


@feature("tool choice")
def test_the_choice_of_tools_is_obeyed(gemini, model):
    def names(contents, mode, allowed=None):
        calling = types.FunctionCallingConfig(mode=mode, allowed_function_names=allowed)
        chosen = types.ToolConfig(function_calling_config=calling)
        reply = ask(gemini, model, contents, tools=TOOLS, tool_config=chosen)
        return [call.name for call in reply.function_calls or []]

    assert names(IDLE, "AUTO") == []
    assert names(WEATHER, "AUTO") == [TOOL]
    assert names(IDLE, "ANY") == [TOOL]
    assert names(IDLE, "ANY", [TOOL]) == [TOOL]
    assert names(WEATHER, "NONE") == []


@feature("parallel tool calls")
def test_results_of_parallel_calls_find_their_calls_with_and_without_ids(gemini, model):
    first = ask(gemini, model, TWO_CITIES, tools=TOOLS)
    calls = first.function_calls
    assert sorted(call.args["city"] for call in calls) == ["Oslo", "Paris"]
    for with_ids in (True, False):
        parts = []
        for call in calls:
            part = answer_part(call, {"result": f"sunny in {call.args['city']}"})
            if not with_ids:
                part.function_response.id = None
            parts.append(part)
        contents = [said(TWO_CITIES), first.candidates[0].content, user(*parts)]
        text = ask(gemini, model, contents, tools=TOOLS).text
        assert "sunny in Paris" in text and "sunny in Oslo" in text


@feature("streamed tool call")
def test_a_streamed_call_comes_whole(gemini, model):
    pieces = list(stream(gemini, model, WEATHER, tools=TOOLS))
    (call,) = [call for piece in pieces for call in piece.function_calls or []]
    assert call.name == TOOL and call.args == PARIS
    assert pieces[-1].candidates[0].finish_reason == types.FinishReason.STOP


@feature("tool round trip")
def test_a_result_is_put_into_words(gemini, model):
    first = ask(gemini, model, WEATHER, tools=TOOLS)
    (call,) = first.function_calls
    contents = [
        said(WEATHER), first.candidates[0].content, user(answer_part(call, {"temperature": 21})),
    ]
    second = ask(gemini, model, contents, tools=TOOLS)
    assert "21" in second.text and not second.function_calls


@feature("picture in a tool result")
def test_a_picture_a_tool_gave_is_seen(gemini, model):
    first = ask(gemini, model, WEATHER, tools=TOOLS)
    (call,) = first.function_calls
    part = answer_part(call, {"caption": "the sky over Paris"})
    blob = types.FunctionResponseBlob(mime_type="image/png", data=PICTURE)
    part.function_response.parts = [types.FunctionResponsePart(inline_data=blob)]
    contents = [said(WEATHER), first.candidates[0].content, user(part)]
    assert SEEN in ask(gemini, model, contents, tools=TOOLS).text


def get_weather(city: str, unit: str) -> dict:
    """Current weather in a city."""
    return {"degrees": 21, "unit": unit, "city": city}


@feature("the client's own tool loop")
def test_functions_are_called_automatically(gemini, model):
    reply = gemini.models.generate_content(
        model=model, contents=WEATHER, config=types.GenerateContentConfig(tools=[get_weather])
    )
    assert '"degrees":21' in reply.text.replace(" ", "")
    called = [
        part.function_call.name
        for content in reply.automatic_function_calling_history
        for part in content.parts
        if part.function_call
    ]
    assert called == ["get_weather"]


@feature("thinking")
def test_thoughts_are_shown_when_asked_for(gemini, model):
    whole = ask(gemini, model, STORY, thinking_config=THINKING)
    thoughts = "".join(part.text for part in whole.candidates[0].content.parts if part.thought)
    assert thoughts and thoughts not in whole.text
    streamed = "".join(
        part.text or ""
        for piece in stream(gemini, model, STORY, thinking_config=THINKING)
        for part in (piece.candidates[0].content.parts if piece.candidates[0].content else None) or []
        if part.thought
    )
    assert streamed == thoughts
    quiet = ask(gemini, model, STORY, thinking_config=types.ThinkingConfig(thinking_budget=0))
    assert not any(part.thought for part in quiet.candidates[0].content.parts)


@feature("thinking handed back")
def test_signatures_go_back_with_the_result_of_a_tool(gemini, model):
    fields = {"tools": TOOLS, "thinking_config": THINKING}
    for streamed in (False, True):
        if streamed:
            pieces = list(stream(gemini, model, WEATHER, **fields))
            contents = [piece.candidates[0].content for piece in pieces]
            contents = [content for content in contents if content and content.parts]
        else:
            contents = [ask(gemini, model, WEATHER, **fields).candidates[0].content]
        parts = [part for content in contents for part in content.parts]
        assert any(part.thought_signature for part in parts)
        (call,) = [part.function_call for part in parts if part.function_call]
        history = [said(WEATHER), *contents, user(answer_part(call, {"temperature": 21}))]
        second = ask(gemini, model, history, **fields)
        assert "21" in second.text
        history += [second.candidates[0].content, said("Thank you.")]
        assert ask(gemini, model, history, **fields).text


@feature("thinking handed back")
def test_a_client_that_keeps_only_the_signature_of_the_call_can_go_on(gemini, model):
    """As the vendor's own command line does: thoughts are dropped, the call keeps its signature."""
    fields = {"tools": TOOLS, "thinking_config": THINKING}
    first = ask(gemini, model, WEATHER, **fields).candidates[0].content
    kept = [part for part in first.parts if part.function_call]
    call = kept[0].function_call
    contents = [
        said(WEATHER),
        types.Content(role="model", parts=kept),
        user(answer_part(call, {"temperature": 21})),
    ]
    assert "21" in ask(gemini, model, contents, **fields).text


@feature("web search")
def test_a_search_grounds_the_answer(gemini, model):
    tools = [types.Tool(google_search=types.GoogleSearch())]
    whole = ask(gemini, model, NEWS, tools=tools)
    pieces = list(stream(gemini, model, NEWS, tools=tools))
    grounded = [
        piece.candidates[0].grounding_metadata
        for piece in pieces
        if piece.candidates[0].grounding_metadata
    ]
    assert grounded
    for grounding in (whole.candidates[0].grounding_metadata, grounded[-1]):
        # What was searched for is not told in the chat format.
        assert grounding.web_search_queries or model == "demo-chat"
        assert grounding.grounding_chunks[0].web.uri.startswith("https://")
        assert grounding.grounding_supports


@feature("chat session")
def test_a_chat_session_keeps_its_own_history(gemini, model):
    chat = gemini.chats.create(model=model, config=config(thinking_config=THINKING))
    assert chat.send_message("My name is Ada.").text
    assert "".join(piece.text or "" for piece in chat.send_message_stream(IDLE))
    assert "Ada" in chat.send_message("What is my name?").text
    assert len(chat.get_history()) >= 6


@feature("token count")
def test_counting_comes_near_what_the_answer_counts(gemini, model):
    counted = gemini.models.count_tokens(model=model, contents=STORY)
    exact = ask(gemini, model, STORY).usage_metadata.prompt_token_count
    assert exact / 2 < counted.total_tokens < exact * 2


@feature("errors")
def test_errors_are_told_in_the_words_of_the_client(gemini, make_gemini, model):
    def refused(client, name=model, **fields):
        with pytest.raises(errors.ClientError) as caught:
            ask(client, name, IDLE, **fields)
        with pytest.raises(errors.ClientError) as streamed:
            list(stream(client, name, IDLE, **fields))
        assert streamed.value.code == caught.value.code
        assert caught.value.message
        return caught.value.code, caught.value.status

    stranger = make_gemini(key="not-a-key")
    assert refused(stranger) == (401, "UNAUTHENTICATED")
    assert refused(gemini, "no-such-model") == (404, "NOT_FOUND")
    assert refused(gemini, temperature=9.0) == (400, "INVALID_ARGUMENT")


@feature("stream left early")
def test_a_stream_the_caller_leaves_does_not_hurt_the_next_call(gemini, model):
    for _ in range(3):
        pieces = stream(gemini, model, LONG_STORY)
        next(iter(pieces))
        pieces.close()
    assert ask(gemini, model, IDLE).text


def test_models_are_listed_in_the_shape_of_the_client(gemini):
    listed = {entry.name: entry for entry in gemini.models.list()}
    assert "generateContent" in listed["models/demo-native"].supported_actions
    assert gemini.models.get(model="demo-native").name == "models/demo-native"
    with pytest.raises(errors.ClientError) as caught:
        gemini.models.get(model="no-such-model")
    assert caught.value.code == 404
