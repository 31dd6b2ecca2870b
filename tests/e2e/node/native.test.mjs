// The native format with the official Node client, whatever the upstream speaks.

import assert from "node:assert/strict";
import { ApiError, FinishReason, GoogleGenAI } from "@google/genai";
import {
  ABOUT, HARBOUR, IDLE, KEY, LISBON, LONG_STORY, NEWS, PARIS, PICTURE, SEEN, SHAPE, STORY, TIMEOUT,
  TOOL, TWO_CITIES, URL_, WEATHER, cell, failure, gather, isHarbour, near,
} from "./cells.mjs";

const make = (apiKey) =>
  new GoogleGenAI({ apiKey, httpOptions: { baseUrl: URL_, timeout: TIMEOUT } });
const client = make(KEY);
const works = (feature, fact, run) => cell("Native", feature, fact, run);
const ask = (model, contents, config = {}) =>
  client.models.generateContent({ model, contents, config });
const stream = (model, contents, config = {}) =>
  client.models.generateContentStream({ model, contents, config });
const said = (text) => ({ role: "user", parts: [{ text }] });
const TOOLS = [
  { functionDeclarations: [{ name: TOOL, description: ABOUT, parametersJsonSchema: SHAPE }] },
];
const THINKING = { thinkingConfig: { includeThoughts: true, thinkingBudget: 1024 } };
const partsOf = (reply) => reply.candidates[0].content?.parts ?? [];
const resultOf = (call, response, parts) => ({
  functionResponse: { id: call.id, name: call.name, response, parts },
});
const after = (text, reply, ...parts) => [
  said(text), reply.candidates[0].content, { role: "user", parts },
];

works("whole answer", "an answer has text and a reason to end", async (model) => {
  const reply = await ask(model, STORY);
  assert.ok(reply.text);
  assert.equal(reply.candidates[0].finishReason, FinishReason.STOP);
});

works("stream says the same", "a stream says the same as the whole answer", async (model) => {
  const whole = await ask(model, STORY);
  const pieces = await gather(await stream(model, STORY));
  assert.ok(pieces.length > 2);
  assert.equal(pieces.map((piece) => piece.text ?? "").join(""), whole.text);
  assert.equal(pieces.at(-1).candidates[0].finishReason, FinishReason.STOP);
});

works("tokens add up", "counts add up", async (model) => {
  const usage = (await ask(model, STORY, THINKING)).usageMetadata;
  const { promptTokenCount, candidatesTokenCount, thoughtsTokenCount, totalTokenCount } = usage;
  assert.equal(totalTokenCount, promptTokenCount + candidatesTokenCount + thoughtsTokenCount);
});

works("conversation", "a conversation remembers", async (model) => {
  const contents = [
    said("My name is Ada."),
    { role: "model", parts: [{ text: "Hello Ada." }] },
    said("What is my name?"),
  ];
  assert.match((await ask(model, contents, { systemInstruction: "Be polite." })).text, /Ada/);
});

works("stop word", "a stop word ends the answer", async (model) => {
  const whole = (await ask(model, STORY)).text;
  const word = whole.split(" ")[4];
  const cut = await ask(model, STORY, { stopSequences: [word] });
  assert.equal(cut.text, whole.slice(0, whole.indexOf(word)));
});

works("length limit", "a limit cuts the answer and says so", async (model) => {
  const reply = await ask(model, STORY, { maxOutputTokens: 20 });
  assert.equal(reply.candidates[0].finishReason, FinishReason.MAX_TOKENS);
});

works("picture", "a picture is seen", async (model) => {
  const picture = { inlineData: { mimeType: "image/png", data: PICTURE } };
  const contents = [{ role: "user", parts: [picture, { text: "What is this?" }] }];
  assert.ok((await ask(model, contents)).text.includes(SEEN));
});

works("structured output", "an answer fits the given shape", async (model) => {
  const config = { responseMimeType: "application/json", responseJsonSchema: HARBOUR };
  isHarbour((await ask(model, LISBON, config)).text);
});

works("tool choice", "the choice of tools is obeyed", async (model) => {
  const names = async (contents, mode) => {
    const toolConfig = { functionCallingConfig: { mode } };
    const reply = await ask(model, contents, { tools: TOOLS, toolConfig });
    return (reply.functionCalls ?? []).map((call) => call.name);
  };
  assert.deepEqual(await names(IDLE, "AUTO"), []);
  assert.deepEqual(await names(IDLE, "ANY"), [TOOL]);
  assert.deepEqual(await names(WEATHER, "NONE"), []);
});

works("parallel tool calls", "results of parallel calls find their calls", async (model) => {
  const first = await ask(model, TWO_CITIES, { tools: TOOLS });
  const results = first.functionCalls.map((call) =>
    resultOf(call, { output: `sunny in ${call.args.city}` }));
  const { text } = await ask(model, after(TWO_CITIES, first, ...results), { tools: TOOLS });
  assert.match(text, /sunny in Paris/);
  assert.match(text, /sunny in Oslo/);
});

works("streamed tool call", "a streamed call comes whole", async (model) => {
  const pieces = await gather(await stream(model, WEATHER, { tools: TOOLS }));
  const [call] = pieces.flatMap((piece) => piece.functionCalls ?? []);
  assert.deepEqual(call.args, PARIS);
});

works("tool round trip", "a result is put into words", async (model) => {
  const first = await ask(model, WEATHER, { tools: TOOLS });
  const result = resultOf(first.functionCalls[0], { temperature: 21 });
  assert.match((await ask(model, after(WEATHER, first, result), { tools: TOOLS })).text, /21/);
});

works("picture in a tool result", "a picture a tool gave is seen", async (model) => {
  const first = await ask(model, WEATHER, { tools: TOOLS });
  const parts = [{ inlineData: { mimeType: "image/png", data: PICTURE } }];
  const result = resultOf(first.functionCalls[0], { caption: "the sky" }, parts);
  const { text } = await ask(model, after(WEATHER, first, result), { tools: TOOLS });
  assert.ok(text.includes(SEEN));
});

works("the client's own tool loop", "functions are called automatically", async (model) => {
  const callable = {
    tool: async () => TOOLS[0],
    callTool: async (calls) => calls.map((call) => resultOf(call, { degrees: 21 })),
  };
  const reply = await ask(model, WEATHER, { tools: [callable] });
  assert.match(reply.text, /21/);
  assert.ok(reply.automaticFunctionCallingHistory.length >= 3);
});

works("thinking", "thoughts are shown when asked for", async (model) => {
  const thoughts = (replies) =>
    replies.flatMap(partsOf).filter((part) => part.thought).map((part) => part.text).join("");
  const whole = thoughts([await ask(model, STORY, THINKING)]);
  assert.ok(whole);
  assert.equal(thoughts(await gather(await stream(model, STORY, THINKING))), whole);
});

works("thinking handed back", "signatures go back with the result of a tool", async (model) => {
  const config = { tools: TOOLS, ...THINKING };
  const first = await ask(model, WEATHER, config);
  assert.ok(partsOf(first).some((part) => part.thoughtSignature));
  const result = resultOf(first.functionCalls[0], { temperature: 21 });
  assert.match((await ask(model, after(WEATHER, first, result), config)).text, /21/);
});

works("web search", "a search grounds the answer", async (model) => {
  const reply = await ask(model, NEWS, { tools: [{ googleSearch: {} }] });
  const { groundingMetadata } = reply.candidates[0];
  assert.match(groundingMetadata.groundingChunks[0].web.uri, /^https:/);
});

works("chat session", "a chat session keeps its own history", async (model) => {
  const chat = client.chats.create({ model, config: THINKING });
  await chat.sendMessage({ message: "My name is Ada." });
  await gather(await chat.sendMessageStream({ message: IDLE }));
  assert.match((await chat.sendMessage({ message: "What is my name?" })).text, /Ada/);
});

works("token count", "counting comes near what the answer counts", async (model) => {
  const { totalTokens } = await client.models.countTokens({ model, contents: STORY });
  near(totalTokens, (await ask(model, STORY)).usageMetadata.promptTokenCount);
});

works("errors", "errors are told in the words of the client", async (model) => {
  const stranger = make("not-a-key");
  const refused = [
    [() => stranger.models.generateContent({ model, contents: IDLE }), 401],
    [() => ask("no-such-model", IDLE), 404],
    [() => ask(model, IDLE, { temperature: 9 }), 400],
    [() => stream(model, IDLE, { temperature: 9 }), 400],
  ];
  for (const [call, status] of refused) {
    const error = await failure(call());
    assert.ok(error instanceof ApiError);
    assert.equal(error.status, status);
  }
});

works("stream left early", "a stream the caller leaves does not hurt the next", async (model) => {
  for (let times = 0; times < 3; times++) {
    for await (const _ of await stream(model, LONG_STORY)) break;
  }
  assert.ok((await ask(model, IDLE)).text);
});
