"""What a call cost, told three times: in its headers, on its receipt, on the key's account."""

from decimal import Decimal

import pytest

MESSAGES = [{"role": "user", "content": "Tell me a story about a harbour."}]
MILLION = Decimal(1_000_000)


@pytest.fixture
def prices(wire):
    listed = wire.get("/api/models").json()["data"]
    return {
        entry["id"]: tuple(Decimal(str(entry["pricing"][side])) for side in ("input", "output"))
        for entry in listed
    }


def test_every_answer_has_a_request_id_of_its_own(client, wire):
    raw = client.chat.completions.with_raw_response
    ids = [
        raw.create(model="demo-chat", messages=MESSAGES).headers["x-request-id"],
        raw.create(model="demo-chat", messages=MESSAGES).headers["x-request-id"],
        raw.create(model="demo-chat", messages=MESSAGES, stream=True).headers["x-request-id"],
        wire.get("/api/models", key=None).headers["x-request-id"],
        wire.get("/v1/key").headers["x-request-id"],
        wire.get("/v1/key", key="wrong").headers["x-request-id"],
        wire.get("/nowhere").headers["x-request-id"],
    ]
    assert all(ids)
    assert len(set(ids)) == len(ids)


def test_the_key_tells_what_it_may_spend(wire):
    answer = wire.get("/v1/key")
    assert answer.status == 200
    key = answer.json()
    wanted = {
        "id", "name", "cap_usd", "spent_usd", "held_usd", "remaining_usd", "expires_at", "limits",
    }
    assert wanted <= set(key)
    # The key of these tests has no cap.
    assert key["cap_usd"] is None
    assert key["remaining_usd"] is None
    for field in ("spent_usd", "held_usd"):
        assert nine_digits(key[field]), key


def test_a_receipt_costs_what_its_tokens_cost(client, wire, prices, model):
    raw = client.chat.completions.with_raw_response.create(model=model, messages=MESSAGES)
    usage = raw.parse().usage
    receipt = fetch_receipt(wire, raw.headers["x-request-id"])
    assert receipt["model"] == model
    assert receipt["lane"]
    assert receipt["attempts"] == 1
    assert receipt["losses"] == []
    assert receipt["tokens"]["input"] == usage.prompt_tokens
    assert receipt["tokens"]["output"] == usage.completion_tokens
    assert nine_digits(receipt["cost_usd"])
    assert Decimal(receipt["cost_usd"]) == price_of(usage, prices[model])
    assert Decimal(raw.headers["x-portunus-cost"]) == Decimal(receipt["cost_usd"])


def test_a_streamed_call_costs_the_same(client, wire, prices, model):
    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    *_, last = raw.parse()
    receipt = fetch_receipt(wire, raw.headers["x-request-id"])
    assert receipt["tokens"]["input"] == last.usage.prompt_tokens
    assert receipt["tokens"]["output"] == last.usage.completion_tokens
    assert Decimal(receipt["cost_usd"]) == price_of(last.usage, prices[model])


def test_a_stream_is_metered_even_when_the_caller_does_not_ask(client, wire):
    ask = {"model": "demo-chat", "messages": MESSAGES}
    whole = client.chat.completions.with_raw_response.create(**ask)
    quiet = client.chat.completions.with_raw_response.create(stream=True, **ask)
    assert all(chunk.usage is None for chunk in quiet.parse())
    costs = [fetch_receipt(wire, raw.headers["x-request-id"])["cost_usd"] for raw in (whole, quiet)]
    assert costs[0] == costs[1]


def test_the_account_grows_by_exactly_what_was_charged(client, wire):
    before = Decimal(wire.get("/v1/key").json()["spent_usd"])
    charged = Decimal(0)
    for stream in (False, True, False):
        raw = client.chat.completions.with_raw_response.create(
            model="demo-chat", messages=MESSAGES, stream=stream
        )
        if stream:
            list(raw.parse())
        charged += Decimal(fetch_receipt(wire, raw.headers["x-request-id"])["cost_usd"])
    key = wire.get("/v1/key").json()
    assert Decimal(key["spent_usd"]) - before == charged
    assert Decimal(key["held_usd"]) == 0


def test_what_costs_nothing_charges_nothing(client, wire):
    before = wire.get("/v1/key").json()["spent_usd"]
    client.models.list()
    assert wire.post("/v1/chat/completions", {"model": "no-such-model", "messages": MESSAGES}).status == 404
    assert wire.post("/v1/chat/completions", {"model": "demo-chat"}).status == 400
    assert wire.get("/v1/key").json()["spent_usd"] == before


def test_nobody_reads_a_receipt_without_the_key_or_with_a_made_up_id(client, wire):
    raw = client.chat.completions.with_raw_response.create(model="demo-chat", messages=MESSAGES)
    path = f"/v1/usage/{raw.headers['x-request-id']}"
    assert wire.get(path, key=None).status == 401
    assert wire.get("/v1/usage/no-such-request").status == 404


def fetch_receipt(wire, request_id):
    answer = wire.get(f"/v1/usage/{request_id}")
    assert answer.status == 200, answer.body
    receipt = answer.json()
    wanted = {"request_id", "model", "lane", "status", "tokens", "cost_usd", "attempts", "losses"}
    assert wanted <= set(receipt)
    assert receipt["request_id"] == request_id
    return receipt


def price_of(usage, prices):
    """The catalog's prices times the tokens the answer itself reported."""
    assert not getattr(usage.prompt_tokens_details, "cached_tokens", 0)
    per_input, per_output = prices
    return (usage.prompt_tokens * per_input + usage.completion_tokens * per_output) / MILLION


def nine_digits(text):
    whole, _, fraction = text.partition(".")
    return whole.isdigit() and fraction.isdigit() and len(fraction) == 9
