// A faulty upstream behind the gateway: every official Node client hears of it. The faults are
// ordered in the prompt; see docs/simulate.md.

import assert from "node:assert/strict";
import { test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { GoogleGenAI } from "@google/genai";
import OpenAI from "openai";
import { KEY, TIMEOUT, URL_ } from "./cells.mjs";

// The demo model says exactly what it is told to.
const TEXT =
  "The harbour is quiet at dawn and gulls wheel over the façade of the old customs house – " +
  "naïve tourists, 港口, ships 🚢 and a tide that turns as slowly as ever";
const UPSTREAMS = ["faulty-chat", "faulty-responses", "faulty-messages", "faulty-native"];
const BREAKS = [
  "reset-after after=1", "reset-after after=7", "truncate after=7", "end-early after=7",
  "bad-json after=7", "error-event after=7", "giant-frame after=7",
];
const HARMLESS = ["shred size=5", "dress how=crlf", "dress how=comments", "unknown-event", "swap"];

const openai = new OpenAI({ baseURL: `${URL_}/v1`, apiKey: KEY, maxRetries: 0, timeout: TIMEOUT });
const claude = new Anthropic({ baseURL: URL_, apiKey: KEY, maxRetries: 0, timeout: TIMEOUT });
const gemini = new GoogleGenAI({ apiKey: KEY, httpOptions: { baseUrl: URL_, timeout: TIMEOUT } });

const CALLERS = {
  chat: async function* (model, content) {
    const messages = [{ role: "user", content }];
    for await (const chunk of await openai.chat.completions.create({ model, messages, stream: true }))
      yield chunk.choices[0]?.delta.content ?? "";
  },
  responses: async function* (model, input) {
    const ask = { model, input, store: false, stream: true };
    for await (const event of await openai.responses.create(ask))
      if (event.type === "response.output_text.delta") yield event.delta;
  },
  messages: async function* (model, content) {
    const ask = { model, max_tokens: 500, messages: [{ role: "user", content }], stream: true };
    for await (const event of await claude.messages.create(ask))
      if (event.type === "content_block_delta") yield event.delta.text ?? "";
  },
  native: async function* (model, contents) {
    for await (const chunk of await gemini.models.generateContentStream({ model, contents }))
      yield chunk.text ?? "";
  },
};

for (const [name, caller] of Object.entries(CALLERS)) {
  const ask = (upstream, fault) => caller(upstream, `[[fault: ${fault}]] Say exactly: ${TEXT}`);
  for (const upstream of UPSTREAMS) {
    for (const fault of BREAKS) {
      test(`a broken stream is an error: ${name} [${upstream}] ${fault}`, { timeout: TIMEOUT }, async () => {
        let heard = "";
        await assert.rejects(async () => {
          for await (const piece of ask(upstream, fault)) heard += piece;
        });
        assert.ok(TEXT.startsWith(heard), heard);
      });
    }
    for (const fault of HARMLESS) {
      test(`oddities change nothing: ${name} [${upstream}] ${fault}`, { timeout: TIMEOUT }, async () => {
        let heard = "";
        for await (const piece of ask(upstream, fault)) heard += piece;
        assert.equal(heard, TEXT);
      });
    }
  }
}
