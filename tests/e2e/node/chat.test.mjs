// The chat format with the official Node client, whatever the upstream speaks.

import assert from "node:assert/strict";
import OpenAI from "openai";
import {
  ABOUT, HARBOUR, IDLE, KEY, LISBON, LONG_STORY, NEWS, PARIS, PICTURE, RESULT, SEEN, SHAPE, STORY,
  TIMEOUT, TOOL, TWO_CITIES, URL_, WEATHER, cell, failure, gather, isHarbour,
} from "./cells.mjs";

const client = new OpenAI({ baseURL: `${URL_}/v1`, apiKey: KEY, maxRetries: 0, timeout: TIMEOUT });
const works = (feature, fact, run) => cell("Chat completions", feature, fact, run);
const user = (content) => ({ role: "user", content });
const ask = (model, said, more = {}) =>
  client.chat.completions.create({
    model, messages: typeof said === "string" ? [user(said)] : said, ...more,
  });
const messageOf = (answer) => answer.choices[0].message;
const TOOLS = [
  { type: "function", function: { name: TOOL, description: ABOUT, parameters: SHAPE } },
];
const textOf = (chunks) =>
  chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");

works("whole answer", "an answer has text and a reason to end", async (model) => {
  const answer = await ask(model, STORY);
  assert.equal(answer.model, model);
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.ok(messageOf(answer).content);
});

works("stream says the same", "a stream says the same as the whole answer", async (model) => {
  const whole = await ask(model, STORY);
  const chunks = await gather(await ask(model, STORY, { stream: true }));
  assert.equal(textOf(chunks), messageOf(whole).content);
  const helper = client.chat.completions.stream({ model, messages: [user(STORY)] });
  assert.equal(await helper.finalContent(), messageOf(whole).content);
});

works("tokens add up", "counts add up, whole and streamed", async (model) => {
  const { usage } = await ask(model, STORY);
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
  const more = { stream: true, stream_options: { include_usage: true } };
  const chunks = await gather(await ask(model, STORY, more));
  assert.equal(chunks.at(-1).usage.total_tokens, usage.total_tokens);
});

works("conversation", "a conversation remembers", async (model) => {
  const said = [
    { role: "system", content: "You are polite." },
    user("My name is Ada."),
    { role: "assistant", content: "Hello Ada." },
    user("What is my name?"),
  ];
  assert.match(messageOf(await ask(model, said)).content, /Ada/);
});

works("stop word", "a stop word ends the answer", async (model) => {
  const whole = messageOf(await ask(model, STORY)).content;
  const word = whole.split(" ")[4];
  const cut = messageOf(await ask(model, STORY, { stop: [word] })).content;
  assert.equal(cut, whole.slice(0, whole.indexOf(word)));
});

works("length limit", "a limit cuts the answer and says so", async (model) => {
  const answer = await ask(model, STORY, { max_completion_tokens: 20 });
  assert.equal(answer.choices[0].finish_reason, "length");
  assert.ok(answer.usage.completion_tokens <= 20);
});

works("picture", "a picture is seen", async (model) => {
  const image = { type: "image_url", image_url: { url: `data:image/png;base64,${PICTURE}` } };
  const answer = await ask(model, [user([image, { type: "text", text: "What is this?" }])]);
  assert.ok(messageOf(answer).content.includes(SEEN));
});

works("structured output", "an answer fits the given shape", async (model) => {
  const json_schema = { name: "harbour", schema: HARBOUR, strict: true };
  const answer = await ask(model, LISBON, {
    response_format: { type: "json_schema", json_schema },
  });
  isHarbour(messageOf(answer).content);
});

works("tool choice", "the choice of tools is obeyed", async (model) => {
  const names = async (said, tool_choice) => {
    const answer = await ask(model, said, { tools: TOOLS, tool_choice });
    return (messageOf(answer).tool_calls ?? []).map((call) => call.function.name);
  };
  assert.deepEqual(await names(IDLE, "auto"), []);
  assert.deepEqual(await names(IDLE, "required"), [TOOL]);
  assert.deepEqual(await names(IDLE, { type: "function", function: { name: TOOL } }), [TOOL]);
  assert.deepEqual(await names(WEATHER, "none"), []);
});

works("parallel tool calls", "parallel calls keep their ids apart", async (model) => {
  const message = messageOf(await ask(model, TWO_CITIES, { tools: TOOLS }));
  const results = message.tool_calls.map((call) => ({
    role: "tool",
    tool_call_id: call.id,
    content: `sunny in ${JSON.parse(call.function.arguments).city}`,
  }));
  const answer = await ask(model, [user(TWO_CITIES), message, ...results], { tools: TOOLS });
  assert.match(messageOf(answer).content, /sunny in Paris/);
  assert.match(messageOf(answer).content, /sunny in Oslo/);
});

works("streamed tool call", "a streamed call adds up to the whole one", async (model) => {
  const helper = client.chat.completions.stream({
    model, messages: [user(WEATHER)], tools: TOOLS,
  });
  const [call] = (await helper.finalMessage()).tool_calls;
  assert.equal(call.function.name, TOOL);
  assert.deepEqual(JSON.parse(call.function.arguments), PARIS);
});

works("tool round trip", "a result is put into words", async (model) => {
  const message = messageOf(await ask(model, WEATHER, { tools: TOOLS }));
  const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: RESULT };
  const answer = await ask(model, [user(WEATHER), message, result], { tools: TOOLS });
  assert.match(messageOf(answer).content, /21/);
});

works("the client's own tool loop", "runTools calls the function and goes on", async (model) => {
  for (const stream of [false, true]) {
    const tool = {
      name: TOOL, description: ABOUT, parameters: SHAPE, parse: JSON.parse,
      function: ({ city }) => `21 degrees in ${city}`,
    };
    const runner = client.chat.completions.runTools({
      model, stream, messages: [user(WEATHER)], tools: [{ type: "function", function: tool }],
    });
    assert.match(await runner.finalContent(), /21 degrees in Paris/);
  }
});

works("thinking", "thinking is shown beside the answer", async (model) => {
  const whole = messageOf(await ask(model, STORY, { reasoning_effort: "high" }));
  assert.ok(whole.reasoning_content);
  const chunks = await gather(await ask(model, STORY, { reasoning_effort: "high", stream: true }));
  const thoughts = chunks.map((chunk) => chunk.choices[0]?.delta.reasoning_content ?? "").join("");
  assert.equal(thoughts, whole.reasoning_content);
});

works("thinking handed back", "thinking goes back with the result of a tool", async (model) => {
  const more = { tools: TOOLS, reasoning_effort: "medium" };
  const message = messageOf(await ask(model, WEATHER, more));
  const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: RESULT };
  const answer = await ask(model, [user(WEATHER), message, result], more);
  assert.match(messageOf(answer).content, /21/);
});

works("web search", "a search gives sources", async (model) => {
  const message = messageOf(await ask(model, NEWS, { web_search_options: {} }));
  assert.match(message.annotations[0].url_citation.url, /^https:/);
});

works("errors", "errors are told in the words of the client", async (model) => {
  const stranger = client.withOptions({ apiKey: "sk-not-a-key" });
  const messages = [user(IDLE)];
  const unknown = await failure(stranger.chat.completions.create({ model, messages }));
  assert.ok(unknown instanceof OpenAI.AuthenticationError);
  const missing = await failure(ask("no-such-model", IDLE));
  assert.ok(missing instanceof OpenAI.NotFoundError);
  assert.equal(missing.code, "model_not_found");
  const bad = await failure(ask(model, IDLE, { temperature: 9, stream: true }));
  assert.ok(bad instanceof OpenAI.BadRequestError);
  assert.equal(bad.param, "temperature");
});

works("stream left early", "a stream the caller leaves does not hurt the next", async (model) => {
  for (let times = 0; times < 3; times++) {
    const stream = await ask(model, LONG_STORY, { stream: true });
    for await (const _ of stream) break;
    const aborted = new AbortController();
    const call = client.chat.completions.create(
      { model, messages: [user(LONG_STORY)] }, { signal: aborted.signal },
    );
    aborted.abort();
    assert.ok((await failure(call)) instanceof OpenAI.APIUserAbortError);
  }
  assert.ok(messageOf(await ask(model, IDLE)).content);
});
