// The responses format with the official Node client, whatever the upstream speaks.

import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";
import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";
import {
  ABOUT, HARBOUR, IDLE, KEY, LISBON, LONG_STORY, NEWS, PARIS, PICTURE, RESULT, SEEN, SHAPE, STORY,
  TIMEOUT, TOOL, TWO_CITIES, URL_, WEATHER, cell, failure, gather, isHarbour, near,
} from "./cells.mjs";

const client = new OpenAI({ baseURL: `${URL_}/v1`, apiKey: KEY, maxRetries: 0, timeout: TIMEOUT });
const works = (feature, fact, run) => cell("Responses", feature, fact, run);
const user = (content) => ({ role: "user", content });
const ask = (model, input, more = {}) => client.responses.create({ model, input, ...more });
const TOOLS = [
  { type: "function", name: TOOL, description: ABOUT, parameters: SHAPE, strict: true },
];
const IMAGE = { type: "input_image", detail: "auto", image_url: `data:image/png;base64,${PICTURE}` };
const callsOf = (response) => response.output.filter((item) => item.type === "function_call");
const resultOf = (call, output) => ({
  type: "function_call_output", call_id: call.call_id, output,
});

works("whole answer", "an answer is complete", async (model) => {
  const response = await ask(model, STORY);
  assert.equal(response.status, "completed");
  assert.equal(response.model, model);
  assert.ok(response.output_text);
});

works("stream says the same", "a stream says the same as the whole answer", async (model) => {
  const whole = await ask(model, STORY);
  const stream = client.responses.stream({ model, input: STORY });
  const events = await gather(stream);
  const deltas = events.filter((event) => event.type === "response.output_text.delta");
  assert.equal(deltas.map((event) => event.delta).join(""), whole.output_text);
  assert.equal((await stream.finalResponse()).output_text, whole.output_text);
});

works("tokens add up", "counts add up", async (model) => {
  const { usage } = await ask(model, STORY, { reasoning: { effort: "medium" } });
  assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);
  assert.ok(usage.output_tokens_details.reasoning_tokens > 0);
});

works("conversation", "a conversation remembers", async (model) => {
  const said = [
    user("My name is Ada."), { role: "assistant", content: "Hello Ada." }, user("What is my name?"),
  ];
  assert.match((await ask(model, said)).output_text, /Ada/);
});

works("length limit", "a limit cuts the answer and says so", async (model) => {
  const response = await ask(model, STORY, { max_output_tokens: 20 });
  assert.equal(response.status, "incomplete");
  assert.equal(response.incomplete_details.reason, "max_output_tokens");
});

works("picture", "a picture is seen", async (model) => {
  const said = [user([IMAGE, { type: "input_text", text: "What is this?" }])];
  assert.ok((await ask(model, said)).output_text.includes(SEEN));
});

works("structured output", "an answer fits the given shape", async (model) => {
  const format = { type: "json_schema", name: "harbour", schema: HARBOUR, strict: true };
  isHarbour((await ask(model, LISBON, { text: { format } })).output_text);
});

works("tool choice", "the choice of tools is obeyed", async (model) => {
  const names = async (said, tool_choice) =>
    callsOf(await ask(model, said, { tools: TOOLS, tool_choice })).map((call) => call.name);
  assert.deepEqual(await names(IDLE, "auto"), []);
  assert.deepEqual(await names(IDLE, "required"), [TOOL]);
  assert.deepEqual(await names(IDLE, { type: "function", name: TOOL }), [TOOL]);
  assert.deepEqual(await names(WEATHER, "none"), []);
});

works("parallel tool calls", "parallel calls keep their ids apart", async (model) => {
  const first = await ask(model, TWO_CITIES, { tools: TOOLS });
  const results = callsOf(first).map((call) =>
    resultOf(call, `sunny in ${JSON.parse(call.arguments).city}`));
  const said = [user(TWO_CITIES), ...first.output, ...results];
  const { output_text } = await ask(model, said, { tools: TOOLS });
  assert.match(output_text, /sunny in Paris/);
  assert.match(output_text, /sunny in Oslo/);
});

works("streamed tool call", "a streamed call adds up to the whole one", async (model) => {
  const stream = client.responses.stream({ model, input: WEATHER, tools: TOOLS });
  const [call] = callsOf(await stream.finalResponse());
  assert.deepEqual(JSON.parse(call.arguments), PARIS);
});

works("tool round trip", "a result is put into words", async (model) => {
  const first = await ask(model, WEATHER, { tools: TOOLS });
  const said = [user(WEATHER), ...first.output, resultOf(callsOf(first)[0], RESULT)];
  assert.match((await ask(model, said, { tools: TOOLS })).output_text, /21/);
});

works("picture in a tool result", "a picture a tool gave is seen", async (model) => {
  const first = await ask(model, WEATHER, { tools: TOOLS });
  const said = [user(WEATHER), ...first.output, resultOf(callsOf(first)[0], [IMAGE])];
  assert.ok((await ask(model, said, { tools: TOOLS })).output_text.includes(SEEN));
});

works("thinking", "a summary of the thinking comes first", async (model) => {
  const reasoning = { effort: "medium", summary: "auto" };
  const whole = await ask(model, STORY, { reasoning });
  assert.equal(whole.output[0].type, "reasoning");
  const events = await gather(client.responses.stream({ model, input: STORY, reasoning }));
  const kind = "response.reasoning_summary_text.delta";
  const summary = events.filter((event) => event.type === kind).map((event) => event.delta).join("");
  assert.equal(summary, whole.output[0].summary.map((part) => part.text).join(""));
  assert.ok(summary);
});

works("thinking handed back", "sealed thinking goes back with a result", async (model) => {
  const more = {
    tools: TOOLS, store: false, include: ["reasoning.encrypted_content"],
    reasoning: { effort: "medium" },
  };
  const first = await ask(model, WEATHER, more);
  assert.ok(first.output.some((item) => item.encrypted_content));
  const said = [user(WEATHER), ...first.output, resultOf(callsOf(first)[0], RESULT)];
  assert.match((await ask(model, said, more)).output_text, /21/);
});

works("web search", "a search gives sources", async (model) => {
  const response = await ask(model, NEWS, { tools: [{ type: "web_search" }] });
  const message = response.output.find((item) => item.type === "message");
  assert.match(message.content[0].annotations[0].url, /^https:/);
});

works("token count", "counting comes near what the answer counts", async (model) => {
  const { input_tokens } = await client.responses.inputTokens.count({ model, input: STORY });
  near(input_tokens, (await ask(model, STORY)).usage.input_tokens);
});

works("previous response", "a chain remembers", async (model) => {
  const first = await ask(model, "My name is Ada.");
  const second = await ask(model, IDLE, { previous_response_id: first.id });
  const third = await ask(model, "What is my name?", { previous_response_id: second.id });
  assert.match(third.output_text, /Ada/);
  assert.equal(third.previous_response_id, second.id);
});

works("kept responses", "an answer is kept until it is deleted", async (model) => {
  const made = await ask(model, STORY);
  assert.equal((await client.responses.retrieve(made.id)).output_text, made.output_text);
  const items = await gather(client.responses.inputItems.list(made.id));
  assert.deepEqual(items.map((item) => item.content[0].text), [STORY]);
  await client.responses.delete(made.id);
  assert.ok((await failure(client.responses.retrieve(made.id))) instanceof OpenAI.NotFoundError);
});

works("background", "a background run is polled to its end, or cancelled", async (model) => {
  const made = await ask(model, STORY, { background: true });
  assert.ok(["queued", "in_progress"].includes(made.status));
  let polled = made;
  while (["queued", "in_progress"].includes(polled.status)) {
    await pause(20);
    polled = await client.responses.retrieve(made.id);
  }
  assert.equal(polled.status, "completed");
  assert.ok(polled.output_text);
  const other = await ask(model, LONG_STORY, { background: true });
  const { status } = await client.responses.cancel(other.id);
  // The run may have ended before the cancellation came.
  assert.ok(["cancelled", "completed"].includes(status));
});

works("background stream resumed", "a background stream goes on where it was left", async (model) => {
  const seen = [];
  for await (const event of await ask(model, STORY, { background: true, stream: true })) {
    seen.push(event);
    if (event.type === "response.output_text.delta") break;
  }
  const after = { stream: true, starting_after: seen.at(-1).sequence_number };
  const rest = await gather(await client.responses.retrieve(seen[0].response.id, after));
  const numbers = [...seen, ...rest].map((event) => event.sequence_number);
  assert.deepEqual(numbers, [...numbers.keys()]);
  assert.equal(rest.at(-1).type, "response.completed");
});

works("compaction", "a compacted conversation can be gone on with", async (model) => {
  const said = [user("My name is Ada."), { role: "assistant", content: "Hello Ada." }];
  const compacted = await client.responses.compact({ model, input: said });
  assert.equal(compacted.object, "response.compaction");
  const again = await ask(model, [...compacted.output, user(IDLE)]);
  assert.ok(again.output_text);
});

works("errors", "errors are told in the words of the client", async (model) => {
  const stranger = client.withOptions({ apiKey: "sk-not-a-key" });
  const unknown = await failure(stranger.responses.create({ model, input: IDLE }));
  assert.ok(unknown instanceof OpenAI.AuthenticationError);
  const missing = await failure(ask("no-such-model", IDLE, { stream: true }));
  assert.ok(missing instanceof OpenAI.NotFoundError);
  const bad = await failure(ask(model, IDLE, { temperature: 9 }));
  assert.ok(bad instanceof OpenAI.BadRequestError);
  assert.equal(bad.param, "temperature");
});

works("stream left early", "a stream the caller leaves does not hurt the next", async (model) => {
  for (let times = 0; times < 3; times++) {
    for await (const _ of await ask(model, LONG_STORY, { stream: true })) break;
  }
  assert.ok((await ask(model, IDLE)).output_text);
});

works("WebSocket", "a connection remembers what is not stored", async (model) => {
  const socket = new ResponsesWS(client);
  const turn = async (fields) => {
    socket.send({ type: "response.create", model, store: false, ...fields });
    for await (const { type, message, error } of socket.stream()) {
      if (type === "error") throw error;
      if (type !== "message") continue;
      if (message.type === "response.completed") return message.response;
      if (message.type === "error") return message;
    }
    throw new Error("the connection ended");
  };
  try {
    const first = await turn({ input: "My name is Ada." });
    const second = await turn({ input: "What is my name?", previous_response_id: first.id });
    assert.match(JSON.stringify(second.output), /Ada/);
    const ready = await turn({ input: [], generate: false });
    assert.equal(ready.usage?.total_tokens, 0);
  } finally {
    // An open connection would keep the process alive.
    socket.close();
  }
});

works("conversations", "a conversation remembers and grows", async (model) => {
  const items = [{ type: "message", role: "user", content: "My name is Ada." }];
  const talk = await client.conversations.create({ items });
  const response = await ask(model, "What is my name?", { conversation: talk.id });
  assert.match(response.output_text, /Ada/);
  assert.equal(response.conversation.id, talk.id);
  const kept = await gather(await client.conversations.items.list(talk.id, { order: "asc", limit: 1 }));
  assert.deepEqual(kept.map((item) => item.role), ["user", "user", "assistant"]);
  assert.equal((await client.conversations.delete(talk.id)).deleted, true);
  assert.equal((await failure(client.conversations.retrieve(talk.id))).status, 404);
});
