"""Listing models: with the official client, and in the public catalog."""

import openai
import pytest
from openapi_spec_validator import validate

CHATTING = "demo-chat"


def test_the_demo_models_are_listed(client):
    models = client.models.list().data
    ids = [model.id for model in models]
    assert CHATTING in ids
    assert len(ids) == len(set(ids))
    for model in models:
        assert model.object == "model"
        assert model.owned_by
        assert model.created > 0


def test_every_listed_model_can_be_retrieved(client):
    for listed in client.models.list().data:
        assert client.models.retrieve(listed.id) == listed


def test_an_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("no-such-model")
    assert caught.value.code == "model_not_found"


def test_chatting_with_an_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(
            model="no-such-model", messages=[{"role": "user", "content": "Hello"}]
        )
    assert caught.value.code == "model_not_found"
    assert "no-such-model" in caught.value.message


def test_the_catalog_is_public_and_has_the_agreed_envelope(wire):
    answer = wire.get("/api/models", key=None)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("application/json")
    envelope = answer.json()
    assert set(envelope) == {"success", "page", "page_size", "total", "data"}
    assert envelope["success"] is True
    assert envelope["page"] == 1
    assert type(envelope["total"]) is int
    assert len(envelope["data"]) == envelope["total"] == envelope["page_size"]


def test_every_catalog_entry_has_the_agreed_fields(wire, url):
    for entry in wire.get("/api/models", key=None).json()["data"]:
        assert set(entry) == {
            "id", "provider", "provider_id", "aliases", "model_type", "features", "capabilities",
            "pricing", "api_doc_url", "released", "retires",
        }
        for field in ("id", "provider", "provider_id", "model_type"):
            assert isinstance(entry[field], str) and entry[field], entry
        assert all(isinstance(feature, str) for feature in entry["features"])
        assert entry["api_doc_url"].startswith("http")
        assert entry["id"] in entry["api_doc_url"]
        pricing = entry["pricing"]
        assert set(pricing) == {
            "currency", "input", "output", "per_request", "per_second", "details",
        }
        assert "USD" in pricing["currency"]
        for field in ("input", "output"):
            assert is_number(pricing[field]) and pricing[field] >= 0, entry
        for field in ("per_request", "per_second"):
            assert pricing[field] is None or is_number(pricing[field]), entry


def test_a_demo_model_costs_something_small(wire):
    (entry,) = [e for e in wire.get("/api/models").json()["data"] if e["id"] == CHATTING]
    assert 0 < entry["pricing"]["input"] < entry["pricing"]["output"] < 1
    assert entry["pricing"]["per_request"] is None
    assert entry["pricing"]["per_second"] is None
    assert {"streaming", "tools", "json-schema"} <= set(entry["features"])


def test_pages_add_up_to_the_whole_catalog(wire):
    whole = wire.get("/api/models?page_size=100").json()
    seen = []
    for page in range(1, whole["total"] + 1):
        envelope = wire.get(f"/api/models?page={page}&page_size=1").json()
        assert (envelope["page"], envelope["page_size"]) == (page, 1)
        assert envelope["total"] == whole["total"]
        seen += [entry["id"] for entry in envelope["data"]]
    assert seen == [entry["id"] for entry in whole["data"]]
    assert wire.get(f"/api/models?page={whole['total'] + 1}&page_size=1").json()["data"] == []


def test_the_catalog_can_be_narrowed_down(wire):
    whole = wire.get("/api/models?page_size=100").json()["data"]
    cases = {(f"{field}={entry[field]}", field, entry[field])
             for entry in whole for field in ("provider", "model_type")}
    cases |= {(f"feature={tag}", "features", tag) for entry in whole for tag in entry["features"]}
    for query, field, value in sorted(cases):
        has = lambda entry: value in entry[field] if field == "features" else value == entry[field]
        fits = [entry["id"] for entry in whole if has(entry)]
        found = wire.get(f"/api/models?page_size=100&{query}").json()
        assert [entry["id"] for entry in found["data"]] == fits, query
        assert found["total"] == len(fits), query
    assert "demo-echo" in [entry["id"] for entry in wire.get("/api/models?q=echo").json()["data"]]
    for nothing in ("provider=nobody", "model_type=weather", "feature=juggling", "q=no-such-words"):
        assert wire.get(f"/api/models?{nothing}").json()["total"] == 0, nothing


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def test_each_demo_model_is_behind_an_upstream_of_its_own_format(dry_run, model):
    """Otherwise a request would only be handed through, and no test here would try a translation."""
    wanted = model.removeprefix("demo-")
    assert dry_run(model) == wanted


def test_each_embedded_demo_model_is_behind_an_upstream_of_its_own_format(dry_run, model):
    wanted = model.removeprefix("demo-")
    assert dry_run(f"embedded-{wanted}") == wanted


@pytest.fixture
def dry_run(wire):
    """The format in which a model's upstream would be asked, whatever format the caller speaks."""

    def ask(model):
        said = [{"role": "user", "content": "Hello"}]
        native = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}
        told = {
            wire.post(path, body, dry_run=True).json()["dialect"]
            for path, body in {
                "/v1/chat/completions": {"model": model, "messages": said},
                "/v1/messages": {"model": model, "messages": said, "max_tokens": 10},
                "/v1/responses": {"model": model, "input": said},
                f"/v1beta/models/{model}:generateContent": native,
            }.items()
        }
        (dialect,) = told
        return dialect

    return ask


def test_the_api_describes_itself_in_valid_openapi(wire, url):
    answer = wire.get("/openapi.json", key=None)
    assert answer.status == 200
    described = answer.json()
    validate(described)
    assert described["servers"] == [{"url": url}]
