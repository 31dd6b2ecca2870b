// The formats of the playground: each writes a conversation and reads a reply.
//
// A turn is { role: "user", text, images } or { role: "tool", results: [{ id, name, text }] } or
// { role: "assistant", format, raw, text, calls }. Turns that are `skipped` had no answer. `raw` is
// the reply in its own format, so thinking signatures are returned unchanged; another format gets the
// text only.

const own = (turn, format) => turn.format === format && turn.raw !== undefined;
export const dataUrl = (image) => `data:${image.type};base64,${image.data}`;
const schemaOf = (tool) => tool.parameters ?? { type: "object", properties: {} };
// Attachments by kind: the words of a model's record.
export const kindOf = (file) => (file.type === "application/pdf" ? "document" : file.type.split("/")[0]);
const clean = (object) => Object.fromEntries(Object.entries(object).filter(([, v]) => v !== undefined));

// Conversation as a format can carry it. Calls of tools and their results become text where the calls
// are from another format, were shared as text, or have no results.
function readable(turns, format) {
  const written = [];
  for (const [place, turn] of turns.entries()) {
    const before = turns[place - 1];
    const after = turns[place + 1];
    if (turn.role === "assistant" && turn.calls?.length && !(own(turn, format) && after?.role === "tool")) {
      const calls = turn.calls.map((call) => `${call.name}(${call.args})`);
      written.push({ role: "assistant", text: [turn.text, ...calls].filter(Boolean).join("\n") });
    } else if (turn.role === "tool" && !(before?.role === "assistant" && own(before, format))) {
      written.push({ role: "user", text: turn.results.map((r) => `${r.name}: ${r.text}`).join("\n"), images: [] });
    } else {
      written.push(turn);
    }
  }
  return written;
}

// Body of the request for a conversation.
export const bodyOf = (format, model, turns, wish) =>
  formats[format].body(model, readable(turns.filter((turn) => !turn.skipped), format), wish);

export const formats = {
  chat: {
    path: () => "/v1/chat/completions",
    body(model, turns, wish) {
      const messages = wish.system ? [{ role: "system", content: wish.system }] : [];
      for (const turn of turns) {
        if (turn.role === "tool") {
          for (const r of turn.results) messages.push({ role: "tool", tool_call_id: r.id, content: r.text });
        } else if (turn.role === "assistant") {
          messages.push(own(turn, "chat") ? turn.raw : { role: "assistant", content: turn.text });
        } else if (turn.images.length) {
          const files = turn.images.map((i) => ({
            image: { type: "image_url", image_url: { url: dataUrl(i) } },
            video: { type: "video_url", video_url: { url: dataUrl(i) } },
            audio: { type: "input_audio", input_audio: { data: i.data, format: /mpeg|mp3/.test(i.type) ? "mp3" : "wav" } },
            document: { type: "file", file: { filename: i.name, file_data: dataUrl(i) } },
          }[kindOf(i)]));
          messages.push({ role: "user", content: [{ type: "text", text: turn.text }, ...files] });
        } else {
          messages.push({ role: "user", content: turn.text });
        }
      }
      return clean({
        model, messages,
        max_completion_tokens: wish.limit, temperature: wish.temperature,
        reasoning_effort: wish.effort || undefined,
        response_format: wish.schema && { type: "json_schema", json_schema: { name: wish.schema.name, schema: wish.schema.schema, strict: wish.schema.strict } },
        tools: wish.tools?.map((tool) => ({ type: "function", function: tool })),
        stream: wish.stream || undefined,
        stream_options: wish.stream ? { include_usage: true } : undefined,
      });
    },
    start: () => ({ role: "assistant", content: "" }),
    read(event, raw, show) {
      const choice = event.choices?.[0];
      const piece = choice?.delta ?? choice?.message;
      if (!piece) return raw;
      for (const [name, value] of Object.entries(piece)) {
        if (name === "tool_calls") {
          raw.tool_calls ??= [];
          value.forEach((call, place) => {
            const at = raw.tool_calls[call.index ?? place] ??= { id: "", type: "function", function: { name: "", arguments: "" } };
            const { index, function: part, ...rest } = call;
            Object.assign(at, rest);
            at.function.name += part?.name ?? "";
            at.function.arguments += part?.arguments ?? "";
          });
        } else if (name === "reasoning_details") {
          // Parts of one text are merged.
          const all = raw.reasoning_details ??= [];
          for (const { text, ...rest } of value) {
            const last = all.at(-1);
            if (last && last.index === rest.index && last.type === rest.type) Object.assign(last, rest, clean({ text: text === undefined ? last.text : (last.text ?? "") + text }));
            else all.push(clean({ ...rest, text }));
          }
        } else if (name === "images") {
          for (const image of value) show.image(image.image_url?.url);
        } else if (typeof value === "string" && name !== "role") {
          raw[name] = (raw[name] ?? "") + value;
        } else if (value !== null && name !== "role") {
          raw[name] = Array.isArray(value) && Array.isArray(raw[name]) ? raw[name].concat(value) : value;
        }
      }
      show.think(piece.reasoning_content ?? piece.reasoning);
      show.say(piece.content ?? piece.refusal);
      if (choice.finish_reason) show.end(choice.finish_reason);
      return raw;
    },
    calls: (raw) => (raw.tool_calls ?? []).map((c) => ({ id: c.id, name: c.function.name, args: c.function.arguments })),
  },

  responses: {
    path: () => "/v1/responses",
    body(model, turns, wish) {
      const input = [];
      for (const turn of turns) {
        if (turn.role === "tool") {
          for (const r of turn.results) input.push({ type: "function_call_output", call_id: r.id, output: r.text });
        } else if (turn.role === "assistant") {
          if (own(turn, "responses")) input.push(...turn.raw);
          else input.push({ role: "assistant", content: turn.text });
        } else {
          const files = turn.images.map((i) => (kindOf(i) === "image"
            ? { type: "input_image", image_url: dataUrl(i) }
            : { type: "input_file", filename: i.name, file_data: dataUrl(i) }));
          input.push({ role: "user", content: files.length ? [{ type: "input_text", text: turn.text }, ...files] : turn.text });
        }
      }
      return clean({
        model, input, instructions: wish.system || undefined, store: false,
        max_output_tokens: wish.limit, temperature: wish.temperature,
        reasoning: wish.effort ? { effort: wish.effort, summary: "auto" } : undefined,
        include: wish.effort ? ["reasoning.encrypted_content"] : undefined,
        text: wish.schema && { format: { type: "json_schema", name: wish.schema.name, schema: wish.schema.schema, strict: wish.schema.strict } },
        tools: wish.tools?.map((tool) => ({ type: "function", ...tool })),
        stream: wish.stream || undefined,
      });
    },
    start: () => [],
    read(event, raw, show) {
      const response = event.object === "response" ? event : event.response;
      if (event.type === "response.output_text.delta" || event.type === "response.refusal.delta") show.say(event.delta);
      if (event.type === "response.reasoning_summary_text.delta" || event.type === "response.reasoning_text.delta") show.think(event.delta);
      if (event.object === "response") {
        for (const item of event.output ?? []) {
          if (item.type === "reasoning") show.think(item.summary?.map((s) => s.text).join("\n"));
          if (item.type === "message") show.say(item.content?.map((c) => c.text ?? c.refusal ?? "").join(""));
        }
      }
      if (!response?.output || !/completed|incomplete/.test(response.status)) return raw;
      for (const item of response.output) {
        if (item.type === "image_generation_call" && item.result) show.image(`data:image/png;base64,${item.result}`);
      }
      show.end(response.incomplete_details?.reason ?? response.status);
      return response.output;
    },
    calls: (raw) => raw.filter((i) => i.type === "function_call").map((c) => ({ id: c.call_id, name: c.name, args: c.arguments })),
  },

  messages: {
    path: () => "/v1/messages",
    headers: { "anthropic-version": "2023-06-01" },
    body(model, turns, wish) {
      const messages = turns.map((turn) => {
        if (turn.role === "tool") {
          return { role: "user", content: turn.results.map((r) => ({ type: "tool_result", tool_use_id: r.id, content: r.text })) };
        }
        if (turn.role === "assistant") {
          return { role: "assistant", content: own(turn, "messages") ? turn.raw : turn.text };
        }
        const files = turn.images.map((i) => ({ type: kindOf(i) === "image" ? "image" : "document", source: { type: "base64", media_type: i.type, data: i.data } }));
        return { role: "user", content: files.length ? [...files, { type: "text", text: turn.text }] : turn.text };
      });
      const budget = { minimal: 1024, low: 1024, medium: 4096, high: 8192, xhigh: 16384, max: 32000 }[wish.effort];
      return clean({
        model, messages, system: wish.system || undefined,
        max_tokens: (wish.limit ?? 1024) + (budget ?? 0), temperature: budget ? undefined : wish.temperature,
        thinking: budget ? { type: "enabled", budget_tokens: budget } : wish.effort === "none" ? { type: "disabled" } : undefined,
        // Closed objects are demanded of every schema, so there is no `strict`.
        output_config: wish.schema && { format: { type: "json_schema", schema: wish.schema.schema } },
        tools: wish.tools?.map(({ name, description, ...rest }) => clean({ name, description, input_schema: schemaOf(rest) })),
        stream: wish.stream || undefined,
      });
    },
    start: () => [],
    read(event, raw, show) {
      if (event.type === "message") {
        for (const block of event.content) { show.think(block.thinking); show.say(block.text); }
        show.end(event.stop_reason);
        return event.content;
      }
      if (event.type === "content_block_start") raw[event.index] = { ...event.content_block };
      const block = raw[event.index];
      if (event.type === "content_block_delta" && block) {
        const delta = event.delta;
        if (delta.type === "text_delta") { block.text += delta.text; show.say(delta.text); }
        if (delta.type === "thinking_delta") { block.thinking += delta.thinking; show.think(delta.thinking); }
        if (delta.type === "signature_delta") block.signature = delta.signature;
        if (delta.type === "input_json_delta") block.json = (block.json ?? "") + delta.partial_json;
        if (delta.type === "citations_delta") (block.citations ??= []).push(delta.citation);
      }
      if (event.type === "content_block_stop" && block?.json !== undefined) {
        block.input = JSON.parse(block.json || "{}");
        delete block.json;
      }
      if (event.type === "message_delta" && event.delta?.stop_reason) show.end(event.delta.stop_reason);
      return raw;
    },
    calls: (raw) => raw.filter((b) => b.type === "tool_use").map((b) => ({ id: b.id, name: b.name, args: JSON.stringify(b.input) })),
  },

  native: {
    path: (model, stream) =>
      `/v1beta/models/${model.split("/").map(encodeURIComponent).join("/")}:${stream ? "streamGenerateContent?alt=sse" : "generateContent"}`,
    body(model, turns, wish) {
      const contents = turns.map((turn) => {
        if (turn.role === "tool") {
          const parts = turn.results.map((r) => ({ functionResponse: { id: r.id, name: r.name, response: { result: r.text } } }));
          return { role: "user", parts };
        }
        if (turn.role === "assistant") return { role: "model", parts: own(turn, "native") ? turn.raw : [{ text: turn.text }] };
        const images = turn.images.map((i) => ({ inlineData: { mimeType: i.type, data: i.data } }));
        return { role: "user", parts: [{ text: turn.text }, ...images] };
      });
      const level = { minimal: "MINIMAL", low: "LOW", medium: "MEDIUM", high: "HIGH", xhigh: "HIGH", max: "HIGH" }[wish.effort];
      const off = wish.effort === "none" ? { thinkingBudget: 0 } : undefined;
      const shape = clean({ aspectRatio: wish.ratio, imageSize: wish.size });
      const config = clean({
        maxOutputTokens: wish.limit, temperature: wish.temperature,
        responseMimeType: wish.schema && "application/json", responseJsonSchema: wish.schema?.schema,
        thinkingConfig: level ? { thinkingLevel: level, includeThoughts: true } : off,
        responseModalities: wish.picture ? ["TEXT", "IMAGE"] : undefined,
        imageConfig: wish.picture && Object.keys(shape).length ? shape : undefined,
      });
      return clean({
        contents,
        systemInstruction: wish.system ? { parts: [{ text: wish.system }] } : undefined,
        tools: wish.tools ? [{ functionDeclarations: wish.tools.map(({ parameters, ...rest }) => clean({ ...rest, parametersJsonSchema: parameters })) }] : undefined,
        generationConfig: Object.keys(config).length ? config : undefined,
      });
    },
    start: () => [],
    read(event, raw, show) {
      const candidate = event.candidates?.[0];
      for (const part of candidate?.content?.parts ?? []) {
        const last = raw.at(-1);
        const grows = part.text !== undefined && last?.text !== undefined && !last.thoughtSignature && Boolean(last.thought) === Boolean(part.thought);
        if (grows) Object.assign(last, part, { text: last.text + part.text });
        else raw.push({ ...part });
        if (part.thought) show.think(part.text); else show.say(part.text);
        if (part.inlineData) show.image(`data:${part.inlineData.mimeType};base64,${part.inlineData.data}`);
      }
      if (event.promptFeedback?.blockReason) show.end(`blocked: ${event.promptFeedback.blockReason}`);
      if (candidate?.finishReason) show.end(candidate.finishReason);
      return raw;
    },
    calls: (raw) => raw.filter((p) => p.functionCall).map(({ functionCall: c }) => ({ id: c.id, name: c.name, args: JSON.stringify(c.args ?? {}) })),
  },

  images: {
    path: () => "/v1/images/generations",
    body: (model, turns, wish) => clean({
      model, prompt: turns.at(-1).text, n: 1,
      size: wish.size, aspect_ratio: wish.ratio, quality: wish.quality, output_format: wish.file,
    }),
    start: () => [],
    read(event, raw, show) {
      for (const image of event.data ?? []) show.image(image.b64_json ? `data:image/${event.output_format ?? "png"};base64,${image.b64_json}` : image.url);
      show.end("done");
      return raw;
    },
    calls: () => [],
  },

  embeddings: {
    path: () => "/v1/embeddings",
    body: (model, turns) => ({ model, input: turns.at(-1).text }),
    start: () => [],
    read(event, raw, show) {
      const vector = event.data?.[0]?.embedding;
      if (!vector) return raw;
      const first = vector.slice(0, 8).map((value) => Number(value).toPrecision(4));
      show.say(`${vector.length} values: ${first.join(", ")}${vector.length > first.length ? ", …" : ""}`);
      show.end("done");
      return raw;
    },
    calls: () => [],
  },
};

// ---- Reading a stream ----

// Events of a reply; a whole reply is one event.

export async function* events(response) {
  const kind = response.headers.get("content-type") ?? "";
  if (kind.includes("json")) { yield await response.json(); return; }
  if (!kind.includes("event-stream")) throw new Error(`the gateway answered with status ${response.status} and no JSON.`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    rest += value ?? "";
    // One line of a picture comes in many pieces, which are joined once.
    if (!done && !value.includes("\n")) continue;
    const lines = rest.split("\n");
    rest = lines.pop();
    if (done && rest) lines.push(rest);
    for (const line of lines) {
      const data = line.startsWith("data:") ? line.slice(5).trim() : "";
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
    if (done) return;
  }
}

// Text of an error in an event.
export const faultOf = (event) => event.error?.message ?? event.response?.error?.message ?? (event.type === "error" ? event.message : undefined);
