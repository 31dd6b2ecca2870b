// A client with the types that the API description makes, and one call of every surface. Node runs
// it as it is; the compiler checks it first.

import createClient from "openapi-fetch";
import type { components, paths } from "./schema.d.ts";

declare const process: { argv: string[]; env: Record<string, string | undefined> };
declare const console: { log(line: string): void };

const baseUrl = process.env["GATEWAY_URL"] ?? "";
const key = process.env["GATEWAY_KEY"] ?? "";
const headers = { authorization: `Bearer ${key}` };
const client = createClient<paths, "application/json">({ baseUrl, headers });

let checks = 0;

function check(what: string, holds: boolean): void {
  if (!holds) throw new Error(`${what} does not hold`);
  checks += 1;
}

/** The answer of a call that must succeed. */
function answered<T>(result: { data?: T; error?: unknown; response: Response }): T {
  if (result.data === undefined) {
    throw new Error(`${result.response.url}: ${result.response.status} ${JSON.stringify(result.error)}`);
  }
  return result.data;
}

type DryRun = components["schemas"]["DryRun"];

/** The answer of a provider, which is no dry run. */
function served<T>(result: { data?: T; error?: unknown; response: Response }): Exclude<T, DryRun> {
  const answer = answered(result);
  check("a provider answered", (answer as Partial<DryRun>).object !== "portunus.dry_run");
  return answer as Exclude<T, DryRun>;
}

/** The events of a stream, read with the type of its events. */
async function events<T>(result: { data?: unknown; error?: unknown; response: Response }): Promise<T[]> {
  const text = String(answered(result));
  const lines = text.split("\n").filter((line) => line.startsWith("data: ") && line !== "data: [DONE]");
  return lines.map((line) => JSON.parse(line.slice(6)) as T);
}

async function chat(): Promise<void> {
  const body: components["schemas"]["ChatRequest"] = {
    model: "demo-chat",
    messages: [{ role: "user", content: "Hello!" }],
  };
  const whole = served(await client.POST("/v1/chat/completions", { body }));
  check("a choice has a text", (whole.choices[0]?.message.content ?? "").length > 0);
  check("the choice has ended", whole.choices[0]?.finish_reason === "stop");
  const streamed = await client.POST("/v1/chat/completions", { body: { ...body, stream: true }, parseAs: "text" });
  const pieces = await events<components["schemas"]["ChatEvent"]>(streamed);
  check("a stream has pieces", pieces.length > 3 && pieces.every((piece) => "choices" in piece));
}

async function dryRun(): Promise<void> {
  const body = { model: "demo-chat", messages: [{ role: "user" as const, content: "Hello!" }] };
  const header = { "x-portunus-dry-run": true };
  const answer = answered(await client.POST("/v1/chat/completions", { params: { header }, body }));
  check("a dry run names its lane", "lane" in answer && answer.lane.length > 0);
}

async function responses(): Promise<void> {
  const body: components["schemas"]["ResponseRequest"] = { model: "demo-responses", input: "Hello!" };
  const made = served(await client.POST("/v1/responses", { body }));
  check("the response is complete", made.status === "completed" && made.output.length > 0);
  const path = { id: made.id };
  const stored = answered(await client.GET("/v1/responses/{id}", { params: { path } }));
  check("the response is stored", stored.id === made.id);
  const items = answered(await client.GET("/v1/responses/{id}/input_items", { params: { path } }));
  check("its input is stored", items.data.length === 1);
  check("it is deleted", answered(await client.DELETE("/v1/responses/{id}", { params: { path } })).deleted);
  const gone = await client.GET("/v1/responses/{id}", { params: { path } });
  check("a deleted response is gone", gone.response.status === 404 && gone.error !== undefined);
}

async function messages(): Promise<void> {
  const body: components["schemas"]["MessagesRequest"] = {
    model: "demo-messages",
    max_tokens: 64,
    messages: [{ role: "user", content: "Hello!" }],
  };
  const whole = served(await client.POST("/v1/messages", { body }));
  const text = whole.content.find((block) => block.type === "text");
  check("a block has a text", text !== undefined && whole.stop_reason === "end_turn");
  const streamed = await client.POST("/v1/messages", { body: { ...body, stream: true }, parseAs: "text" });
  const kinds = (await events<components["schemas"]["MessagesEvent"]>(streamed)).map((event) => event.type);
  check("a stream begins and ends", kinds[0] === "message_start" && kinds.at(-1) === "message_stop");
  const { model, messages } = body;
  const count = answered(await client.POST("/v1/messages/count_tokens", { body: { model, messages } }));
  check("tokens are counted", count.input_tokens > 0);
}

async function native(): Promise<void> {
  const body: components["schemas"]["ContentRequest"] = {
    contents: [{ role: "user", parts: [{ text: "Hello!" }] }],
    generationConfig: { temperature: 0, thinkingConfig: { includeThoughts: false } },
  };
  const path = { model: "demo-native" };
  const whole = served(await client.POST("/v1beta/models/{model}:generateContent", { params: { path }, body }));
  const candidate = whole.candidates?.[0];
  check("a candidate has a text", (candidate?.content?.parts?.[0]?.text ?? "").length > 0);
  check("the usage is told", (whole.usageMetadata?.totalTokenCount ?? 0) > 0);
  const params = { path, query: { alt: "sse" as const } };
  const streamed = await client.POST("/v1beta/models/{model}:streamGenerateContent", { params, body, parseAs: "text" });
  check("a stream has pieces", (await events<components["schemas"]["ContentEvent"]>(streamed)).length > 3);
  const vector = served(
    await client.POST("/v1beta/models/{model}:embedContent", {
      params: { path: { model: "demo-embed" } },
      body: { content: { parts: [{ text: "Hello!" }] }, outputDimensionality: 8 },
    }),
  );
  check("a vector has its length", vector.embedding.values.length === 8);
  const refused = await client.POST("/v1beta/models/{model}:generateContent", {
    params: { path: { model: "no-such-model" } },
    body,
  });
  check("an unknown model is an error", refused.error?.error.status === "NOT_FOUND");
}

async function others(): Promise<void> {
  const input = { model: "demo-embed", input: ["a", "b"] };
  check("two vectors", served(await client.POST("/v1/embeddings", { body: input })).data.length === 2);
  const picture = { model: "demo-image", prompt: "a lighthouse", size: "256x256" };
  const drawn = served(await client.POST("/v1/images/generations", { body: picture }));
  check("an image", "data" in drawn && (drawn.data?.length ?? 0) === 1);
  const catalog = answered(await client.GET("/api/models"));
  check("the catalog is complete", catalog.data.length === catalog.total);
  const models = answered(await client.GET("/v1/models"));
  check("a list of models", "data" in models && models.data.length > 0);
  const own = answered(await client.GET("/v1/key"));
  check("the key has no cap", own.cap_usd === null && own.scope === "call");
  const wrong = await client.GET("/v1/key", { headers: { authorization: "Bearer wrong" } });
  check("a wrong key is refused", wrong.error?.error.code === "invalid_api_key");
}

for (const surface of [chat, dryRun, responses, messages, native, others]) {
  await surface();
}
console.log(`${checks} checks with a generated client`);
