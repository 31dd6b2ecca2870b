// The request of the playground as code for curl, Python and Node.

import { bodyOf, formats } from "./formats.js";

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

// Code for a request: { base, format, model, turns, wish }. The last answer is left out.
export function code(language, { base, format: name, model, turns, wish }) {
  const asked = turns.filter((turn, at, all) => turn.role !== "assistant" || at < all.length - 1);
  const body = bodyOf(name, model, asked, { ...wish, stream: false });
  if (language === "curl") {
    const version = name === "messages" ? " \\\n  -H 'anthropic-version: 2023-06-01'" : "";
    return `curl ${base}${formats[name].path(model, false)} \\\n  -H "Authorization: Bearer $PORTUNUS_KEY"${version} \\\n  -H 'Content-Type: application/json' \\\n  -d '${literal(body).replaceAll("'", "'\\''")}'`;
  }
  const call = { chat: "chat.completions.create", responses: "responses.create", messages: "messages.create", images: "images.generate", embeddings: "embeddings.create" }[name];
  if (name === "native") {
    const { contents, config } = gemini(body);
    return language === "python"
      ? `import os\nfrom google import genai\n\nclient = genai.Client(api_key=os.environ["PORTUNUS_KEY"], http_options={"base_url": ${JSON.stringify(base)}})\nanswer = client.models.generate_content(\n${named({ model: model, contents, config })}\n)\nprint(answer.text)`
      : `import { GoogleGenAI } from "@google/genai";\n\nconst client = new GoogleGenAI({ apiKey: process.env.PORTUNUS_KEY, httpOptions: { baseUrl: ${JSON.stringify(base)} } });\nconst answer = await client.models.generateContent(${literal({ model: model, contents, config })});\nconsole.log(answer.text);`;
  }
  const anthropic = name === "messages";
  const root = anthropic ? base : `${base}/v1`;
  if (language === "python") {
    return `import os\nfrom ${anthropic ? "anthropic import Anthropic" : "openai import OpenAI"}\n\nclient = ${anthropic ? "Anthropic" : "OpenAI"}(base_url=${JSON.stringify(root)}, api_key=os.environ["PORTUNUS_KEY"])\nanswer = client.${call}(\n${named(body)}\n)\nprint(answer)`;
  }
  return `import ${anthropic ? "Anthropic" : "OpenAI"} from "${anthropic ? "@anthropic-ai/sdk" : "openai"}";\n\nconst client = new ${anthropic ? "Anthropic" : "OpenAI"}({ baseURL: ${JSON.stringify(root)}, apiKey: process.env.PORTUNUS_KEY });\nconst answer = await client.${call}(${literal(body)});\nconsole.log(answer);`;
}
