"""Cached contents with the official client, at both of its addresses, whatever the upstream speaks."""

import datetime

import pytest
from google.genai import errors, types

from ask import STORY

LIFE = datetime.timedelta(seconds=600)


@pytest.fixture
def cache(gemini, model):
    made = gemini.caches.create(
        model=model,
        config=types.CreateCachedContentConfig(
            display_name="The tale",
            ttl="600s",
            system_instruction="Be brief.",
            contents=[types.Content(role="user", parts=[types.Part(text="A tale of a heron.")])],
        ),
    )
    yield made
    gemini.caches.delete(name=made.name)


def test_content_is_kept_and_shown(gemini, model, cache):
    assert cache.name.startswith("cachedContents/")
    assert (cache.model, cache.display_name) == (f"models/{model}", "The tale")
    assert cache.expire_time - cache.create_time == LIFE
    assert cache.usage_metadata.total_token_count > 0
    assert gemini.caches.get(name=cache.name) == cache
    assert cache.name in [listed.name for listed in gemini.caches.list(config={"page_size": 1})]


def test_its_end_can_be_moved(gemini, cache):
    config = types.UpdateCachedContentConfig(ttl="1200s")
    longer = gemini.caches.update(name=cache.name, config=config)
    assert longer.expire_time > cache.expire_time
    until = cache.create_time + 3 * LIFE
    config = types.UpdateCachedContentConfig(expire_time=until)
    assert gemini.caches.update(name=cache.name, config=config).expire_time == until


def test_a_request_names_it(gemini, model, cache):
    config = types.GenerateContentConfig(cached_content=cache.name)
    reply = gemini.models.generate_content(model=model, contents=STORY, config=config)
    alone = gemini.models.generate_content(model=model, contents=STORY)
    assert reply.text
    prompt = reply.usage_metadata.prompt_token_count
    assert prompt > alone.usage_metadata.prompt_token_count
    chunks = list(
        gemini.models.generate_content_stream(model=model, contents=STORY, config=config)
    )
    assert "".join(chunk.text or "" for chunk in chunks)
    assert chunks[-1].usage_metadata.prompt_token_count == prompt


def test_deleted_content_is_not_found(gemini, model):
    config = types.CreateCachedContentConfig(system_instruction="Be brief.")
    made = gemini.caches.create(model=model, config=config)
    gemini.caches.delete(name=made.name)
    with pytest.raises(errors.ClientError) as caught:
        gemini.caches.get(name=made.name)
    assert caught.value.code == 404
    config = types.GenerateContentConfig(cached_content=made.name)
    with pytest.raises(errors.ClientError) as caught:
        gemini.models.generate_content(model=model, contents=STORY, config=config)
    assert caught.value.code == 404
