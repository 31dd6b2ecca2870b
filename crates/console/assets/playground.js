// The playground: builds a request in one of the formats, streams the reply, shows its cost.
"use strict";

const form = document.getElementById("play");
const field = (name) => form.elements[name];
const make = (tag, className, text) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
};

// ---- Formats: each writes a conversation and reads a reply ----
//
// A turn is { role: "user", text, images } or { role: "tool", results: [{ id, name, text }] } or
// { role: "assistant", format, raw, text }. `raw` is the reply in its own format, so thinking
// signatures are returned unchanged; another format gets the text only.

const own = (turn, format) => turn.format === format && turn.raw !== undefined;
const dataUrl = (image) => `data:${image.type};base64,${image.data}`;
const schemaOf = (tool) => tool.parameters ?? { type: "object", properties: {} };
const number = (text) => (text === "" ? undefined : Number(text));
// Attachments by kind: the words of a model's record.
const kindOf = (file) => (file.type === "application/pdf" ? "document" : file.type.split("/")[0]);
const clean = (object) => Object.fromEntries(Object.entries(object).filter(([, v]) => v !== undefined));

const formats = {
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

async function* events(response) {
  const kind = response.headers.get("content-type") ?? "";
  if (!kind.includes("event-stream")) { yield await response.json(); return; }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    rest += value ?? "";
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

const faultOf = (event) => event.error?.message ?? event.response?.error?.message ?? (event.type === "error" ? event.message : undefined);

// ---- One column: a model and its conversation ----

class Column {
  constructor(node) {
    this.node = node;
    this.log = node.querySelector(".talk");
    this.picker = node.querySelector("select");
    this.turns = [];
  }

  get model() { return this.picker.value; }
  get kind() { return this.picker.selectedOptions[0]?.dataset.kind; }
  get isImage() { return this.kind === "image"; }
  get talks() { return this.kind === "chat"; }
  // The record of the model; an absent value is unknown.
  get record() { return JSON.parse(this.picker.selectedOptions[0]?.dataset.capabilities ?? "{}"); }
  get format() {
    if (this.kind === "embedding") return "embeddings";
    return this.isImage && field("format").value !== "native" ? "images" : field("format").value;
  }
  get hidden() { return this.node.hidden; }

  clear() { this.turns = []; this.log.replaceChildren(); this.waiting = undefined; }

  async ask(turn, wish, signal) {
    this.turns.push(turn);
    this.log.append(bubble(turn));
    await this.run(wish, signal);
  }

  async run(wish, signal) {
    const name = this.format;
    const format = formats[name];
    const answer = this.log.appendChild(make("div", "turn assistant"));
    const thinking = make("details", "thinking");
    thinking.append(make("summary", "", "Thinking"), make("p"));
    const said = make("p", "said");
    const facts = make("p", "facts muted small", "…");
    answer.append(thinking, said, facts);
    thinking.hidden = true;
    const began = performance.now();
    let first, ended;
    const show = {
      say: (text) => { if (text) { first ??= performance.now(); said.textContent += text; } },
      think: (text) => { if (text) { first ??= performance.now(); thinking.hidden = false; thinking.lastChild.textContent += text; } },
      image: (url) => {
        if (!url) return;
        first ??= performance.now();
        const image = make("img");
        image.src = url; image.alt = "The picture the model made";
        said.after(image);
      },
      end: (why) => { ended = why; },
    };
    const fail = (text) => { answer.classList.add("failed"); answer.insertBefore(make("p", "objection", text), facts); };
    let raw = format.start();
    let id = "";
    try {
      const response = await fetch("/console/playground/call" + format.path(this.model, wish.stream), {
        method: "POST", signal, credentials: "same-origin",
        headers: { "content-type": "application/json", "x-playground-key": field("key").value, ...format.headers },
        body: JSON.stringify(format.body(this.model, this.turns, { ...wish, picture: this.isImage })),
      });
      id = response.headers.get("x-request-id") ?? "";
      if (response.redirected) { location.href = "/login"; return; }
      for await (const event of events(response)) {
        const fault = faultOf(event);
        if (fault) { fail(fault); break; }
        raw = format.read(event, raw, show);
        this.log.scrollTop = this.log.scrollHeight;
      }
    } catch (error) {
      fail(signal.aborted ? "Stopped." : `The answer broke off: ${error.message}`);
    }
    const text = said.textContent;
    const calls = format.calls(raw);
    if (text || calls.length) this.turns.push({ role: "assistant", format: name, raw, text });
    else this.turns.pop();
    const times = [first && `first token ${Math.round(first - began)} ms`, `${Math.round(performance.now() - began)} ms in all`, ended];
    facts.textContent = times.filter(Boolean).join(" · ");
    if (id) await receipt(id, facts);
    if (calls.length) this.askForResults(calls);
  }

  // Tools run at the caller, so the user enters their results.
  askForResults(calls) {
    const box = this.log.appendChild(make("div", "turn calls"));
    const inputs = calls.map((call) => {
      const label = make("label", "", `${call.name}(${call.args})`);
      const input = make("input");
      input.placeholder = "What the tool answers";
      label.append(input);
      box.append(label);
      return input;
    });
    const send = make("button", "button", "Send results");
    send.type = "button";
    send.addEventListener("click", () => {
      box.remove();
      const results = calls.map((call, place) => ({ id: call.id, name: call.name, text: inputs[place].value || "done" }));
      go((wish, signal) => this.ask({ role: "tool", results }, wish, signal));
    });
    box.append(send);
  }
}

function bubble(turn) {
  const node = make("div", `turn ${turn.role}`);
  const text = turn.role === "tool" ? turn.results.map((r) => `${r.name}: ${r.text}`).join("\n") : turn.text;
  node.append(make("p", "said", text));
  for (const image of turn.images ?? []) {
    if (kindOf(image) !== "image") { node.append(make("p", "muted small", image.name)); continue; }
    const picture = make("img");
    picture.src = dataUrl(image); picture.alt = "An attached picture";
    node.append(picture);
  }
  return node;
}

// The receipt exists a moment after the last byte.
async function receipt(id, facts) {
  for (let tries = 0; tries < 5; tries += 1) {
    const got = await fetch(`/console/playground/call/v1/usage/${id}`, { headers: { "x-playground-key": field("key").value } });
    if (got.ok) {
      const entry = await got.json();
      const cost = entry.cost_usd.replace(/0+$/, "").replace(/\.$/, ".0");
      facts.textContent += ` · ${entry.input_tokens} in, ${entry.output_tokens} out${entry.estimated ? " (estimated)" : ""} · $${cost}`;
      if (entry.losses?.length) facts.textContent += ` · not carried: ${entry.losses.join(", ")}`;
      return;
    }
    await new Promise((done) => setTimeout(done, 200));
  }
}

// ---- The page ----

const columns = [...document.querySelectorAll(".column")].map((node) => new Column(node));
let running;

function wishes() {
  let tools;
  const text = field("tools").value.trim();
  if (text) {
    tools = JSON.parse(text);
    if (!Array.isArray(tools)) throw new Error("Tools must be a JSON list.");
  }
  return {
    system: field("system").value.trim(), limit: number(field("limit").value), temperature: number(field("temperature").value),
    effort: field("effort").value, stream: field("stream").checked, tools,
    size: field("size").value || undefined, ratio: field("ratio").value || undefined,
    quality: field("quality").value || undefined, file: field("file-format").value || undefined,
  };
}

// ---- Controls by the records of the chosen models ----

const LEVELS = ["minimal", "low", "medium", "high"];

// Words that every chosen model has; unknown lists allow all.
const common = (lists) => lists.filter((list) => list).reduce((all, list) => all?.filter((word) => list.includes(word)) ?? list, undefined);

function choices(name, words) {
  const select = field(name);
  const chosen = select.value;
  const [first] = select.options;
  select.replaceChildren(first, ...(words ?? []).map((word) => new Option(word, word)));
  select.value = words?.includes(chosen) ? chosen : "";
  select.closest(".field").hidden = !words?.length;
}

function bounds(name, least, most) {
  const input = field(name);
  input.min = least ?? "";
  input.max = most ?? "";
}

function fitControls() {
  const open = columns.filter((column) => !column.hidden);
  const records = open.map((column) => column.record);
  const talks = open.some((column) => column.talks);
  const levels = ({ thinking }) => (thinking === undefined ? LEVELS : thinking === false ? [] : [...(thinking.can_disable ? ["none"] : []), ...(thinking.levels.length ? thinking.levels.filter((word) => word !== "none") : LEVELS)]);
  choices("effort", talks ? common(records.map(levels)) : []);
  const heat = records.map((record) => record.parameters?.temperature);
  field("temperature").closest(".field").hidden = !talks || heat.some((range) => range === false);
  bounds("temperature", 0, Math.min(...heat.map((range) => range?.max ?? 2)));
  const longest = Math.min(...records.map((record) => record.max_output_tokens ?? Infinity));
  bounds("limit", 1, Number.isFinite(longest) ? longest : undefined);
  field("limit").closest(".field").hidden = !talks;
  for (const name of ["system", "format"]) field(name).closest(".field").hidden = open.every((column) => column.kind === "embedding");
  const closed = (tools) => tools && !tools.includes("function") && !tools.includes("other");
  field("tools").closest("details").hidden = !talks || records.some(({ tools }) => closed(tools));
  const pictures = open.filter((column) => column.isImage).map((column) => column.record.images ?? {});
  const offered = (key) => (pictures.length ? common(pictures.map((images) => images[key])) ?? [] : []);
  choices("size", offered("sizes"));
  choices("ratio", offered("ratios"));
  choices("quality", offered("qualities"));
  choices("file-format", offered("formats"));
  const carried = { chat: ["image", "audio", "video", "document"], responses: ["image", "document"], messages: ["image", "document"], native: ["image", "audio", "video", "document"], images: [], embeddings: [] };
  const media = common([...records.map((record) => record.input), ...open.map((column) => carried[column.format])]).filter((word) => word !== "text");
  const types = { image: "image/*", audio: "audio/*", video: "video/*", document: "application/pdf" };
  field("image").accept = media.map((word) => types[word]).join(",");
  field("image").hidden = !media.length;
  document.querySelector("label[for=image]").hidden = !media.length;
}

async function go(ask) {
  const problem = document.getElementById("problem");
  problem.hidden = true;
  let wish;
  try { wish = wishes(); } catch (error) { problem.textContent = `Tools: ${error.message}`; problem.hidden = false; return; }
  running = new AbortController();
  field("send").hidden = true; field("stop").hidden = false;
  try { await ask(wish, running.signal); } finally {
    running = undefined;
    field("send").hidden = false; field("stop").hidden = true;
    field("text").focus();
  }
}

async function attached() {
  const images = [];
  for (const file of field("image").files) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    let text = "";
    for (const byte of bytes) text += String.fromCharCode(byte);
    images.push({ type: file.type, name: file.name, data: btoa(text) });
  }
  return images;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = field("text").value.trim();
  if (!text || running) return;
  const images = await attached();
  field("text").value = ""; field("image").value = "";
  const open = columns.filter((column) => !column.hidden);
  await go((wish, signal) => Promise.all(open.map((column) => column.ask({ role: "user", text, images }, wish, signal))));
});
field("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
});
field("stop").addEventListener("click", () => running?.abort());
field("clear").addEventListener("click", () => columns.forEach((column) => column.clear()));
field("compare").addEventListener("change", () => {
  columns[1].node.hidden = !field("compare").checked;
  document.querySelector(".columns-two").classList.toggle("both", field("compare").checked);
  columns[1].clear();
  fitControls();
});
for (const column of columns) column.picker.addEventListener("change", fitControls);
field("format").addEventListener("change", fitControls);
fitControls();
field("example-tool").addEventListener("click", () => {
  const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  field("tools").value = JSON.stringify([{ name: "get_weather", description: "The weather in a city", parameters }], null, 2);
});

// ---- Show as code ----

const python = (value, pad = "") => {
  const deeper = pad + "    ";
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return value.length ? `[\n${value.map((v) => deeper + python(v, deeper)).join(",\n")},\n${pad}]` : "[]";
  if (typeof value === "object") return `{\n${Object.entries(value).map(([k, v]) => `${deeper}${JSON.stringify(k)}: ${python(v, deeper)}`).join(",\n")},\n${pad}}`;
  return JSON.stringify(value);
};
const named = (body) => Object.entries(body).map(([k, v]) => `    ${k}=${python(v, "    ")},`).join("\n");
const literal = (body) => JSON.stringify(body, null, 2);
const gemini = ({ contents, generationConfig, ...rest }) => ({ contents, config: { ...generationConfig, ...rest } });

function code(language, column) {
  const wish = { ...wishes(), stream: false };
  const turns = column.turns.length ? column.turns.filter((t, at, all) => t.role !== "assistant" || at < all.length - 1) : [{ role: "user", text: field("text").value || "Hello!", images: [] }];
  const name = column.format;
  const body = formats[name].body(column.model, turns, { ...wish, picture: column.isImage });
  const base = form.dataset.url;
  if (language === "curl") {
    const version = name === "messages" ? " \\\n  -H 'anthropic-version: 2023-06-01'" : "";
    return `curl ${base}${formats[name].path(column.model, false)} \\\n  -H "Authorization: Bearer $PORTUNUS_KEY"${version} \\\n  -H 'Content-Type: application/json' \\\n  -d '${literal(body).replaceAll("'", "'\\''")}'`;
  }
  const call = { chat: "chat.completions.create", responses: "responses.create", messages: "messages.create", images: "images.generate", embeddings: "embeddings.create" }[name];
  if (name === "native") {
    const { contents, config } = gemini(body);
    return language === "python"
      ? `import os\nfrom google import genai\n\nclient = genai.Client(api_key=os.environ["PORTUNUS_KEY"], http_options={"base_url": ${JSON.stringify(base)}})\nanswer = client.models.generate_content(\n${named({ model: column.model, contents, config })}\n)\nprint(answer.text)`
      : `import { GoogleGenAI } from "@google/genai";\n\nconst client = new GoogleGenAI({ apiKey: process.env.PORTUNUS_KEY, httpOptions: { baseUrl: ${JSON.stringify(base)} } });\nconst answer = await client.models.generateContent(${literal({ model: column.model, contents, config })});\nconsole.log(answer.text);`;
  }
  const anthropic = name === "messages";
  const root = anthropic ? base : `${base}/v1`;
  if (language === "python") {
    return `import os\nfrom ${anthropic ? "anthropic import Anthropic" : "openai import OpenAI"}\n\nclient = ${anthropic ? "Anthropic" : "OpenAI"}(base_url=${JSON.stringify(root)}, api_key=os.environ["PORTUNUS_KEY"])\nanswer = client.${call}(\n${named(body)}\n)\nprint(answer)`;
  }
  return `import ${anthropic ? "Anthropic" : "OpenAI"} from "${anthropic ? "@anthropic-ai/sdk" : "openai"}";\n\nconst client = new ${anthropic ? "Anthropic" : "OpenAI"}({ baseURL: ${JSON.stringify(root)}, apiKey: process.env.PORTUNUS_KEY });\nconst answer = await client.${call}(${literal(body)});\nconsole.log(answer);`;
}

const dialog = document.getElementById("as-code");
function showCode() {
  try { document.getElementById("code-text").textContent = code(field("language").value, columns[0]); } catch (error) {
    document.getElementById("code-text").textContent = `Tools: ${error.message}`;
  }
}
field("show-code").addEventListener("click", () => { showCode(); dialog.showModal(); });
field("language").addEventListener("change", showCode);
document.getElementById("close-code").addEventListener("click", () => dialog.close());
