// The messages format with the official Node client, whatever the upstream speaks.

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import {
  ABOUT, HARBOUR, IDLE, KEY, LISBON, LONG_STORY, NEWS, PARIS, PICTURE, RESULT, SEEN, SHAPE, STORY,
  TIMEOUT, TOOL, TWO_CITIES, URL_, WEATHER, cell, failure, isHarbour, near,
} from "./cells.mjs";

const client = new Anthropic({ baseURL: URL_, apiKey: KEY, maxRetries: 0, timeout: TIMEOUT });
const works = (feature, fact, run) => cell("Messages", feature, fact, run);
const user = (content) => ({ role: "user", content });
const turns = (said) => (typeof said === "string" ? [user(said)] : said);
const ask = (model, said, more = {}) =>
  client.messages.create({ model, max_tokens: 1000, messages: turns(said), ...more });
const TOOLS = [{ name: TOOL, description: ABOUT, input_schema: SHAPE }];
const THINKING = { max_tokens: 3000, thinking: { type: "enabled", budget_tokens: 1024 } };
const IMAGE = { type: "image", source: { type: "base64", media_type: "image/png", data: PICTURE } };
const of = (kind) => (message) => message.content.filter((block) => block.type === kind);
const [callsOf, textsOf] = [of("tool_use"), of("text")];
const textOf = (message) => textsOf(message).map((block) => block.text).join("");
const after = (said, message, results) => [
  user(said), { role: "assistant", content: message.content }, user(results),
];
const resultOf = (call, content) => ({ type: "tool_result", tool_use_id: call.id, content });

works("whole answer", "an answer is a message with text and a reason to end", async (model) => {
  const message = await ask(model, STORY);
  assert.equal(message.type, "message");
  assert.equal(message.model, model);
  assert.equal(message.stop_reason, "end_turn");
  assert.ok(textOf(message));
});

works("stream says the same", "a stream says the same as the whole answer", async (model) => {
  const whole = await ask(model, STORY);
  const stream = client.messages.stream({ model, max_tokens: 1000, messages: turns(STORY) });
  let pieces = "";
  stream.on("text", (text) => (pieces += text));
  const message = await stream.finalMessage();
  assert.equal(pieces, textOf(whole));
  assert.equal(textOf(message), textOf(whole));
  assert.equal(message.usage.output_tokens, whole.usage.output_tokens);
});

works("tokens add up", "counts are those of the receipt", async (model) => {
  const { data, response } = await ask_raw(model);
  const id = response.headers.get("request-id");
  const headers = { authorization: `Bearer ${KEY}` };
  const receipt = await (await fetch(`${URL_}/v1/usage/${id}`, { headers })).json();
  assert.equal(receipt.tokens.input, data.usage.input_tokens);
  assert.equal(receipt.tokens.output, data.usage.output_tokens);
});
const ask_raw = (model) =>
  client.messages.create({ model, max_tokens: 1000, messages: turns(STORY) }).withResponse();

works("conversation", "a conversation remembers", async (model) => {
  const said = [
    user("My name is Ada."), { role: "assistant", content: "Hello Ada." }, user("What is my name?"),
  ];
  assert.match(textOf(await ask(model, said, { system: "You are polite." })), /Ada/);
});

works("stop word", "a stop word ends the answer", async (model) => {
  const whole = textOf(await ask(model, STORY));
  const word = whole.split(" ")[4];
  const cut = await ask(model, STORY, { stop_sequences: [word] });
  assert.equal(textOf(cut), whole.slice(0, whole.indexOf(word)));
  assert.deepEqual([cut.stop_reason, cut.stop_sequence], ["stop_sequence", word]);
});

works("length limit", "a limit cuts the answer and says so", async (model) => {
  for (const most of [20, 5]) {
    const message = await ask(model, STORY, { max_tokens: most });
    assert.equal(message.stop_reason, "max_tokens");
    assert.ok(message.usage.output_tokens <= most);
  }
});

works("picture", "a picture is seen", async (model) => {
  const said = [user([IMAGE, { type: "text", text: "What is this?" }])];
  assert.ok(textOf(await ask(model, said)).includes(SEEN));
});

works("structured output", "an answer fits the given shape", async (model) => {
  const output_config = { format: { type: "json_schema", schema: HARBOUR } };
  isHarbour(textOf(await ask(model, LISBON, { output_config })));
});

works("tool choice", "the choice of tools is obeyed", async (model) => {
  const names = async (said, tool_choice) =>
    callsOf(await ask(model, said, { tools: TOOLS, tool_choice })).map((call) => call.name);
  assert.deepEqual(await names(IDLE, { type: "auto" }), []);
  assert.deepEqual(await names(IDLE, { type: "any" }), [TOOL]);
  assert.deepEqual(await names(IDLE, { type: "tool", name: TOOL }), [TOOL]);
  assert.deepEqual(await names(WEATHER, { type: "none" }), []);
});

works("parallel tool calls", "parallel calls keep their ids apart", async (model) => {
  const first = await ask(model, TWO_CITIES, { tools: TOOLS });
  const results = callsOf(first).map((call) => resultOf(call, `sunny in ${call.input.city}`));
  const text = textOf(await ask(model, after(TWO_CITIES, first, results), { tools: TOOLS }));
  assert.match(text, /sunny in Paris/);
  assert.match(text, /sunny in Oslo/);
});

works("streamed tool call", "a streamed call adds up to the whole one", async (model) => {
  const stream = client.messages.stream({
    model, max_tokens: 1000, messages: turns(WEATHER), tools: TOOLS,
  });
  const [call] = callsOf(await stream.finalMessage());
  assert.deepEqual(call.input, PARIS);
});

works("tool round trip", "a result is put into words", async (model) => {
  const first = await ask(model, WEATHER, { tools: TOOLS });
  const results = [resultOf(callsOf(first)[0], RESULT)];
  assert.match(textOf(await ask(model, after(WEATHER, first, results), { tools: TOOLS })), /21/);
});

works("picture in a tool result", "a picture a tool gave is seen", async (model) => {
  const first = await ask(model, WEATHER, { tools: TOOLS });
  const results = [resultOf(callsOf(first)[0], [IMAGE])];
  const text = textOf(await ask(model, after(WEATHER, first, results), { tools: TOOLS }));
  assert.ok(text.includes(SEEN));
});

works("the client's own tool loop", "the tool runner calls and goes on", async (model) => {
  for (const stream of [false, true]) {
    const tool = betaTool({
      name: TOOL, description: ABOUT, inputSchema: SHAPE,
      run: ({ city }) => `21 degrees in ${city}`,
    });
    const runner = client.beta.messages.toolRunner({
      model, max_tokens: 1000, messages: turns(WEATHER), tools: [tool], stream,
    });
    assert.match(textOf(await runner.runUntilDone()), /21 degrees in Paris/);
  }
});

works("thinking", "thinking comes first, whole and streamed", async (model) => {
  const whole = await ask(model, STORY, THINKING);
  assert.equal(whole.content[0].type, "thinking");
  assert.ok(whole.content[0].thinking);
  const stream = client.messages.stream({ model, messages: turns(STORY), ...THINKING });
  const streamed = await stream.finalMessage();
  assert.equal(streamed.content[0].thinking, whole.content[0].thinking);
});

works("thinking handed back", "thinking goes back with the result of a tool", async (model) => {
  const more = { tools: TOOLS, ...THINKING };
  const stream = client.messages.stream({ model, messages: turns(WEATHER), ...more });
  for (const first of [await ask(model, WEATHER, more), await stream.finalMessage()]) {
    const results = [resultOf(callsOf(first)[0], RESULT)];
    assert.match(textOf(await ask(model, after(WEATHER, first, results), more)), /21/);
  }
});

works("web search", "a search gives sources", async (model) => {
  const tools = [{ type: "web_search_20250305", name: "web_search" }];
  const cited = textsOf(await ask(model, NEWS, { tools })).flatMap((block) => block.citations ?? []);
  assert.match(cited[0].url, /^https:/);
});

works("token count", "counting comes near what the answer counts", async (model) => {
  const { input_tokens } = await client.messages.countTokens({ model, messages: turns(STORY) });
  near(input_tokens, (await ask(model, STORY)).usage.input_tokens);
});

works("errors", "errors are told in the words of the client", async (model) => {
  const body = { model, max_tokens: 10, messages: turns(IDLE) };
  const stranger = client.withOptions({ apiKey: "sk-not-a-key" });
  const unknown = await failure(stranger.messages.create(body));
  assert.ok(unknown instanceof Anthropic.AuthenticationError);
  const missing = await failure(client.messages.create({ ...body, model: "no-such-model" }));
  assert.ok(missing instanceof Anthropic.NotFoundError);
  const bad = await failure(client.messages.create({ ...body, temperature: "hot", stream: true }));
  assert.ok(bad instanceof Anthropic.BadRequestError);
  assert.equal(bad.error.error.type, "invalid_request_error");
});

works("stream left early", "a stream the caller leaves does not hurt the next", async (model) => {
  for (let times = 0; times < 3; times++) {
    const stream = await ask(model, LONG_STORY, { stream: true, max_tokens: 4000 });
    for await (const _ of stream) break;
  }
  assert.ok(textOf(await ask(model, IDLE)));
});
