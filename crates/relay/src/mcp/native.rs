//! MCP in the native format: `mcpServers` among the tools (<https://ai.google.dev/api/caching#Tool>). The
//! format has no parts for calls of servers, so the caller sees only what the model says in the end.

use canon::{ApiError, ErrorKind};
use dialects::StreamFrame;
use serde_json::{Map, Value, json};

use super::bench::{NamedServer, ToolBench, ToolFilter};
use super::named_servers::{read_headers, remote_endpoint};
use super::own_tools::{OwnPlace, OwnPlaces};
use super::tool_outcome::{ToolImage, ToolOutcome};
use super::turn_format::{
    DEFAULT_MAX_CALLS, FunctionUse, OpenedTurns, StreamFailure, TurnEnd, TurnFormat, UsedCallIds,
    add_numbers, take_list, text,
};
use crate::call::Call;

/// Prepares the turns of a request, and asks its servers if `asks` says so.
pub(super) async fn open(
    call: &Call,
    mut body: Map<String, Value>,
    asks: bool,
) -> Result<OpenedTurns, ApiError> {
    check_candidates(&body)?;
    let tools = match body.shift_remove("tools") {
        Some(Value::Array(tools)) => tools,
        Some(one @ Value::Object(_)) => vec![one],
        Some(_) | None => Vec::new(),
    };
    let contents = take_list(&mut body, "contents");
    let mut servers = Vec::new();
    for (at, tool) in tools.iter().enumerate() {
        for (index, server) in servers_of(tool).into_iter().flatten().enumerate() {
            servers.push(read_server(call, server, &format!("tools[{at}].mcpServers[{index}]"))?);
        }
    }
    let declared = tools.iter().flat_map(|tool| {
        let list = field(tool, "functionDeclarations", "function_declarations");
        list.and_then(Value::as_array).into_iter().flatten()
    });
    let own = declared.map(|function| text(function, "name").to_owned()).collect();
    if !asks {
        // It may name tools of servers, which are not known.
        body.shift_remove("toolConfig");
        body.shift_remove("tool_config");
    }
    let bench = ToolBench::open(servers, own, asks).await?;
    let (tools, places) = lower_tools(tools, &bench);
    if !tools.is_empty() {
        body.insert("tools".to_owned(), Value::from(tools));
    }
    let format = NativeTurns {
        ids: UsedCallIds::default(),
        places: OwnPlaces { list: "tools", places },
        body,
        contents,
        parts: Vec::new(),
        usage: Value::Null,
        turns: 0,
        turn: NativeTurn::default(),
        results: Vec::new(),
        is_array: call.target.json_array,
        written: 0,
    };
    let (streamed, max_calls) = (call.target.stream, DEFAULT_MAX_CALLS);
    Ok(OpenedTurns { format: Box::new(format), bench, streamed, max_calls })
}

/// Refuses several candidates: each would need calls and turns of its own.
fn check_candidates(body: &Map<String, Value>) -> Result<(), ApiError> {
    let config = ["generationConfig", "generation_config"].into_iter().find_map(|name| {
        let config = body.get(name)?;
        let field = ["candidateCount", "candidate_count"];
        let (own, count) = field.into_iter().find_map(|own| Some((own, config.get(own)?)))?;
        Some((format!("{name}.{own}"), count))
    });
    match config {
        Some((path, count)) if count.as_f64().is_some_and(|count| count > 1.0) => {
            let message = format!("`{path}` must be 1 for a request with MCP servers");
            Err(ApiError::invalid(&path, message))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns a field by either of its two spellings.
fn field<'v>(object: &'v Value, name: &str, other: &str) -> Option<&'v Value> {
    object.get(name).or_else(|| object.get(other))
}

fn servers_of(tool: &Value) -> Option<&Vec<Value>> {
    field(tool, "mcpServers", "mcp_servers").and_then(Value::as_array)
}

fn read_server(call: &Call, server: &Value, path: &str) -> Result<NamedServer, ApiError> {
    let missing = |path: String| ApiError::invalid(&path, format!("`{path}` is missing"));
    let label = text(server, "name").to_owned();
    if label.is_empty() {
        return Err(missing(format!("{path}.name")));
    }
    let transport = field(server, "streamableHttpTransport", "streamable_http_transport");
    let transport = transport.unwrap_or(&Value::Null);
    let place = format!("{path}.streamableHttpTransport");
    let url_path = format!("{place}.url");
    let url = text(transport, "url");
    if url.is_empty() {
        return Err(missing(url_path));
    }
    let headers = read_headers(transport.get("headers"), &format!("{place}.headers"))?;
    let endpoint = remote_endpoint(call, &url_path, url, headers)?;
    Ok(NamedServer {
        label,
        path: url_path,
        endpoint,
        allowed: Vec::new(),
        approval: ToolFilter::none(),
        offered: None,
    })
}

/// Replaces the servers by the functions of their tools. A tool has one kind of content, so a tool with servers
/// has nothing else. Returns also the places of the tools in the request.
fn lower_tools(tools: Vec<Value>, bench: &ToolBench) -> (Vec<Value>, Vec<OwnPlace>) {
    let (mut lowered, mut places) = (Vec::new(), Vec::new());
    for (at, tool) in tools.into_iter().enumerate() {
        let place = format!("tools[{at}]");
        let Some(servers) = servers_of(&tool) else {
            lowered.push(tool);
            places.push(OwnPlace::Same(place));
            continue;
        };
        let functions = servers.iter().flat_map(|server| bench.functions(text(server, "name")));
        let declared: Vec<Value> = functions
            .map(|(name, tool)| {
                json!({
                    "name": name,
                    "description": tool.description().unwrap_or_default(),
                    "parametersJsonSchema": tool.input_schema(),
                })
            })
            .collect();
        if !declared.is_empty() {
            lowered.push(json!({ "functionDeclarations": declared }));
            places.push(OwnPlace::From(place));
        }
    }
    (lowered, places)
}

/// Turns in the native format.
struct NativeTurns {
    /// Ids of the calls of the model. Most have none.
    ids: UsedCallIds,
    /// Places of the tools of a turn in the caller's request.
    places: OwnPlaces,
    /// Request without its contents.
    body: Map<String, Value>,
    contents: Vec<Value>,
    /// Parts for the caller, of all turns.
    parts: Vec<Value>,
    usage: Value,
    turns: usize,
    turn: NativeTurn,
    /// Results for the next turn.
    results: Vec<Value>,
    /// True if the stream is one JSON array.
    is_array: bool,
    /// Chunks that the caller has.
    written: usize,
}

/// Turn that runs.
#[derive(Default)]
struct NativeTurn {
    /// All parts.
    parts: Vec<Value>,
    usage: Option<Value>,
    /// The last chunk, without its parts.
    last: Map<String, Value>,
    is_ended: bool,
    /// True if the provider told its failure in the stream.
    has_failed: bool,
}

impl NativeTurns {
    fn write_chunk(&mut self, chunk: &Value, out: &mut Vec<u8>) {
        let text = match (self.is_array, self.written) {
            (false, _) => format!("data: {chunk}\n\n"),
            (true, 0) => format!("[{chunk}"),
            (true, _) => format!(",\r\n{chunk}"),
        };
        self.written += 1;
        out.extend_from_slice(text.as_bytes());
    }

    /// Takes the parts and counts of a chunk. Returns the chunk with the parts that the caller sees.
    fn take_chunk(&mut self, bench: &ToolBench, mut chunk: Map<String, Value>) -> Option<Value> {
        if let Some(usage) = chunk.shift_remove("usageMetadata") {
            self.turn.usage = Some(usage);
        }
        let candidate = chunk.get_mut("candidates").and_then(|all| all.get_mut(0));
        let mut seen = Vec::new();
        if let Some(Value::Object(candidate)) = candidate {
            let content = candidate.get_mut("content").and_then(Value::as_object_mut);
            let parts = content.map(|content| take_list(content, "parts")).unwrap_or_default();
            for part in parts {
                if server_function(bench, &part).is_none() {
                    seen.push(part.clone());
                }
                self.turn.parts.push(part);
            }
        }
        self.turn.is_ended |= is_finished(&chunk) || chunk.contains_key("promptFeedback");
        self.turn.last = chunk.clone();
        if seen.is_empty() {
            return None;
        }
        self.parts.extend(seen.iter().cloned());
        set_parts(&mut chunk, seen, None);
        Some(Value::Object(chunk))
    }
}

/// Returns the function of a server that a part calls.
fn server_function<'p>(bench: &ToolBench, part: &'p Value) -> Option<&'p Value> {
    let call = field(part, "functionCall", "function_call")?;
    bench.find(text(call, "name")).map(|_| call)
}

fn is_finished(chunk: &Map<String, Value>) -> bool {
    let candidate = chunk.get("candidates").and_then(|all| all.get(0));
    candidate.is_some_and(|one| one.get("finishReason").is_some_and(|why| !why.is_null()))
}

/// Returns true if a turn ended in another way than by its own will: its calls may lack something.
fn is_cut(last: &Map<String, Value>) -> bool {
    let reason = last.get("candidates").and_then(|all| all.get(0)?.get("finishReason")?.as_str());
    reason.is_some_and(|reason| reason != "STOP")
}

/// Sets the parts of the candidate. The reason to finish is only in the last chunk.
fn set_parts(chunk: &mut Map<String, Value>, parts: Vec<Value>, finish: Option<Value>) {
    let Some(Value::Object(candidate)) = chunk.get_mut("candidates").and_then(|all| all.get_mut(0))
    else {
        return;
    };
    candidate.insert("content".to_owned(), json!({ "role": "model", "parts": parts }));
    candidate.shift_remove("finishReason");
    if let Some(finish) = finish {
        candidate.insert("finishReason".to_owned(), finish);
    }
}

impl TurnFormat for NativeTurns {
    fn with_own_paths(&self, error: ApiError) -> ApiError {
        self.places.restore_path(error)
    }

    fn has_failed(&self) -> bool {
        self.turn.has_failed
    }

    fn write_failure(&mut self, failure: StreamFailure<'_>, out: &mut Vec<u8>) {
        let StreamFailure { dialect, error, request_id } = failure;
        let (_, body) = dialect.write_error(error, request_id);
        self.write_chunk(&dialects::json::read_bytes(&body).unwrap_or_default(), out);
    }

    fn next_body(&mut self, may_call: bool) -> Value {
        if !self.results.is_empty() {
            let results = std::mem::take(&mut self.results);
            self.contents.push(json!({ "role": "user", "parts": results }));
        }
        self.turn = NativeTurn::default();
        let mut body = self.body.clone();
        body.insert("contents".to_owned(), Value::from(self.contents.clone()));
        let name = if body.contains_key("tool_config") { "tool_config" } else { "toolConfig" };
        let calling = body.get(name).and_then(|config| {
            field(config, "functionCallingConfig", "function_calling_config").cloned()
        });
        let is_none = calling.as_ref().is_some_and(|calling| text(calling, "mode") == "NONE");
        if body.contains_key("tools") && (!may_call || (self.turns > 0 && calling.is_some())) {
            // A forced function is forced once, or no answer would ever end.
            let mode = if may_call && !is_none { "AUTO" } else { "NONE" };
            body.insert(name.to_owned(), json!({ "functionCallingConfig": { "mode": mode } }));
        }
        self.turns += 1;
        Value::Object(body)
    }

    fn take_event(
        &mut self,
        bench: &ToolBench,
        frame: &StreamFrame,
        out: &mut Vec<u8>,
    ) -> Result<(), ApiError> {
        let Ok(chunk) = dialects::json::read_bytes::<Map<String, Value>>(&frame.data) else {
            return Ok(());
        };
        if chunk.contains_key("error") {
            self.write_chunk(&Value::Object(chunk), out);
            self.turn.has_failed = true;
            return Ok(());
        }
        if let Some(seen) = self.take_chunk(bench, chunk) {
            self.write_chunk(&seen, out);
        }
        Ok(())
    }

    fn take_reply(&mut self, bench: &ToolBench, reply: Map<String, Value>) {
        self.take_chunk(bench, reply);
        self.turn.is_ended = true;
    }

    fn end_turn(&mut self, bench: &ToolBench, _out: &mut Vec<u8>) -> Result<TurnEnd, ApiError> {
        if !self.turn.is_ended {
            let message = "the answer broke off before its end";
            return Err(ApiError::new(ErrorKind::Interrupted, message));
        }
        if let Some(usage) = &self.turn.usage {
            add_numbers(&mut self.usage, usage);
        }
        let mut parts = std::mem::take(&mut self.turn.parts);
        let mut end = TurnEnd { is_last: is_cut(&self.turn.last), ..TurnEnd::default() };
        for part in &mut parts {
            let is_server = server_function(bench, part).is_some();
            let name =
                if part.get("functionCall").is_some() { "functionCall" } else { "function_call" };
            let Some(call) = part.get_mut(name) else { continue };
            if !is_server {
                end.is_last = true;
                continue;
            }
            let id = call.get("id").and_then(Value::as_str).map(|id| self.ids.claim(id));
            if let (Some(id), Some(place)) = (&id, call.get_mut("id")) {
                *place = Value::from(id.clone());
            }
            end.uses.push(FunctionUse {
                id: id.unwrap_or_default(),
                function: text(call, "name").to_owned(),
                arguments: call.get("args").map(Value::to_string).unwrap_or_default(),
            });
        }
        if end.is_last {
            // The caller could not send the results back, so nothing is called beside its own functions,
            // nor for an answer that ends here.
            end.uses.clear();
        }
        self.contents.push(json!({ "role": "model", "parts": parts }));
        Ok(end)
    }

    fn add_outcome(
        &mut self,
        _bench: &ToolBench,
        call: &FunctionUse,
        outcome: ToolOutcome,
        _out: &mut Vec<u8>,
    ) {
        let ToolOutcome { text, images, error } = outcome;
        let name = if error.is_some() { "error" } else { "output" };
        let mut response = json!({ "name": call.function, "response": { name: text } });
        if let Some(response) = response.as_object_mut().filter(|_| !call.id.is_empty()) {
            response.insert("id".to_owned(), Value::from(call.id.clone()));
        }
        let parts = images.into_iter().map(
            |ToolImage { mime, data }| json!({ "inlineData": { "mimeType": mime, "data": data } }),
        );
        let parts: Vec<Value> = parts.collect();
        if let Some(response) = response.as_object_mut().filter(|_| !parts.is_empty()) {
            response.insert("parts".to_owned(), Value::from(parts));
        }
        self.results.push(json!({ "functionResponse": response }));
    }

    fn finish_stream(&mut self, out: &mut Vec<u8>) {
        let mut last = std::mem::take(&mut self.turn.last);
        let finish =
            last.get("candidates").and_then(|all| all.get(0)?.get("finishReason").cloned());
        set_parts(&mut last, vec![json!({ "text": "" })], finish);
        last.insert("usageMetadata".to_owned(), std::mem::take(&mut self.usage));
        self.write_chunk(&Value::Object(last), out);
        if self.is_array {
            out.extend_from_slice(b"]");
        }
    }

    fn finish_reply(&mut self) -> Value {
        let mut last = std::mem::take(&mut self.turn.last);
        let finish =
            last.get("candidates").and_then(|all| all.get(0)?.get("finishReason").cloned());
        set_parts(&mut last, std::mem::take(&mut self.parts), finish);
        last.insert("usageMetadata".to_owned(), std::mem::take(&mut self.usage));
        Value::Object(last)
    }
}
