//! A request for every field that names an object.

use dialects::Dialect;
use serde_json::{Value, json};

use super::native_samples::native_fields;

/// A field that names an object: its path without indexes, the fields of a request around it, and
/// its path in an error.
pub(super) struct NamedField {
    pub(super) path: &'static str,
    fields: Value,
    pub(super) shown: &'static str,
}

pub(super) fn field(path: &'static str, fields: Value, shown: &'static str) -> NamedField {
    NamedField { path, fields, shown }
}

pub(super) const ID: &str = "x_operators_own";

fn chat_fields() -> Vec<NamedField> {
    let hi = json!({ "role": "user", "content": "Hi" });
    let file = json!({ "type": "file", "file": { "file_id": ID } });
    let thought = |signed: Value| {
        let mut detail = json!({ "type": "reasoning.text", "text": "Hm", "index": 0,
            "format": "openai-responses-v1" });
        for (name, value) in signed.as_object().unwrap() {
            detail[name] = value.clone();
        }
        json!({ "messages": [hi, { "role": "assistant", "content": "Ho", "reasoning_details": [detail] }, hi] })
    };
    let google = json!({ "cached_content": ID });
    vec![
        field(
            "messages|prediction.content.file|image_file?.file_id",
            json!({ "messages": [{ "role": "user", "content": [{ "type": "file", "file_id": ID,
                "file": { "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0x" } }] }] }),
            "messages[0].content[0].file_id",
        ),
        field(
            "messages.reasoning_details.signature|data",
            thought(json!({ "signature": "rs_1:" })),
            "messages[1].reasoning_details[0].signature",
        ),
        field(
            "messages.reasoning_details.signature|data",
            thought(json!({ "type": "reasoning.encrypted", "data": "rs_1:" })),
            "messages[1].reasoning_details[0].data",
        ),
        field(
            "messages.content.text?",
            json!({ "messages": [{ "role": "system", "content": "fileid://file-fe-1" }, hi] }),
            "messages[0].content",
        ),
        field(
            "messages.content.text?",
            json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "fileid://x" }] }] }),
            "messages[0].content[0].text",
        ),
        field(
            "data_sources|dataSources.parameters?.**",
            json!({ "data_sources": [{ "parameters": { "index_name": ID }, "type": "azure_search" }] }),
            "data_sources[0].parameters.index_name",
        ),
        field(
            "data_sources|dataSources.parameters?.**",
            json!({ "dataSources": [{ "type": "azure_search", "parameters": {} }] }),
            "dataSources[0].type",
        ),
        field(
            "extra_body?.google?.cached_content|cachedContent",
            json!({ "extra_body": { "google": google } }),
            "extra_body.google.cached_content",
        ),
        field(
            "extra_body?.google?.cached_content|cachedContent",
            json!({ "google": google }),
            "google.cached_content",
        ),
        field(
            "extra_body?.google?.cached_content|cachedContent",
            json!({ "extra_body": { "google": { "cachedContent": ID } } }),
            "extra_body.google.cachedContent",
        ),
        field("preset", json!({ "preset": ID }), "preset"),
        field("models", json!({ "models": [ID] }), "models[0]"),
        field(
            "plugins.model",
            json!({ "plugins": [{ "id": "fusion", "model": ID }] }),
            "plugins[0].model",
        ),
        field(
            "audio.voice",
            json!({ "modalities": ["text", "audio"], "audio": { "voice": "voice_1", "format": "mp3" } }),
            "audio.voice",
        ),
        field(
            "kv_transfer_params.**",
            json!({ "kv_transfer_params": { "do_remote_prefill": true, "remote_engine_id": ID } }),
            "kv_transfer_params.remote_engine_id",
        ),
        field(
            "images|image|mask|input_images|reference_images.file_id",
            json!({ "images": [{ "file_id": ID }] }),
            "images[0].file_id",
        ),
        field(
            "images|image|mask|input_images|reference_images.file_id",
            json!({ "reference_images": [{ "file_id": ID }] }),
            "reference_images[0].file_id",
        ),
        field(
            "documents|inputs.file_id",
            json!({ "documents": [{ "file_id": ID }] }),
            "documents[0].file_id",
        ),
        field(
            "messages|prediction.content.file|image_file?.file_id",
            json!({ "prediction": { "type": "content", "content": [file] } }),
            "prediction.content[0].file.file_id",
        ),
        field(
            "messages|prediction.content.file|image_file?.file_id",
            json!({ "messages": [{ "role": "user", "content": [
                { "type": "image_file", "image_file": { "file_id": ID } }] }] }),
            "messages[0].content[0].image_file.file_id",
        ),
        field(
            ids_row(&dialects::chat::ChatDialect, "tools|tool_resources|container.**."),
            json!({ "tool_resources": { "file_search": { "vector_store_ids": [ID] } } }),
            "tool_resources.file_search.vector_store_ids[0]",
        ),
        field("container.id?", json!({ "container": { "id": ID } }), "container.id"),
        field(
            "messages|prediction.content.file|image_file?.file_id",
            json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Hi" }, file] }] }),
            "messages[0].content[1].file.file_id",
        ),
        field(
            "messages.audio.id",
            json!({ "messages": [hi, { "role": "assistant", "content": "Ho", "audio": { "id": ID } }, hi] }),
            "messages[1].audio.id",
        ),
        field(
            "audio.voice.id",
            json!({ "modalities": ["text", "audio"], "audio": { "voice": { "id": ID }, "format": "mp3" } }),
            "audio.voice.id",
        ),
    ]
}

fn messages_fields() -> Vec<NamedField> {
    let source = json!({ "type": "file", "file_id": ID });
    let image = json!({ "type": "image", "source": source });
    let document =
        json!({ "type": "document", "source": { "type": "content", "content": [image] } });
    let nested =
        json!({ "type": "document", "source": { "type": "content", "content": [document] } });
    let user = |block: &Value| json!({ "messages": [{ "role": "user", "content": [block] }] });
    let hi = json!({ "role": "user", "content": "Hi" });
    let result = |block: &Value| {
        json!({ "messages": [hi,
            { "role": "assistant", "content": [{ "type": "tool_use", "id": "t1", "name": "f", "input": {} }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "content": [block] }] }],
            "tools": [{ "name": "f", "input_schema": { "type": "object" } }] })
    };
    let server = |kind: &str, content: Value| {
        json!({ "messages": [hi, { "role": "assistant", "content": [
            { "type": "server_tool_use", "id": "srvtoolu_1", "name": "x", "input": {} },
            { "type": kind, "tool_use_id": "srvtoolu_1", "content": content }] }, hi] })
    };
    let fetched = |document: &Value| {
        let page =
            json!({ "type": "web_fetch_result", "url": "https://e.example", "content": document });
        server("web_fetch_tool_result", page)
    };
    let output = json!([{ "type": "bash_code_execution_output", "file_id": ID }]);
    let ran = json!({ "type": "bash_code_execution_result", "stdout": "", "stderr": "",
        "return_code": 0, "content": output });
    vec![
        field("models", json!({ "models": [ID] }), "models[0]"),
        field(
            "fallbacks|plugins.model",
            json!({ "fallbacks": [{ "model": ID }] }),
            "fallbacks[0].model",
        ),
        field(
            "tools.model",
            json!({ "tools": [{ "type": "advisor_20260301", "name": "advisor", "model": ID }] }),
            "tools[0].model",
        ),
        field("system.text?", json!({ "system": "fileid://file-fe-1" }), "system"),
        field(
            "messages.content.text?",
            json!({ "messages": [{ "role": "user", "content": "\u{feff} fileid://file-fe-1" }] }),
            "messages[0].content",
        ),
        field(
            "messages.content.content?.content?.source?.content?.source?.content?.source?.file_id",
            user(&image),
            "messages[0].content[0].source.file_id",
        ),
        field(
            "messages.content.content?.content?.source?.content?.source?.content?.source?.file_id",
            user(&document),
            "messages[0].content[0].source.content[0].source.file_id",
        ),
        field(
            "messages.content.content?.content?.source?.content?.source?.content?.source?.file_id",
            user(&nested),
            "messages[0].content[0].source.content[0].source.content[0].source.file_id",
        ),
        field(
            "messages.content.content?.content?.source?.content?.source?.content?.source?.file_id",
            result(&image),
            "messages[2].content[0].content[0].source.file_id",
        ),
        field(
            "messages.content.content?.content?.source?.content?.source?.content?.source?.file_id",
            result(&document),
            "messages[2].content[0].content[0].source.content[0].source.file_id",
        ),
        field(
            "messages.content.content?.content?.source?.content?.source?.content?.source?.file_id",
            fetched(&json!({ "type": "document", "source": source })),
            "messages[1].content[1].content.content.source.file_id",
        ),
        field(
            "messages.content.content?.content?.source?.content?.source?.content?.source?.file_id",
            fetched(&document),
            "messages[1].content[1].content.content.source.content[0].source.file_id",
        ),
        field(
            "messages.content.content?.content?.source?.content?.source?.content?.source?.file_id",
            user(&json!({ "type": "container_upload", "file_id": ID })),
            "messages[0].content[0].file_id",
        ),
        field(
            "messages.content.content?.content?.source?.content?.source?.content?.source?.file_id",
            server("bash_code_execution_tool_result", ran),
            "messages[1].content[1].content.content[0].file_id",
        ),
        field("container.id?", json!({ "container": ID }), "container"),
        field("container.id?", json!({ "container": { "id": ID } }), "container.id"),
        field(
            "container.skills.skill_id",
            json!({ "container": { "skills": [{ "type": "anthropic", "skill_id": "pptx" },
                { "type": "custom", "skill_id": ID, "version": "latest" }] } }),
            "container.skills[1].skill_id",
        ),
        field(
            "diagnostics.previous_message_id",
            json!({ "diagnostics": { "previous_message_id": ID } }),
            "diagnostics.previous_message_id",
        ),
        field("user_profile_id", json!({ "user_profile_id": ID }), "user_profile_id"),
        field("workspace_id", json!({ "workspace_id": ID }), "workspace_id"),
    ]
}

fn responses_fields() -> Vec<NamedField> {
    let hi = json!({ "role": "user", "content": "Hi" });
    let item = |item: Value| json!({ "input": [hi, item] });
    let call = json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" });
    let part = json!([{ "type": "input_image", "file_id": ID }]);
    let output = json!({ "type": "function_call_output", "call_id": "c", "output": part });
    let tools = [
        ("", json!({ "type": "file_search", "vector_store_ids": [ID] }), "vector_store_ids[0]"),
        (
            "input?.tools.**.container",
            json!({ "type": "code_interpreter", "container": ID }),
            "container",
        ),
        (
            "",
            json!({ "type": "code_interpreter", "container": { "type": "auto", "file_ids": [ID] } }),
            "container.file_ids[0]",
        ),
        (
            "",
            json!({ "type": "shell", "environment": { "type": "container_reference", "container_id": ID } }),
            "environment.container_id",
        ),
        (
            "",
            json!({ "type": "shell", "environment": { "type": "container_auto", "file_ids": [ID] } }),
            "environment.file_ids[0]",
        ),
        (
            "input?.tools.**.skill_id",
            json!({ "type": "shell", "environment": { "type": "container_auto",
                "skills": [{ "type": "skill_reference", "skill_id": ID }] } }),
            "environment.skills[0].skill_id",
        ),
        (
            "",
            json!({ "type": "image_generation", "input_image_mask": { "file_id": ID } }),
            "input_image_mask.file_id",
        ),
        (
            "",
            json!({ "type": "mcp", "server_label": "x", "server_url": "https://e.example", "tunnel_id": ID }),
            "tunnel_id",
        ),
        (
            "",
            json!({ "type": "mcp", "server_label": "x", "server_url": "https://e.example",
                "project_connection_id": ID }),
            "project_connection_id",
        ),
        (
            "input?.tools.**.security_scheme.audience",
            json!({ "type": "openapi", "openapi": { "name": "x", "auth": { "type": "managed_identity",
                "security_scheme": { "audience": ID } } } }),
            "openapi.auth.security_scheme.audience",
        ),
    ];
    let mut all = vec![
        field("preset", json!({ "preset": ID }), "preset"),
        field("models", json!({ "models": [ID] }), "models[0]"),
        field(
            "plugins.model",
            json!({ "plugins": [{ "id": "fusion", "model": ID }] }),
            "plugins[0].model",
        ),
        field("instructions", json!({ "instructions": "fileid://file-fe-1" }), "instructions"),
        field("input.content?.text?", json!({ "input": "fileid://file-fe-1" }), "input"),
        field(
            "prompt_cache_options.comparison_response_id",
            json!({ "prompt_cache_options": { "comparison_response_id": ID } }),
            "prompt_cache_options.comparison_response_id",
        ),
        field(
            "agent|agent_reference.name",
            json!({ "agent": { "type": "agent_reference", "name": ID } }),
            "agent.name",
        ),
        field(
            "agent|agent_reference.name",
            json!({ "agent_reference": { "name": ID } }),
            "agent_reference.name",
        ),
        field("prompt.id?", json!({ "prompt": { "id": ID } }), "prompt"),
        field("input.id", item(json!({ "type": "item_reference", "id": ID })), "input[1].id"),
        field(
            "input.content|output.file_id",
            json!({ "input": [{ "role": "user", "content": part }] }),
            "input[0].content[0].file_id",
        ),
        field(
            "input.content|output.file_id",
            json!({ "input": [hi, call, output] }),
            "input[2].output[0].file_id",
        ),
        field(
            "input.environment?.container_id",
            item(json!({ "type": "code_interpreter_call", "id": "ci_1", "status": "completed",
                "code": "1", "container_id": ID, "outputs": [] })),
            "input[1].container_id",
        ),
        field(
            "input.environment?.container_id",
            item(json!({ "type": "shell_call", "call_id": "s", "action": { "commands": ["ls"] },
                "environment": { "type": "container_reference", "container_id": ID } })),
            "input[1].environment.container_id",
        ),
    ];
    let ids = ids_row(&dialects::responses::ResponsesDialect, "input|tool_choice?.tools.**.");
    let allowed = json!([{ "type": "file_search", "vector_store_ids": [ID] }]);
    all.push(field(
        ids,
        json!({ "tools": [{ "type": "file_search", "vector_store_ids": [] }],
            "tool_choice": { "type": "allowed_tools", "mode": "auto", "tools": allowed } }),
        "tool_choice.tools[0].vector_store_ids[0]",
    ));
    for (row, tool, shown) in tools {
        let row = if row.is_empty() { ids } else { row };
        let added = json!({ "type": "additional_tools", "role": "developer", "tools": [tool] });
        let named =
            json!({ "type": "namespace", "name": "n", "description": "d", "tools": [tool] });
        let leak = |text: String| -> &'static str { text.leak() };
        all.push(field(row, json!({ "tools": [tool] }), leak(format!("tools[0].{shown}"))));
        all.push(field(row, item(added), leak(format!("input[1].tools[0].{shown}"))));
        all.push(field(
            row,
            json!({ "tools": [named] }),
            leak(format!("tools[0].tools[0].{shown}")),
        ));
    }
    all
}

/// Returns the row of a table with the names that say for themselves what they name.
fn ids_row(dialect: &dyn Dialect, beginning: &str) -> &'static str {
    let mut rows = dialect.traits().objects.paths();
    rows.find(|path| path.strip_prefix(beginning).is_some_and(|ids| ids.starts_with("file_id|")))
        .unwrap()
}

/// Returns a field for every such name, at the top and in a tool.
fn id_fields(dialect: &dyn Dialect) -> Vec<NamedField> {
    let mut all = Vec::new();
    for row in dialect.traits().objects.paths().filter(|path| path.contains("file_id|file_ids")) {
        for name in row.rsplit('.').next().unwrap().split('|') {
            let (value, at) = match name.ends_with('s') {
                true => (json!([ID]), "[0]"),
                false => (json!(ID), ""),
            };
            let tool = json!({ "type": "mcp", "server_label": "x", "server_url": "https://e.example",
                "name": "x", "function": { "name": "f" }, "extra": { name: value } });
            let (fields, shown) = match row.contains("tools") {
                true => (json!({ "tools": [tool] }), format!("tools[0].extra.{name}{at}")),
                false => (json!({ name: value }), format!("{name}{at}")),
            };
            all.push(field(row, fields, shown.leak()));
        }
    }
    all
}

pub(super) struct FormatSamples {
    pub(super) dialect: &'static dyn Dialect,
    base: Value,
    pub(super) fields: Vec<NamedField>,
}

pub(super) fn formats() -> Vec<FormatSamples> {
    let hi = json!([{ "role": "user", "content": "Hi" }]);
    let contents = json!([{ "role": "user", "parts": [{ "text": "Hi" }] }]);
    let samples = |dialect: &'static dyn Dialect, base, mut fields: Vec<NamedField>| {
        fields.extend(id_fields(dialect));
        FormatSamples { dialect, base, fields }
    };
    vec![
        samples(
            &dialects::chat::ChatDialect as _,
            json!({ "model": "m", "messages": hi }),
            chat_fields(),
        ),
        samples(
            &dialects::messages::MessagesDialect as _,
            json!({ "model": "m", "max_tokens": 9, "messages": hi }),
            messages_fields(),
        ),
        samples(
            &dialects::responses::ResponsesDialect as _,
            json!({ "model": "m", "input": "Hi" }),
            responses_fields(),
        ),
        samples(
            &dialects::native::NativeDialect as _,
            json!({ "contents": contents }),
            native_fields(),
        ),
    ]
}

impl FormatSamples {
    pub(super) fn body(&self, sample: &NamedField) -> Value {
        let mut body = self.base.clone();
        for (name, value) in sample.fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    }

    pub(super) fn path(&self, stream: bool) -> &'static str {
        match (self.dialect.origin().as_str(), stream) {
            ("chat", _) => "/v1/chat/completions",
            ("messages", _) => "/v1/messages",
            ("responses", _) => "/v1/responses",
            (_, false) => "/v1beta/models/m:generateContent",
            (_, true) => "/v1beta/models/m:streamGenerateContent?alt=sse",
        }
    }

    /// Every way to send a request: its name, path, body and the beginning of paths in its errors.
    pub(super) fn ways(
        &self,
        body: &Value,
    ) -> Vec<(&'static str, &'static str, Value, &'static str)> {
        let is_native = self.dialect.origin().as_str() == "native";
        let mut streamed = body.clone();
        if !is_native {
            streamed["stream"] = json!(true);
        }
        let mut ways = vec![
            ("call", self.path(false), body.clone(), ""),
            ("dry run", self.path(false), body.clone(), ""),
            ("stream", self.path(true), streamed, ""),
        ];
        match self.dialect.origin().as_str() {
            "messages" => ways.push(("count", "/v1/messages/count_tokens", body.clone(), "")),
            "responses" => {
                ways.push(("count", "/v1/responses/input_tokens", body.clone(), ""));
                let mut background = body.clone();
                background["background"] = json!(true);
                ways.push(("background", self.path(false), background, ""));
            }
            "native" => {
                let path = "/v1beta/models/m:countTokens";
                ways.push(("count", path, body.clone(), ""));
                let whole = json!({ "generateContentRequest": body });
                ways.push(("whole count", path, whole, "generateContentRequest."));
            }
            _ => {}
        }
        ways
    }
}
