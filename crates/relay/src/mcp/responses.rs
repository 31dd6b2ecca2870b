//! MCP in the responses format: tools of the type `mcp`, items `mcp_list_tools`, `mcp_call`,
//! `mcp_approval_request` and `mcp_approval_response`
//! (<https://platform.openai.com/docs/guides/tools-connectors-mcp>).

use canon::ApiError;
use dialects::StreamFrame;
use dialects::responses::hide_server_secrets;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

use super::approvals::{ApprovalRequests, AskedCall};
use super::bench::ToolBench;
use super::own_tools::{OwnPlace, OwnPlaces, own_names};
use super::responses_history::{ApprovedUse, LoweredInput, lower_history};
use super::responses_request::{
    check_added_tools, is_server, keep_reasoning, listed_items, lower_choice, lower_tools,
    read_server,
};
use super::tool_outcome::{ToolImage, ToolOutcome};
use super::turn_format::{
    DEFAULT_MAX_CALLS, FunctionUse, OpenedTurns, TurnEnd, TurnFormat, UsedCallIds, add_numbers,
    take_list, text, write_event,
};
use crate::call::Call;

/// Prepares the turns of a request, and asks its servers if `asks` says so.
pub(super) async fn open(
    call: &Call,
    mut body: Map<String, Value>,
    asks: bool,
) -> Result<OpenedTurns, ApiError> {
    let tools = take_list(&mut body, "tools");
    let input = match body.get_mut("input").map(Value::take) {
        Some(Value::Array(items)) => items,
        Some(Value::String(text)) => vec![json!({ "role": "user", "content": text })],
        Some(_) | None => Vec::new(),
    };
    check_added_tools(&input)?;
    let account = call.key.record.account_id.clone();
    let requests = ApprovalRequests::read(&account, &input)?;
    let mut servers = Vec::new();
    for (at, tool) in tools.iter().enumerate().filter(|(_, tool)| is_server(tool)) {
        servers.push(read_server(call, tool, at)?);
    }
    let bench = ToolBench::open(servers, own_names(&tools, &input), asks).await?;
    let mut shown = tools.clone();
    shown.iter_mut().for_each(hide_server_secrets);
    let echo = EchoedFields {
        tools: Value::from(shown),
        tool_choice: body.get("tool_choice").cloned(),
        max_tool_calls: body.shift_remove("max_tool_calls"),
        previous_response_id: body.shift_remove("previous_response_id"),
    };
    let max_calls = echo.max_tool_calls.as_ref().and_then(Value::as_u64);
    let tool_places = OwnPlaces { list: "tools", places: tool_places(&tools, &bench) };
    body.insert("tools".to_owned(), lower_tools(tools, &bench));
    if let Some(choice) = body.get_mut("tool_choice").filter(|_| asks) {
        lower_choice(choice, &bench);
    } else if body.get("tool_choice").is_some_and(chooses_server) {
        // The tools of the server are not known.
        body.shift_remove("tool_choice");
    }
    keep_reasoning(&mut body);
    let streamed = body.get("stream").and_then(Value::as_bool).unwrap_or(false);
    let stamp = call.reply_stamp().id;
    let mut output = listed_items(&bench, &stamp);
    output.retain(|item| !input.iter().any(|earlier| is_same_list(item, earlier)));
    let LoweredInput { items: input, places, approved } = lower_history(input, &requests, &bench);
    let input_places = OwnPlaces { list: "input", places };
    let mut ids = UsedCallIds::default();
    input.iter().filter(|item| text(item, "type") == "function_call").for_each(|item| {
        ids.claim(text(item, "call_id"));
    });
    let format = ResponsesTurns {
        output,
        stamp,
        account,
        places: [tool_places, input_places],
        ids,
        body,
        input,
        approved,
        echo,
        usage: Value::Null,
        sequence: 0,
        has_started: false,
        turns: 0,
        turn: ResponsesTurn::default(),
        first_id: None,
    };
    let max_calls = max_calls.unwrap_or(DEFAULT_MAX_CALLS);
    Ok(OpenedTurns { format: Box::new(format), bench, streamed, max_calls })
}

/// Returns true if a choice of tools names one of a server.
fn chooses_server(choice: &Value) -> bool {
    let tools = choice.get("tools").and_then(Value::as_array);
    is_server(choice) || tools.into_iter().flatten().any(is_server)
}

/// Returns true if an item of an earlier answer lists the same tools of the same server.
fn is_same_list(item: &Value, earlier: &Value) -> bool {
    ["type", "server_label", "tools"].into_iter().all(|name| item.get(name) == earlier.get(name))
}

/// Returns the places of the tools of a turn.
fn tool_places(tools: &[Value], bench: &ToolBench) -> Vec<OwnPlace> {
    let places = tools.iter().enumerate().flat_map(|(at, tool)| {
        let own = format!("tools[{at}]");
        if !is_server(tool) {
            return vec![OwnPlace::Same(own)];
        }
        vec![OwnPlace::From(own); bench.functions(text(tool, "server_label")).len()]
    });
    places.collect()
}

/// Fields of the request that the answer repeats as the caller sent them, without secrets.
struct EchoedFields {
    tools: Value,
    tool_choice: Option<Value>,
    max_tool_calls: Option<Value>,
    /// The input has the earlier items already.
    previous_response_id: Option<Value>,
}

/// Turns in the responses format.
struct ResponsesTurns {
    /// Begins the ids of the items that the gateway makes.
    stamp: String,
    /// Account of the caller.
    account: String,
    /// Places of the lists of the first turn in the caller's request.
    places: [OwnPlaces; 2],
    /// Ids of the calls of the model.
    ids: UsedCallIds,
    /// Request without its input.
    body: Map<String, Value>,
    input: Vec<Value>,
    approved: Vec<ApprovedUse>,
    echo: EchoedFields,
    /// Items for the caller.
    output: Vec<Value>,
    usage: Value,
    sequence: u64,
    has_started: bool,
    turns: usize,
    turn: ResponsesTurn,
    first_id: Option<Value>,
}

/// Turn that runs.
#[derive(Default)]
struct ResponsesTurn {
    /// Items of the caller before the turn.
    base: usize,
    /// Items that are calls of servers, by their index in the turn, with their id for the caller.
    calls: HashMap<u64, McpItem>,
    /// The response at the end of the turn.
    ended: Option<Map<String, Value>>,
    /// Items for the caller of the calls that run, by the id of the call.
    running: HashMap<String, usize>,
}

/// Item of a call, as the caller sees it.
#[derive(Clone)]
struct McpItem {
    /// Ends the id.
    place: String,
    needs_approval: bool,
}

impl McpItem {
    /// Returns the id of a call. A request for approval has another one.
    fn id(&self) -> String {
        format!("mcp_{}", self.place)
    }
}

impl ResponsesTurns {
    /// Writes an event. Readers look for its type at the beginning.
    fn event(&mut self, name: &str, fields: Value, out: &mut Vec<u8>) {
        let mut event = Map::new();
        event.insert("type".to_owned(), Value::from(name));
        event.insert("sequence_number".to_owned(), Value::from(self.sequence));
        if let Value::Object(fields) = fields {
            let is_own = |name: &str| matches!(name, "type" | "sequence_number");
            event.extend(fields.into_iter().filter(|(name, _)| !is_own(name)));
        }
        self.sequence += 1;
        write_event(name, &Value::Object(event), out);
    }

    /// Replaces the fields of a response of the turn by those of the whole answer.
    fn complete(&mut self, response: &mut Map<String, Value>, output: Vec<Value>) {
        let id = response.get("id").cloned().unwrap_or_default();
        let id = self.first_id.get_or_insert(id).clone();
        let EchoedFields { tools, tool_choice, max_tool_calls, previous_response_id } = &self.echo;
        response.insert("id".to_owned(), id);
        response.insert("tools".to_owned(), tools.clone());
        if let Some(choice) = tool_choice {
            response.insert("tool_choice".to_owned(), choice.clone());
        }
        let previous = previous_response_id.clone().unwrap_or_default();
        response.insert("previous_response_id".to_owned(), previous);
        response.insert("max_tool_calls".to_owned(), max_tool_calls.clone().unwrap_or_default());
        response.insert("output".to_owned(), Value::from(output));
    }

    /// Writes the items that precede those of the first turn.
    fn write_first_items(&mut self, out: &mut Vec<u8>) {
        for at in 0..self.output.len() {
            let item = self.output.get(at).cloned().unwrap_or_default();
            let id = item.get("id").cloned();
            let is_list = text(&item, "type") == "mcp_list_tools";
            let place = json!({ "item_id": id, "output_index": at });
            let mut empty = item.clone();
            if let Some(tools) = empty.get_mut("tools").filter(|_| is_list) {
                *tools = json!([]);
            }
            self.event(
                "response.output_item.added",
                json!({ "output_index": at, "item": empty }),
                out,
            );
            let name = if is_list { "mcp_list_tools" } else { "mcp_call" };
            let is_failed = item.get("error").is_some_and(|error| !error.is_null());
            let end = if is_failed { "failed" } else { "completed" };
            self.event(&format!("response.{name}.in_progress"), place.clone(), out);
            self.event(&format!("response.{name}.{end}"), place, out);
            self.event(
                "response.output_item.done",
                json!({ "output_index": at, "item": item }),
                out,
            );
        }
    }

    /// Returns the item of a call for the caller. An item keeps its place.
    fn call_item(&self, bench: &ToolBench, item: &Value, known: &McpItem) -> Value {
        let tool = bench.find(text(item, "name"));
        let (label, name) = tool.map_or(("", ""), |tool| (tool.label, tool.name));
        let arguments = text(item, "arguments");
        if known.needs_approval {
            let (account, place) = (&*self.account, &*known.place);
            let asked = AskedCall { account, place, label, tool: name, arguments };
            return json!({
                "id": asked.id(), "type": "mcp_approval_request",
                "server_label": label, "name": name, "arguments": arguments,
            });
        }
        json!({
            "id": known.id(), "type": "mcp_call", "server_label": label, "name": name,
            "arguments": arguments, "status": "in_progress", "approval_request_id": null,
            "output": null, "error": null,
        })
    }

    /// Recognises an item that calls a server, by its place in the turn.
    fn recognise(&self, bench: &ToolBench, item: &Value, index: u64) -> Option<McpItem> {
        // Tools in a namespace are the caller's, whatever their names are.
        let has_space = !text(item, "namespace").is_empty();
        if text(item, "type") != "function_call" || has_space {
            return None;
        }
        let needs_approval = bench.find(text(item, "name"))?.needs_approval;
        let place = format!("{}{:02}{index:02}", self.stamp, self.turns);
        Some(McpItem { place, needs_approval })
    }

    fn body_of_turn(&self, may_call: bool) -> Value {
        let mut body = self.body.clone();
        body.insert("input".to_owned(), Value::from(self.input.clone()));
        let is_none = body.get("tool_choice").is_some_and(|choice| choice == "none");
        if !may_call {
            body.insert("tool_choice".to_owned(), json!("none"));
        } else if self.turns > 0 && !is_none {
            // A forced tool is forced once, or no answer would ever end.
            body.insert("tool_choice".to_owned(), json!("auto"));
        }
        if body.get("tools").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            body.shift_remove("tools");
            body.shift_remove("tool_choice");
        }
        Value::Object(body)
    }

    /// Ends a call of a turn that was cut off. A call without all of its arguments cannot be approved, so
    /// there is no request for it.
    fn add_cut_call(
        &mut self,
        bench: &ToolBench,
        item: &Value,
        known: &McpItem,
        out: &mut Vec<u8>,
    ) {
        let mut shown = self.call_item(bench, item, known);
        if known.needs_approval {
            self.output.extend(Some(shown).filter(|_| text(item, "status") == "completed"));
            return;
        }
        if let Some(status) = shown.get_mut("status") {
            *status = json!("incomplete");
        }
        let place = self.output.len();
        let fields = json!({ "output_index": place, "item": shown });
        self.event("response.output_item.done", fields, out);
        self.output.push(shown);
    }

    /// Takes an event about an item that calls a server.
    fn take_call_event(
        &mut self,
        bench: &ToolBench,
        name: &str,
        mut event: Value,
        known: &McpItem,
        out: &mut Vec<u8>,
    ) {
        let place = event.get("output_index").cloned();
        match name {
            "response.output_item.added" if !known.needs_approval => {
                let item = self.call_item(bench, event.get("item").unwrap_or(&Value::Null), known);
                self.event(name, json!({ "output_index": place, "item": item }), out);
                let fields = json!({ "item_id": known.id(), "output_index": place });
                self.event("response.mcp_call.in_progress", fields, out);
            }
            "response.function_call_arguments.delta" if !known.needs_approval => {
                let delta = event.get_mut("delta").map(Value::take);
                let fields =
                    json!({ "item_id": known.id(), "output_index": place, "delta": delta });
                self.event("response.mcp_call_arguments.delta", fields, out);
            }
            "response.function_call_arguments.done" if !known.needs_approval => {
                let all = event.get_mut("arguments").map(Value::take);
                let fields =
                    json!({ "item_id": known.id(), "output_index": place, "arguments": all });
                self.event("response.mcp_call_arguments.done", fields, out);
            }
            // The id of a request for approval depends on the arguments, so the item begins at its end.
            "response.output_item.done" if known.needs_approval => {
                let item = event.get("item").unwrap_or(&Value::Null);
                if text(item, "status") == "incomplete" {
                    return;
                }
                let item = self.call_item(bench, item, known);
                let fields = json!({ "output_index": place, "item": item });
                self.event("response.output_item.added", fields.clone(), out);
                self.event(name, fields, out);
            }
            // The item is done when the server has answered.
            _ => {}
        }
    }
}

impl TurnFormat for ResponsesTurns {
    fn approved(&mut self) -> Vec<FunctionUse> {
        self.approved.iter().map(|(approved, _)| approved.clone()).collect()
    }

    fn next_body(&mut self, may_call: bool) -> Value {
        self.turn = ResponsesTurn { base: self.output.len(), ..ResponsesTurn::default() };
        let body = self.body_of_turn(may_call);
        self.turns += 1;
        body
    }

    fn first_body(&self) -> Option<Value> {
        Some(self.body_of_turn(true))
    }

    fn with_own_paths(&self, error: ApiError) -> ApiError {
        self.places.iter().fold(error, |error, places| places.restore_path(error))
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
        let base = self.turn.base as u64;
        match name.as_str() {
            "response.created" | "response.in_progress" | "response.queued" => {
                if self.has_started {
                    return Ok(());
                }
                if let Some(Value::Object(response)) = event.get_mut("response") {
                    self.complete(response, Vec::new());
                }
                self.event(&name, event, out);
                if name == "response.in_progress" {
                    self.has_started = true;
                    self.write_first_items(out);
                }
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                if let Some(Value::Object(response)) = event.get_mut("response").map(Value::take) {
                    self.turn.ended = Some(response);
                }
            }
            _ => {
                if !self.has_started {
                    self.has_started = true;
                    self.write_first_items(out);
                }
                let Some(index) = event.get("output_index").and_then(Value::as_u64) else {
                    self.event(&name, event, out);
                    return Ok(());
                };
                if name == "response.output_item.added"
                    && let Some(item) = event.get("item")
                    && let Some(known) = self.recognise(bench, item, index)
                {
                    self.turn.calls.insert(index, known);
                }
                if let Some(place) = event.get_mut("output_index") {
                    *place = Value::from(base + index);
                }
                match self.turn.calls.get(&index).cloned() {
                    Some(known) => self.take_call_event(bench, &name, event, &known, out),
                    None => self.event(&name, event, out),
                }
            }
        }
        Ok(())
    }

    fn take_reply(&mut self, _bench: &ToolBench, reply: Map<String, Value>) {
        self.turn.ended = Some(reply);
    }

    fn end_turn(&mut self, bench: &ToolBench, out: &mut Vec<u8>) -> Result<TurnEnd, ApiError> {
        let Some(ended) = &mut self.turn.ended else {
            return Err(ApiError::new(
                canon::ErrorKind::Interrupted,
                "the answer broke off before its end",
            ));
        };
        let items = take_list(ended, "output");
        if let Some(usage) = ended.get("usage") {
            add_numbers(&mut self.usage, usage);
        }
        let is_complete = ended.get("status").is_none_or(|status| status == "completed");
        let mut end = TurnEnd { uses: Vec::new(), is_last: !is_complete };
        for (index, mut item) in items.into_iter().enumerate() {
            if let Some(known) = self.recognise(bench, &item, index as u64) {
                if !is_complete {
                    self.add_cut_call(bench, &item, &known, out);
                    continue;
                }
                self.output.push(self.call_item(bench, &item, &known));
                end.is_last |= known.needs_approval;
                if !known.needs_approval {
                    let id = self.ids.claim(text(&item, "call_id"));
                    if let Some(place) = item.get_mut("call_id") {
                        *place = Value::from(id.clone());
                    }
                    self.turn.running.insert(id.clone(), self.output.len() - 1);
                    let function = text(&item, "name").to_owned();
                    let arguments = text(&item, "arguments").to_owned();
                    end.uses.push(FunctionUse { id, function, arguments });
                }
            } else {
                // Everything else that is called is the caller's.
                end.is_last |= text(&item, "type").ends_with("_call") && is_callers(&item);
                self.output.push(item.clone());
            }
            self.input.push(item);
        }
        Ok(end)
    }

    fn add_outcome(
        &mut self,
        bench: &ToolBench,
        call: &FunctionUse,
        outcome: ToolOutcome,
        out: &mut Vec<u8>,
    ) {
        let ToolOutcome { text: result, images, error } = outcome;
        let output = shown_output(&result, images);
        let approved = self.approved.iter().find(|(approved, _)| approved == call);
        if let Some((_, request)) = approved.filter(|_| self.turns == 0) {
            let (label, name) =
                bench.find(&call.function).map_or(("", ""), |tool| (tool.label, tool.name));
            self.output.push(json!({
                "id": format!("mcp_{}", request.strip_prefix("mcpr_").unwrap_or(request)),
                "type": "mcp_call", "server_label": label, "name": name,
                "arguments": call.arguments,
                "status": if error.is_some() { "failed" } else { "completed" },
                "approval_request_id": request,
                "output": if error.is_some() { Value::Null } else { Value::from(result.clone()) },
                "error": error,
            }));
            let call_id = &call.id;
            self.input.push(json!({
                "type": "function_call", "call_id": call_id, "name": call.function,
                "arguments": call.arguments,
            }));
            self.input.push(json!({
                "type": "function_call_output", "call_id": call_id, "output": output,
            }));
            return;
        }
        self.input.push(json!({
            "type": "function_call_output", "call_id": call.id, "output": output,
        }));
        let Some(at) = self.turn.running.get(&call.id).copied() else { return };
        let is_failed = error.is_some();
        let Some(item) = self.output.get_mut(at).and_then(Value::as_object_mut) else { return };
        let status = if is_failed { "failed" } else { "completed" };
        item.insert("status".to_owned(), Value::from(status));
        match error {
            Some(error) => item.insert("error".to_owned(), error),
            None => item.insert("output".to_owned(), Value::from(result)),
        };
        let item = Value::Object(item.clone());
        let place = json!({ "item_id": item.get("id"), "output_index": at });
        self.event(&format!("response.mcp_call.{status}"), place, out);
        self.event("response.output_item.done", json!({ "output_index": at, "item": item }), out);
    }

    fn finish_stream(&mut self, out: &mut Vec<u8>) {
        let response = self.finish_reply();
        let name = match response.get("status").and_then(Value::as_str) {
            Some("incomplete") => "response.incomplete",
            Some("failed") => "response.failed",
            Some(_) | None => "response.completed",
        };
        self.event(name, json!({ "response": response }), out);
    }

    fn finish_reply(&mut self) -> Value {
        let mut response = self.turn.ended.take().unwrap_or_default();
        let output = std::mem::take(&mut self.output);
        self.complete(&mut response, output);
        response.insert("usage".to_owned(), std::mem::take(&mut self.usage));
        Value::Object(response)
    }
}

/// Returns the result of a function: its text, or a list of text and images.
fn shown_output(text: &str, images: Vec<ToolImage>) -> Value {
    if images.is_empty() {
        return Value::from(text);
    }
    let shown = images.into_iter().map(|ToolImage { mime, data }| {
        json!({ "type": "input_image", "image_url": format!("data:{mime};base64,{data}") })
    });
    let text = json!({ "type": "input_text", "text": text });
    Value::from(std::iter::once(text).chain(shown).collect::<Vec<_>>())
}

/// Returns true if the caller must answer a call. The provider has run its own tools already.
fn is_callers(item: &Value) -> bool {
    matches!(
        text(item, "type"),
        "function_call"
            | "custom_tool_call"
            | "shell_call"
            | "local_shell_call"
            | "apply_patch_call"
            | "computer_call"
            | "tool_search_call"
    )
}
