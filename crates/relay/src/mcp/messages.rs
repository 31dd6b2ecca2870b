//! MCP in the messages format: `mcp_servers`, tools of the type `mcp_toolset`, blocks `mcp_tool_use` and
//! `mcp_tool_result` (<https://docs.anthropic.com/en/docs/agents-and-tools/mcp-connector>).

use canon::{ApiError, ErrorKind};
use dialects::StreamFrame;
use dialects::messages::BETA_HEADER;
use http::{HeaderMap, HeaderValue};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

use super::bench::{NamedServer, ToolBench, ToolFilter};
use super::messages_history::lower_history;
use super::named_servers::{add_token, remote_endpoint};
use super::own_tools::{OwnPlace, OwnPlaces, own_names};
use super::tool_outcome::{ToolImage, ToolOutcome};
use super::turn_format::{
    DEFAULT_MAX_CALLS, FunctionUse, OpenedTurns, TurnEnd, TurnFormat, UsedCallIds, add_numbers,
    take_list, text, write_event,
};
use crate::call::Call;

/// Removes the names of the connector from the betas of a turn. Its provider has no connector.
pub(super) fn drop_connector_beta(headers: &mut HeaderMap) {
    let all: Vec<_> = headers.get_all(BETA_HEADER).iter().cloned().collect();
    headers.remove(BETA_HEADER);
    for value in all {
        let Ok(names) = value.to_str() else { continue };
        let is_other = |name: &&str| !name.starts_with("mcp-client") && !name.is_empty();
        let kept: Vec<&str> = names.split(',').map(str::trim).filter(is_other).collect();
        if let Some(value) =
            HeaderValue::from_str(&kept.join(",")).ok().filter(|value| !value.is_empty())
        {
            headers.append(BETA_HEADER, value);
        }
    }
}

/// Prepares the turns of a request, and asks its servers if `asks` says so.
pub(super) async fn open(
    call: &Call,
    mut body: Map<String, Value>,
    asks: bool,
) -> Result<OpenedTurns, ApiError> {
    let servers = match body.shift_remove("mcp_servers") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(servers)) => servers,
        Some(_) => {
            return Err(ApiError::invalid(
                "mcp_servers",
                "`mcp_servers` must be a list of servers",
            ));
        }
    };
    let tools = take_list(&mut body, "tools");
    let messages = take_list(&mut body, "messages");
    check_toolsets(&tools, &servers)?;
    let mut named = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        named.push(read_server(call, server, at, &tools)?);
    }
    let own = own_names(&tools, &[]);
    let chosen = body.get("tool_choice").map(|choice| text(choice, "name")).unwrap_or_default();
    if !asks && !chosen.is_empty() && !own.contains(chosen) {
        // The tools of the server are not known.
        body.shift_remove("tool_choice");
    }
    let bench = ToolBench::open(named, own, asks).await?;
    let (tools, tool_places) = lower_tools(tools, &servers, &bench);
    if !tools.is_empty() {
        body.insert("tools".to_owned(), Value::from(tools));
    } else {
        body.shift_remove("tools");
        body.shift_remove("tool_choice");
    }
    let streamed = body.get("stream").and_then(Value::as_bool).unwrap_or(false);
    let (messages, message_places) = lower_history(messages, &bench);
    let places = [
        OwnPlaces { list: "tools", places: tool_places },
        OwnPlaces { list: "messages", places: message_places },
    ];
    let mut ids = UsedCallIds::default();
    let blocks = messages.iter().filter_map(|message| message.get("content")?.as_array());
    blocks.flatten().filter(|block| text(block, "type") == "tool_use").for_each(|block| {
        ids.claim(text(block, "id"));
    });
    let format = MessagesTurns {
        stamp: call.reply_stamp().id,
        places,
        ids,
        body,
        messages,
        content: Vec::new(),
        usage: Value::Null,
        has_started: false,
        turns: 0,
        turn: MessagesTurnState::default(),
        results: Vec::new(),
        id: None,
    };
    let max_calls = DEFAULT_MAX_CALLS;
    Ok(OpenedTurns { format: Box::new(format), bench, streamed, max_calls })
}

fn is_toolset(tool: &Value) -> bool {
    text(tool, "type") == "mcp_toolset"
}

/// Refuses a toolset without its server.
fn check_toolsets(tools: &[Value], servers: &[Value]) -> Result<(), ApiError> {
    let mut seen = HashSet::new();
    for (at, tool) in tools.iter().enumerate().filter(|(_, tool)| is_toolset(tool)) {
        let name = text(tool, "mcp_server_name");
        let path = format!("tools[{at}].mcp_server_name");
        if !servers.iter().any(|server| text(server, "name") == name) {
            let message = format!("`{path}` names no server of `mcp_servers`");
            return Err(ApiError::invalid(&path, message));
        }
        if !seen.insert(name) {
            let message = format!("`{path}` has a toolset already");
            return Err(ApiError::invalid(&path, message));
        }
    }
    Ok(())
}

/// Reads an entry of `mcp_servers`, with the toolset that selects its tools.
fn read_server(
    call: &Call,
    server: &Value,
    at: usize,
    tools: &[Value],
) -> Result<NamedServer, ApiError> {
    let field = |name: &str| format!("mcp_servers[{at}].{name}");
    let path = field("url");
    let missing = |path: String| ApiError::invalid(&path, format!("`{path}` is missing"));
    let label = text(server, "name").to_owned();
    if label.is_empty() {
        return Err(missing(field("name")));
    }
    let kind = server.get("type").filter(|kind| !kind.is_null());
    if kind.is_some_and(|kind| kind != "url") {
        let path = field("type");
        return Err(ApiError::invalid(&path, format!("`{path}` must be `url`")));
    }
    let url = text(server, "url");
    if url.is_empty() {
        return Err(missing(path));
    }
    let mut headers = HeaderMap::new();
    add_token(&mut headers, server.get("authorization_token"), &field("authorization_token"))?;
    let endpoint = remote_endpoint(call, &path, url, headers)?;
    let toolset =
        tools.iter().find(|tool| is_toolset(tool) && text(tool, "mcp_server_name") == label);
    let mut allowed = vec![read_configuration(server.get("tool_configuration"))];
    if let Some(toolset) = toolset {
        allowed.push(read_toolset(toolset));
    }
    // Tools that the request describes itself are a choice among those that the server lists.
    let pinned = toolset.and_then(|toolset| toolset.get("tools")).and_then(Value::as_array);
    if let Some(pinned) = pinned {
        let names = pinned.iter().map(|tool| text(tool, "name").to_owned());
        allowed.push(ToolFilter::Named(names.collect()));
    }
    let approval = ToolFilter::none();
    Ok(NamedServer { label, path, endpoint, allowed, approval, offered: None })
}

/// Reads `tool_configuration` of the first version of the connector.
fn read_configuration(given: Option<&Value>) -> ToolFilter {
    let given = given.unwrap_or(&Value::Null);
    if given.get("enabled") == Some(&Value::Bool(false)) {
        return ToolFilter::none();
    }
    match given.get("allowed_tools").and_then(Value::as_array) {
        Some(names) => {
            ToolFilter::Named(names.iter().filter_map(|n| n.as_str().map(str::to_owned)).collect())
        }
        None => ToolFilter::All,
    }
}

/// Reads the rules of a toolset.
fn read_toolset(toolset: &Value) -> ToolFilter {
    let is_enabled = |config: Option<&Value>| config?.get("enabled")?.as_bool();
    let default = is_enabled(toolset.get("default_config")).unwrap_or(true);
    let configs = toolset.get("configs").and_then(Value::as_object);
    let differing = configs
        .into_iter()
        .flatten()
        .filter(|(_, config)| is_enabled(Some(config)).unwrap_or(default) != default);
    let names = differing.map(|(name, _)| name.clone()).collect();
    if default { ToolFilter::Except(names) } else { ToolFilter::Named(names) }
}

/// Replaces the toolsets by the tools of their servers. A server without a toolset is one of the first
/// version, and its tools follow. Returns also their places in the request.
fn lower_tools(
    tools: Vec<Value>,
    servers: &[Value],
    bench: &ToolBench,
) -> (Vec<Value>, Vec<OwnPlace>) {
    let (mut lowered, mut placed) = (Vec::new(), HashSet::new());
    let mut places = Vec::new();
    let add = |label: &str, control: Option<&Value>, lowered: &mut Vec<Value>| {
        let functions = bench.functions(label);
        let count = functions.len();
        for (at, (name, tool)) in functions.into_iter().enumerate() {
            let mut function = json!({ "name": name, "input_schema": tool.input_schema() });
            if let Some(function) = function.as_object_mut() {
                if let Some(words) = tool.description() {
                    function.insert("description".to_owned(), Value::from(words));
                }
                if let Some(control) = control.filter(|_| at + 1 == count) {
                    function.insert("cache_control".to_owned(), control.clone());
                }
            }
            lowered.push(function);
        }
    };
    for (at, tool) in tools.into_iter().enumerate() {
        let own = format!("tools[{at}]");
        if is_toolset(&tool) {
            let label = text(&tool, "mcp_server_name").to_owned();
            add(&label, tool.get("cache_control").filter(|own| !own.is_null()), &mut lowered);
            places.resize(lowered.len(), OwnPlace::From(own));
            placed.insert(label);
        } else {
            lowered.push(tool);
            places.push(OwnPlace::Same(own));
        }
    }
    for (at, server) in servers.iter().map(|server| text(server, "name")).enumerate() {
        if !placed.contains(server) {
            add(server, None, &mut lowered);
            places.resize(lowered.len(), OwnPlace::From(format!("mcp_servers[{at}]")));
        }
    }
    (lowered, places)
}

/// Turns in the messages format.
struct MessagesTurns {
    /// Begins the ids of the uses that the gateway shows.
    stamp: String,
    /// Places of the lists of the first turn in the caller's request.
    places: [OwnPlaces; 2],
    /// Ids of the uses of the model.
    ids: UsedCallIds,
    /// Request without its messages.
    body: Map<String, Value>,
    messages: Vec<Value>,
    /// Blocks for the caller.
    content: Vec<Value>,
    usage: Value,
    has_started: bool,
    turns: usize,
    turn: MessagesTurnState,
    /// Results for the next turn.
    results: Vec<Value>,
    id: Option<Value>,
}

/// Turn that runs.
#[derive(Default)]
struct MessagesTurnState {
    /// Blocks of the caller before the turn.
    base: usize,
    /// Blocks of the turn as they grow.
    blocks: Vec<Value>,
    /// JSON of the inputs that arrive in pieces.
    inputs: HashMap<usize, String>,
    /// The message, without its content.
    message: Map<String, Value>,
    is_ended: bool,
    /// True if the provider told its failure in the stream.
    has_failed: bool,
    /// Ids that the caller sees, by those of the uses.
    shown: HashMap<String, Value>,
}

impl MessagesTurns {
    /// Returns the block of a use for the caller, if it is one of a server. `index` is its place in the turn.
    fn raise_use(&self, bench: &ToolBench, block: &Value, index: usize) -> Option<Value> {
        // A member of a toolset is the caller's, whatever its name is.
        let is_own = text(block, "type") != "tool_use" || !text(block, "toolset_name").is_empty();
        let tool = bench.find(text(block, "name")).filter(|_| !is_own)?;
        Some(json!({
            "type": "mcp_tool_use",
            "id": format!("mcptoolu_{}{:02}{index:02}", self.stamp, self.turns),
            "name": tool.name,
            "server_name": tool.label,
            "input": block.get("input").cloned().unwrap_or_else(|| json!({})),
        }))
    }

    fn add_usage(&mut self) {
        if let Some(usage) = self.turn.message.get("usage") {
            add_numbers(&mut self.usage, usage);
        }
    }

    /// Adds a piece to a block.
    fn grow(&mut self, index: usize, delta: &Value) {
        let Some(block) = self.turn.blocks.get_mut(index).and_then(Value::as_object_mut) else {
            return;
        };
        let mut append = |name: &str, more: &str| match block.get_mut(name) {
            Some(Value::String(grown)) => grown.push_str(more),
            Some(_) | None => drop(block.insert(name.to_owned(), Value::from(more))),
        };
        match text(delta, "type") {
            "text_delta" => append("text", text(delta, "text")),
            "thinking_delta" => append("thinking", text(delta, "thinking")),
            "signature_delta" => append("signature", text(delta, "signature")),
            "input_json_delta" => {
                let piece = text(delta, "partial_json");
                self.turn.inputs.entry(index).or_default().push_str(piece);
            }
            "citations_delta" => {
                let citations = block.entry("citations").or_insert_with(|| json!([]));
                if citations.is_null() {
                    *citations = json!([]);
                }
                if let (Some(list), Some(one)) = (citations.as_array_mut(), delta.get("citation")) {
                    list.push(one.clone());
                }
            }
            _ => {}
        }
    }
}

impl TurnFormat for MessagesTurns {
    fn with_own_paths(&self, error: ApiError) -> ApiError {
        self.places.iter().fold(error, |error, places| places.restore_path(error))
    }

    fn has_failed(&self) -> bool {
        self.turn.has_failed
    }

    fn next_body(&mut self, may_call: bool) -> Value {
        if !self.results.is_empty() {
            let results = std::mem::take(&mut self.results);
            self.messages.push(json!({ "role": "user", "content": results }));
        }
        self.turn = MessagesTurnState { base: self.content.len(), ..MessagesTurnState::default() };
        let mut body = self.body.clone();
        body.insert("messages".to_owned(), Value::from(self.messages.clone()));
        if body.contains_key("tools") {
            let is_forced = body
                .get("tool_choice")
                .is_some_and(|choice| matches!(text(choice, "type"), "any" | "tool"));
            if !may_call {
                body.insert("tool_choice".to_owned(), json!({ "type": "none" }));
            } else if self.turns > 0 && is_forced {
                // A forced tool is forced once, or no answer would ever end.
                body.insert("tool_choice".to_owned(), json!({ "type": "auto" }));
            }
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
        let Ok(mut event) = dialects::json::read_bytes::<Value>(&frame.data) else {
            return Ok(());
        };
        let name = text(&event, "type").to_owned();
        let index = event.get("index").and_then(Value::as_u64).unwrap_or_default();
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if let Some(place) = event.get_mut("index") {
            *place = Value::from(self.turn.base.saturating_add(index));
        }
        match name.as_str() {
            "message_start" => {
                if let Some(Value::Object(message)) = event.get("message") {
                    self.turn.message = message.clone();
                }
                if !self.has_started {
                    self.has_started = true;
                    write_event(&name, &event, out);
                }
            }
            "content_block_start" => {
                let block = event.get("content_block").cloned().unwrap_or_default();
                if let Some(raised) = self.raise_use(bench, &block, index)
                    && let Some(place) = event.get_mut("content_block")
                {
                    *place = raised;
                }
                self.turn.blocks.push(block);
                write_event(&name, &event, out);
            }
            "content_block_delta" => {
                if let Some(delta) = event.get("delta") {
                    self.grow(index, &delta.clone());
                }
                write_event(&name, &event, out);
            }
            "message_delta" => {
                if let Some(Value::Object(delta)) = event.get("delta") {
                    self.turn.message.extend(delta.clone());
                }
                if let Some(Value::Object(usage)) = event.get_mut("usage").map(Value::take) {
                    let own = self.turn.message.entry("usage").or_insert_with(|| json!({}));
                    if let Some(own) = own.as_object_mut() {
                        own.extend(usage);
                    }
                }
            }
            "message_stop" => self.turn.is_ended = true,
            "error" => {
                write_event(&name, &event, out);
                self.turn.has_failed = true;
            }
            _ => write_event(&name, &event, out),
        }
        Ok(())
    }

    fn take_reply(&mut self, _bench: &ToolBench, mut reply: Map<String, Value>) {
        self.turn.blocks = take_list(&mut reply, "content");
        self.turn.message = reply;
        self.turn.is_ended = true;
    }

    fn end_turn(&mut self, bench: &ToolBench, _out: &mut Vec<u8>) -> Result<TurnEnd, ApiError> {
        if !self.turn.is_ended {
            let message = "the answer broke off before its end";
            return Err(ApiError::new(ErrorKind::Interrupted, message));
        }
        self.add_usage();
        let id = self.turn.message.get("id").cloned();
        self.id = self.id.take().or(id);
        let mut blocks = std::mem::take(&mut self.turn.blocks);
        for (at, json) in std::mem::take(&mut self.turn.inputs) {
            let input = if json.is_empty() { "{}" } else { &json };
            if let Some(block) = blocks.get_mut(at).and_then(Value::as_object_mut) {
                let input = dialects::json::read::<Value>(input).unwrap_or_else(|_| json!({}));
                block.insert("input".to_owned(), input);
            }
        }
        let stop = self.turn.message.get("stop_reason").and_then(Value::as_str);
        // Some providers end a turn with calls like any other. Only a turn that was cut has none to be made.
        let is_cut = matches!(
            stop,
            Some("max_tokens" | "refusal" | "model_context_window_exceeded" | "stop_sequence")
        );
        let calls_tools = !is_cut;
        let mut end = TurnEnd { uses: Vec::new(), is_last: !calls_tools };
        for (index, block) in blocks.iter_mut().enumerate() {
            let Some(raised) = self.raise_use(bench, block, index) else {
                end.is_last |= text(block, "type") == "tool_use";
                self.content.push(block.clone());
                continue;
            };
            let id = self.ids.claim(text(block, "id"));
            self.turn.shown.insert(id.clone(), raised.get("id").cloned().unwrap_or_default());
            self.content.push(raised);
            if let Some(place) = block.get_mut("id") {
                *place = Value::from(id.clone());
            }
            if calls_tools {
                let function = text(block, "name").to_owned();
                let arguments = block.get("input").map(Value::to_string).unwrap_or_default();
                end.uses.push(FunctionUse { id, function, arguments });
            }
        }
        let is_paused = calls_tools && !end.is_last;
        if is_paused && !end.uses.is_empty() {
            // Read only if there is no other turn: the caller may go on by sending the answer back.
            self.turn.message.insert("stop_reason".to_owned(), json!("pause_turn"));
        }
        self.messages.push(json!({ "role": "assistant", "content": blocks }));
        Ok(end)
    }

    fn add_outcome(
        &mut self,
        _bench: &ToolBench,
        call: &FunctionUse,
        outcome: ToolOutcome,
        out: &mut Vec<u8>,
    ) {
        let ToolOutcome { text, images, error } = outcome;
        let content = json!([{ "type": "text", "text": text }]);
        let is_error = error.is_some();
        let shown = images.into_iter().map(|ToolImage { mime, data }| {
            let source = json!({ "type": "base64", "media_type": mime, "data": data });
            json!({ "type": "image", "source": source })
        });
        let texts = (!text.is_empty()).then(|| json!({ "type": "text", "text": text }));
        let result: Vec<Value> = texts.into_iter().chain(shown).collect();
        self.results.push(json!({
            "type": "tool_result", "tool_use_id": call.id, "is_error": is_error, "content": result,
        }));
        let block = json!({
            "type": "mcp_tool_result", "tool_use_id": self.turn.shown.get(&call.id), "is_error": is_error,
            "content": content,
        });
        let index = self.content.len();
        let start =
            json!({ "type": "content_block_start", "index": index, "content_block": block });
        write_event("content_block_start", &start, out);
        let stop = json!({ "type": "content_block_stop", "index": index });
        write_event("content_block_stop", &stop, out);
        self.content.push(block);
    }

    fn finish_stream(&mut self, out: &mut Vec<u8>) {
        let message = &self.turn.message;
        let delta = json!({
            "stop_reason": message.get("stop_reason"),
            "stop_sequence": message.get("stop_sequence"),
        });
        let event = json!({ "type": "message_delta", "delta": delta, "usage": self.usage });
        write_event("message_delta", &event, out);
        write_event("message_stop", &json!({ "type": "message_stop" }), out);
    }

    fn finish_reply(&mut self) -> Value {
        let mut message = std::mem::take(&mut self.turn.message);
        if let Some(id) = self.id.take() {
            message.insert("id".to_owned(), id);
        }
        message.insert("content".to_owned(), Value::from(std::mem::take(&mut self.content)));
        message.insert("usage".to_owned(), std::mem::take(&mut self.usage));
        Value::Object(message)
    }
}
