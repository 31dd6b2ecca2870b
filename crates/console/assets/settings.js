// The settings of a request: the controls that the chosen models have, and presets.

import { readSchema, readTools } from "./json-text.js";
import { SETTING_NAMES } from "./record.js";

const LEVELS = ["minimal", "low", "medium", "high"];
const number = (text) => (text === "" ? undefined : Number(text));

// Words that every chosen model has; unknown lists allow all.
const common = (lists) => lists.filter((list) => list).reduce((all, list) => all?.filter((word) => list.includes(word)) ?? list, undefined);

export class Settings {
  constructor(form) {
    this.form = form;
    for (const name of ["tools", "schema"]) this.field(name).addEventListener("change", () => this.check(name));
    const put = (name, value) => {
      this.field(name).value = JSON.stringify(value, null, 2);
      this.check(name);
    };
    this.field("example-tool").addEventListener("click", () => {
      const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
      put("tools", [{ name: "get_weather", description: "The weather in a city", parameters }]);
    });
    this.field("example-schema").addEventListener("click", () => {
      const properties = { city: { type: "string" }, population: { type: "integer" } };
      put("schema", { title: "city", type: "object", properties, required: ["city", "population"], additionalProperties: false });
    });
  }

  field(name) { return this.form.elements.namedItem(name); }

  // Value of a JSON field. An error is shown below the field.
  parse(name) {
    const field = this.field(name);
    const problem = document.getElementById(`${name}-problem`);
    try {
      const value = name === "tools" ? readTools(field.value) : readSchema(field.value, this.field("strict").checked);
      problem.hidden = true;
      field.removeAttribute("aria-invalid");
      return value;
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
      field.setAttribute("aria-invalid", "true");
      throw error;
    }
  }

  check(name) { try { this.parse(name); } catch { /* It is shown. */ } }

  // Value of a JSON field for a request; the field of an error is opened and gets the focus.
  demand(name, title) {
    const field = this.field(name);
    const part = field.closest("details");
    if (part.hidden) return undefined;
    try { return this.parse(name); } catch (error) {
      part.open = true;
      field.focus();
      if (error.offset !== undefined) field.setSelectionRange(error.offset, error.offset);
      throw new Error(`${title}: ${error.message}`, { cause: error });
    }
  }

  // Wishes of a request. Fails if the tools or the schema are wrong.
  wishes() {
    const value = (name) => this.field(name).value;
    return {
      tools: this.demand("tools", "Tools"), schema: this.demand("schema", "JSON schema"),
      system: value("system").trim(), limit: number(value("limit")), temperature: number(value("temperature")),
      effort: value("effort"), stream: this.field("stream").checked,
      size: value("size") || undefined, ratio: value("ratio") || undefined,
      quality: value("quality") || undefined, file: value("file-format") || undefined,
    };
  }

  // The settings as they are kept.
  read(models) {
    const settings = { models };
    for (const name of SETTING_NAMES) {
      const field = this.field(name);
      settings[name] = field.type === "checkbox" ? field.checked : field.value;
    }
    return settings;
  }

  // Sets the controls. `fit` offers the choices of the models. Returns what could not be set.
  write(settings, fit) {
    this.set("format", settings.format);
    fit();
    const missing = SETTING_NAMES.filter((name) => !this.set(name, settings[name]));
    for (const name of ["tools", "schema"]) {
      this.check(name);
      this.field(name).closest("details").open = settings[name] !== "";
    }
    fit();
    return missing.map((name) => `${document.querySelector(`label[for=${name}]`)?.firstChild.textContent.trim() ?? name} "${settings[name]}"`);
  }

  set(name, value) {
    const field = this.field(name);
    if (field.type === "checkbox") { field.checked = value; return true; }
    field.value = value;
    if (field.value === value) return true;
    // A list without that choice, or a number that is none.
    field.value = field.options?.[0].value ?? "";
    return false;
  }

  choices(name, words) {
    const select = this.field(name);
    const chosen = select.value;
    const [first] = select.options;
    select.replaceChildren(first, ...(words ?? []).map((word) => new Option(word, word)));
    select.value = words?.includes(chosen) ? chosen : "";
    select.closest(".field").hidden = !words?.length;
  }

  bounds(name, least, most) {
    const input = this.field(name);
    input.min = least ?? "";
    input.max = most ?? "";
  }

  // Shows the controls that the models of the columns have.
  fit(open) {
    const { form } = this;
    const records = open.map((column) => column.record);
    const talks = open.some((column) => column.talks);
    const levels = ({ thinking }) => (thinking === undefined ? LEVELS : thinking === false ? [] : [...(thinking.can_disable ? ["none"] : []), ...(thinking.levels.length ? thinking.levels.filter((word) => word !== "none") : LEVELS)]);
    this.choices("effort", talks ? common(records.map(levels)) : []);
    const heat = records.map((record) => record.parameters?.temperature);
    this.field("temperature").closest(".field").hidden = !talks || heat.some((range) => range === false);
    this.bounds("temperature", 0, Math.min(...heat.map((range) => range?.max ?? 2)));
    const longest = Math.min(...records.map((record) => record.max_output_tokens ?? Infinity));
    this.bounds("limit", 1, Number.isFinite(longest) ? longest : undefined);
    this.field("limit").closest(".field").hidden = !talks;
    for (const name of ["system", "format"]) this.field(name).closest(".field").hidden = open.every((column) => column.kind === "embedding");
    const closed = (tools) => tools && !tools.includes("function") && !tools.includes("other");
    this.field("tools").closest("details").hidden = !talks || records.some(({ tools }) => closed(tools));
    this.field("schema").closest("details").hidden = !talks || records.some((record) => record.structured_output && !record.structured_output.includes("json-schema"));
    const pictures = open.filter((column) => column.isImage).map((column) => column.record.images ?? {});
    const offered = (key) => (pictures.length ? common(pictures.map((images) => images[key])) ?? [] : []);
    this.choices("size", offered("sizes"));
    this.choices("ratio", offered("ratios"));
    this.choices("quality", offered("qualities"));
    this.choices("file-format", offered("formats"));
    const carried = { chat: ["image", "audio", "video", "document"], responses: ["image", "document"], messages: ["image", "document"], native: ["image", "audio", "video", "document"], images: [], embeddings: [] };
    const media = common([...records.map((record) => record.input), ...open.map((column) => carried[column.format])]).filter((word) => word !== "text");
    const types = { image: "image/*", audio: "audio/*", video: "video/*", document: "application/pdf" };
    this.field("image").accept = media.map((word) => types[word]).join(",");
    this.field("image").hidden = !media.length;
    form.querySelector("label[for=image]").hidden = !media.length;
  }
}
