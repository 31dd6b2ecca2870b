//! Example calls of a model in curl, Python and JavaScript.
//!
//! Tests send every example of the demo models' pages: the curl commands with curl, the programs
//! with the official clients.

use catalog::{Model, ModelKind};
use serde_json::{Value, json};

use crate::snippet::{ApiFormat, KEY_VARIABLE, pretty_body, shell_quoted, single_quoted};
use crate::urls;

const GREETING: &str = "Say hello.";
const PICTURE_PROMPT: &str = "A lighthouse at dusk.";

/// Key in an example.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExampleKey<'a> {
    /// The environment variable `PORTUNUS_KEY`.
    Variable,
    /// The key itself.
    Text(&'a str),
}

impl ExampleKey<'_> {
    fn in_shell(self) -> String {
        match self {
            Self::Variable => KEY_VARIABLE.to_owned(),
            Self::Text(text) => text.to_owned(),
        }
    }

    fn in_python(self) -> String {
        match self {
            Self::Variable => "os.environ[\"PORTUNUS_KEY\"]".to_owned(),
            Self::Text(text) => literal(text),
        }
    }

    fn in_javascript(self) -> String {
        match self {
            Self::Variable => "process.env.PORTUNUS_KEY".to_owned(),
            Self::Text(text) => literal(text),
        }
    }
}

/// An example call of one model in one format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallExample<'a> {
    format: ApiFormat,
    kind: ModelKind,
    url: &'a str,
    model: &'a str,
    /// Size of a picture that the model is known to make.
    size: Option<&'a str>,
    key: ExampleKey<'a>,
}

impl<'a> CallExample<'a> {
    /// Creates an example for the gateway at that URL.
    pub(crate) fn new(
        format: ApiFormat,
        model: &'a Model,
        url: &'a str,
        key: ExampleKey<'a>,
    ) -> Self {
        let sizes = model.capabilities.images.iter().flat_map(|images| &images.sizes);
        let size = sizes.map(String::as_str).find(|size| *size != "auto");
        Self { format, kind: model.kind, url, model: &model.id, size, key }
    }

    /// Format of the call.
    pub(crate) const fn format(self) -> ApiFormat {
        self.format
    }

    /// The call as a `curl` command.
    pub(crate) fn curl(self) -> String {
        let (path, body) = self.request();
        let key = self.key.in_shell();
        let headers = match self.format {
            ApiFormat::Chat | ApiFormat::Responses | ApiFormat::Images | ApiFormat::Embeddings => {
                format!("-H \"Authorization: Bearer {key}\"")
            }
            ApiFormat::Messages => {
                format!("-H \"x-api-key: {key}\" \\\n  -H 'anthropic-version: 2023-06-01'")
            }
            ApiFormat::Native => format!("-H \"x-goog-api-key: {key}\""),
        };
        format!(
            "curl {} \\\n  {headers} \\\n  -H 'Content-Type: application/json' \\\n  -d {}",
            shell_quoted(&format!("{}{path}", self.url)),
            single_quoted(&pretty_body(&body)),
        )
    }

    /// Path and body of the call.
    fn request(self) -> (String, Value) {
        let model = self.model;
        let native =
            |operator: &str| format!("/v1beta/models/{}:{operator}", urls::escape_path(model));
        match (self.format, self.kind) {
            (ApiFormat::Chat, _) => (
                "/v1/chat/completions".to_owned(),
                json!({ "model": model, "messages": [{ "role": "user", "content": GREETING }] }),
            ),
            (ApiFormat::Responses, _) => {
                ("/v1/responses".to_owned(), json!({ "model": model, "input": GREETING }))
            }
            (ApiFormat::Messages, _) => (
                "/v1/messages".to_owned(),
                json!({
                    "model": model,
                    "max_tokens": 256,
                    "messages": [{ "role": "user", "content": GREETING }],
                }),
            ),
            (ApiFormat::Native, ModelKind::Embedding) => {
                (native("embedContent"), json!({ "content": { "parts": [{ "text": GREETING }] } }))
            }
            (ApiFormat::Native, ModelKind::Chat | ModelKind::Image) => (
                native("generateContent"),
                json!({ "contents": [{ "role": "user", "parts": [{ "text": self.prompt() }] }] }),
            ),
            (ApiFormat::Images, _) => {
                let mut body = json!({ "model": model, "prompt": PICTURE_PROMPT });
                if let (Some(fields), Some(size)) = (body.as_object_mut(), self.size) {
                    fields.insert("size".to_owned(), json!(size));
                }
                ("/v1/images/generations".to_owned(), body)
            }
            (ApiFormat::Embeddings, _) => {
                ("/v1/embeddings".to_owned(), json!({ "model": model, "input": GREETING }))
            }
        }
    }

    const fn prompt(self) -> &'static str {
        match self.kind {
            ModelKind::Image => PICTURE_PROMPT,
            ModelKind::Chat | ModelKind::Embedding => GREETING,
        }
    }

    /// The call as a program for the official Python client of the format.
    pub(crate) fn python(self) -> String {
        let (base, key) = (literal(&self.format.base_url(self.url)), self.key.in_python());
        let (model, prompt) = (literal(self.model), literal(self.prompt()));
        let (import, client) = match self.format {
            ApiFormat::Chat | ApiFormat::Responses | ApiFormat::Images | ApiFormat::Embeddings => {
                ("from openai import OpenAI", format!("OpenAI(base_url={base}, api_key={key})"))
            }
            ApiFormat::Messages => (
                "from anthropic import Anthropic",
                format!("Anthropic(base_url={base}, api_key={key})"),
            ),
            ApiFormat::Native => (
                "from google import genai",
                format!(
                    "genai.Client(\n    api_key={key},\n    \
                     http_options={{\"base_url\": {base}, \"api_version\": \"v1beta\"}},\n)"
                ),
            ),
        };
        let messages = format!("messages=[{{\"role\": \"user\", \"content\": {prompt}}}]");
        let call = match (self.format, self.kind) {
            (ApiFormat::Chat, _) => format!(
                "answer = client.chat.completions.create(\n    model={model},\n    {messages},\n)\n\
                 print(answer.choices[0].message.content)"
            ),
            (ApiFormat::Responses, _) => format!(
                "answer = client.responses.create(model={model}, input={prompt})\n\
                 print(answer.output_text)"
            ),
            (ApiFormat::Messages, _) => format!(
                "answer = client.messages.create(\n    model={model},\n    max_tokens=256,\n    \
                 {messages},\n)\n\
                 print(\"\".join(block.text for block in answer.content if block.type == \"text\"))"
            ),
            (ApiFormat::Native, ModelKind::Chat) => format!(
                "answer = client.models.generate_content(model={model}, contents={prompt})\n\
                 print(answer.text)"
            ),
            (ApiFormat::Native, ModelKind::Embedding) => format!(
                "answer = client.models.embed_content(model={model}, contents={prompt})\n\
                 print(answer.embeddings[0].values)"
            ),
            (ApiFormat::Native, ModelKind::Image) => format!(
                "answer = client.models.generate_content(model={model}, contents={prompt})\n\
                 for part in answer.parts:\n    \
                     if part.inline_data:\n        \
                         open(\"picture.png\", \"wb\").write(part.inline_data.data)"
            ),
            (ApiFormat::Images, _) => {
                let size = self.size.map(|size| format!("    size={},\n", literal(size)));
                format!(
                    "answer = client.images.generate(\n    model={model},\n    prompt={prompt},\n\
                     {}    response_format=\"b64_json\",\n)\n\
                     open(\"picture.png\", \"wb\").write(base64.b64decode(answer.data[0].b64_json))",
                    size.unwrap_or_default()
                )
            }
            (ApiFormat::Embeddings, _) => format!(
                "answer = client.embeddings.create(model={model}, input={prompt})\n\
                 print(answer.data[0].embedding)"
            ),
        };
        let uses = [("base64.", "import base64\n"), ("os.environ", "import os\n")];
        let code = format!("{import}\n\nclient = {client}\n{call}");
        let imports: String = uses
            .into_iter()
            .filter(|(name, _)| code.contains(name))
            .map(|(_, line)| line)
            .collect();
        format!("{imports}{code}")
    }

    /// The call as a program for the official JavaScript client of the format.
    pub(crate) fn javascript(self) -> String {
        let (base, key) = (literal(&self.format.base_url(self.url)), self.key.in_javascript());
        let (model, prompt) = (literal(self.model), literal(self.prompt()));
        let (import, client) = match self.format {
            ApiFormat::Chat | ApiFormat::Responses | ApiFormat::Images | ApiFormat::Embeddings => (
                "import OpenAI from \"openai\";",
                format!("new OpenAI({{ baseURL: {base}, apiKey: {key} }})"),
            ),
            ApiFormat::Messages => (
                "import Anthropic from \"@anthropic-ai/sdk\";",
                format!("new Anthropic({{ baseURL: {base}, apiKey: {key} }})"),
            ),
            ApiFormat::Native => (
                "import { GoogleGenAI } from \"@google/genai\";",
                format!(
                    "new GoogleGenAI({{\n  apiKey: {key},\n  \
                     httpOptions: {{ baseUrl: {base}, apiVersion: \"v1beta\" }},\n}})"
                ),
            ),
        };
        let messages = format!("messages: [{{ role: \"user\", content: {prompt} }}]");
        let call = match (self.format, self.kind) {
            (ApiFormat::Chat, _) => format!(
                "const answer = await client.chat.completions.create({{\n  model: {model},\n  \
                 {messages},\n}});\n\
                 console.log(answer.choices[0].message.content);"
            ),
            (ApiFormat::Responses, _) => format!(
                "const answer = await client.responses.create({{ model: {model}, input: {prompt} }});\n\
                 console.log(answer.output_text);"
            ),
            (ApiFormat::Messages, _) => format!(
                "const answer = await client.messages.create({{\n  model: {model},\n  \
                 max_tokens: 256,\n  {messages},\n}});\n\
                 for (const block of answer.content) {{\n  \
                     if (block.type === \"text\") console.log(block.text);\n}}"
            ),
            (ApiFormat::Native, ModelKind::Chat) => format!(
                "const answer = await client.models.generateContent({{\n  model: {model},\n  \
                 contents: {prompt},\n}});\n\
                 console.log(answer.text);"
            ),
            (ApiFormat::Native, ModelKind::Embedding) => format!(
                "const answer = await client.models.embedContent({{\n  model: {model},\n  \
                 contents: {prompt},\n}});\n\
                 console.log(answer.embeddings[0].values);"
            ),
            (ApiFormat::Native, ModelKind::Image) => format!(
                "const answer = await client.models.generateContent({{\n  model: {model},\n  \
                 contents: {prompt},\n}});\n\
                 for (const part of answer.candidates[0].content.parts) {{\n  \
                     if (part.inlineData) await writeFile(\"picture.png\", part.inlineData.data, \"base64\");\n}}"
            ),
            (ApiFormat::Images, _) => {
                let size = self.size.map(|size| format!("  size: {},\n", literal(size)));
                format!(
                    "const answer = await client.images.generate({{\n  model: {model},\n  \
                     prompt: {prompt},\n{}  response_format: \"b64_json\",\n}});\n\
                     await writeFile(\"picture.png\", answer.data[0].b64_json, \"base64\");",
                    size.unwrap_or_default()
                )
            }
            (ApiFormat::Embeddings, _) => format!(
                "const answer = await client.embeddings.create({{ model: {model}, input: {prompt} }});\n\
                 console.log(answer.data[0].embedding);"
            ),
        };
        let writes = call.contains("writeFile");
        let file = if writes { "import { writeFile } from \"node:fs/promises\";\n" } else { "" };
        format!("{file}{import}\n\nconst client = {client};\n{call}")
    }
}

/// A string literal that Python and JavaScript read alike. All JSON strings are both.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(format: ApiFormat, model: &str) -> CallExample<'_> {
        CallExample {
            format,
            kind: ModelKind::Chat,
            url: "https://gw.example",
            model,
            size: None,
            key: ExampleKey::Variable,
        }
    }

    #[test]
    fn model_ids_are_quoted() {
        let id = "it's \"odd\"; rm -rf $HOME\n<script>";
        for format in ApiFormat::ALL {
            let curl = example(format, id).curl();
            let body = curl.split_once(" -d ").unwrap().1;
            let inner = body.strip_prefix('\'').unwrap().strip_suffix('\'').unwrap();
            let inner = inner.replace("'\\''", "");
            assert!(!inner.contains('\''), "{curl}");
            assert!(!curl.lines().next().unwrap().contains(['\'', '"', '$', ';']), "{curl}");
            let quoted = r#""it's \"odd\"; rm -rf $HOME\n<script>""#;
            assert!(example(format, id).python().contains(quoted));
            assert!(example(format, id).javascript().contains(quoted));
        }
    }
}
