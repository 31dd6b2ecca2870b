//! Tools of the servers of one call, as functions for a model, and their calls.

use canon::ApiError;
use config::McpServerSettings;
use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::client::{McpClient, McpEndpoint, McpError, McpTool};
use super::tool_outcome::ToolOutcome;

/// Servers of one request.
pub(super) const MAX_SERVERS: usize = 20;
/// Longest name of a function that all formats take.
const MAX_FUNCTION_BYTES: usize = 64;
/// Code of the error of a server that does not list its tools.
const LIST_FAILED_CODE: &str = "mcp_list_tools_failed";

/// Tools that a rule selects.
#[derive(Clone, Debug)]
pub(super) enum ToolFilter {
    /// All tools.
    All,
    /// Tools with these names.
    Named(HashSet<String>),
    /// All but those with these names.
    Except(HashSet<String>),
    /// Tools that say that they change nothing, or the others.
    ReadOnly(bool),
    /// Tools that the operator offers.
    Offered(Arc<McpServerSettings>),
}

impl ToolFilter {
    /// Selects no tool.
    pub(super) fn none() -> Self {
        Self::Named(HashSet::new())
    }

    pub(super) fn selects(&self, tool: &McpTool) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(&tool.name),
            Self::Except(names) => !names.contains(&tool.name),
            Self::Offered(server) => server.offers(&tool.name),
            Self::ReadOnly(wanted) => {
                let hint = tool.listed.get("annotations").and_then(|all| all.get("readOnlyHint"));
                hint.and_then(Value::as_bool).unwrap_or(false) == *wanted
            }
        }
    }
}

/// Server as a request names it.
pub(super) struct NamedServer {
    /// Name in the request.
    pub(super) label: String,
    /// Place in the request.
    pub(super) path: String,
    pub(super) endpoint: McpEndpoint,
    /// Tools that the model may use: all rules must select one.
    pub(super) allowed: Vec<ToolFilter>,
    /// Tools that the caller must approve.
    pub(super) approval: ToolFilter,
    /// Server of the operator; `None` for one that the caller named by its address.
    pub(super) offered: Option<Arc<McpServerSettings>>,
}

/// Server with its tools.
pub(super) struct BenchServer {
    pub(super) label: String,
    pub(super) tools: Vec<McpTool>,
    approval: ToolFilter,
    client: McpClient,
    offered: Option<Arc<McpServerSettings>>,
}

/// Tools of all servers of one call. Only tools that are listed here are ever called.
#[derive(Default)]
pub(super) struct ToolBench {
    pub(super) servers: Vec<BenchServer>,
    /// True if results show their images to the model.
    pub(super) shows_images: bool,
    functions: HashMap<String, BenchPlace>,
    names: HashMap<(usize, String), String>,
}

#[derive(Clone, Copy, Debug)]
struct BenchPlace {
    server: usize,
    tool: usize,
}

/// Tool behind a function.
#[derive(Clone, Copy)]
pub(super) struct BenchTool<'b> {
    pub(super) label: &'b str,
    pub(super) name: &'b str,
    pub(super) needs_approval: bool,
}

impl ToolBench {
    /// Lists the tools of the servers, all at the same time, or takes them for empty if they are not to be
    /// asked. `taken` are the names of the caller's own functions. A server that does not list its tools
    /// fails the request.
    pub(super) async fn open(
        servers: Vec<NamedServer>,
        taken: HashSet<String>,
        asks: bool,
    ) -> Result<Self, ApiError> {
        if servers.len() > MAX_SERVERS {
            let message = format!("a request has at most {MAX_SERVERS} MCP servers");
            return Err(ApiError::invalid("tools", message));
        }
        let mut labels = HashSet::new();
        for server in &servers {
            if !labels.insert(&server.label) {
                let message = format!("`{}` repeats the name of another server", server.path);
                return Err(ApiError::invalid(&server.path, message));
            }
        }
        let opened = join_all(servers.into_iter().map(|server| open_server(server, asks))).await;
        let mut bench = Self::default();
        for server in opened {
            bench.servers.push(server?);
        }
        bench.name_functions(taken);
        Ok(bench)
    }

    /// Gives every tool the name of a function that no other has.
    fn name_functions(&mut self, mut taken: HashSet<String>) {
        for (server, own) in self.servers.iter().enumerate() {
            for (tool, listed) in own.tools.iter().enumerate() {
                let name = free_name(&function_name(&own.label, &listed.name), &taken);
                taken.insert(name.clone());
                self.functions.insert(name.clone(), BenchPlace { server, tool });
                self.names.insert((server, listed.name.clone()), name);
            }
        }
    }

    /// Returns the tool behind a function.
    pub(super) fn find(&self, function: &str) -> Option<BenchTool<'_>> {
        let place = self.functions.get(function)?;
        let server = self.servers.get(place.server)?;
        let tool = server.tools.get(place.tool)?;
        let needs_approval = server.approval.selects(tool);
        Some(BenchTool { label: &server.label, name: &tool.name, needs_approval })
    }

    /// Returns the server of the operator behind a function.
    pub(super) fn offered_server(&self, function: &str) -> Option<&Arc<McpServerSettings>> {
        let place = self.functions.get(function)?;
        self.servers.get(place.server)?.offered.as_ref()
    }

    /// Returns the function of a tool. That of a tool that is not offered any more is not called.
    pub(super) fn function_of(&self, label: &str, tool: &str) -> String {
        let server = self.servers.iter().position(|server| server.label == label);
        let known = server.and_then(|at| self.names.get(&(at, tool.to_owned())));
        known.cloned().unwrap_or_else(|| function_name(label, tool))
    }

    /// Returns the functions of one server, in its order.
    pub(super) fn functions(&self, label: &str) -> Vec<(String, &McpTool)> {
        let Some(at) = self.servers.iter().position(|server| server.label == label) else {
            return Vec::new();
        };
        let tools = self.servers.get(at).map(|server| &server.tools[..]).unwrap_or_default();
        let name = |tool: &McpTool| self.names.get(&(at, tool.name.clone())).cloned();
        tools.iter().filter_map(|tool| Some((name(tool)?, tool))).collect()
    }

    /// Calls the tool behind a function with arguments in JSON. A failure is a result too: the model reads
    /// it.
    pub(super) async fn call(&mut self, function: &str, arguments: &str) -> ToolOutcome {
        let place = self.functions.get(function).copied();
        let server = place.and_then(|place| self.servers.get_mut(place.server));
        let (Some(place), Some(server)) = (place, server) else {
            return ToolOutcome::refused("there is no such tool");
        };
        let Some(tool) = server.tools.get(place.tool) else {
            return ToolOutcome::refused("there is no such tool");
        };
        let text = if arguments.trim().is_empty() { "{}" } else { arguments };
        let Ok(arguments) = dialects::json::read::<Map<String, Value>>(text) else {
            return ToolOutcome::refused("the arguments are not a JSON object");
        };
        match server.client.call_tool(&tool.name, Value::Object(arguments)).await {
            Ok(result) => ToolOutcome::read(&result, self.shows_images),
            Err(error) => failure(&server.label, &error),
        }
    }
}

async fn open_server(server: NamedServer, asks: bool) -> Result<BenchServer, ApiError> {
    let NamedServer { label, path, endpoint, allowed, approval, offered } = server;
    let mut client = McpClient::new(endpoint);
    let is_allowed = |tool: &McpTool| allowed.iter().all(|rule| rule.selects(tool));
    if !asks {
        return Ok(BenchServer { label, tools: Vec::new(), approval, client, offered });
    }
    let listed = client.list_tools(is_allowed).await;
    let tools = listed.map_err(|error| {
        note_failure(&label, &error);
        let message =
            format!("the tools of the MCP server `{}` are not known: {error}", shown(&label));
        ApiError::invalid(&path, message).with_code(LIST_FAILED_CODE)
    })?;
    Ok(BenchServer { label, tools, approval, client, offered })
}

fn note_failure(label: &str, error: &McpError) {
    tracing::debug!("the MCP server `{}` failed: {error:?}", shown(label));
}

/// Returns a short form of a text of the caller.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(64).collect()
}

fn failure(label: &str, error: &McpError) -> ToolOutcome {
    note_failure(label, error);
    let error_value = match error {
        McpError::Status(status) => {
            json!({ "type": "http_error", "code": status, "message": error.to_string() })
        }
        McpError::Protocol { code, message, .. } => {
            json!({ "type": "mcp_protocol_error", "code": code, "message": message })
        }
        McpError::NotPublic
        | McpError::Busy
        | McpError::Timeout
        | McpError::Unreachable(_)
        | McpError::NotConnected { .. }
        | McpError::SignInEnded { .. }
        | McpError::Unusable(_) => {
            json!({ "type": "mcp_protocol_error", "code": -32000, "message": error.to_string() })
        }
    };
    let text = format!("The tool failed: the server `{}` cannot be used, {error}.", shown(label));
    ToolOutcome { text, images: Vec::new(), error: Some(error_value) }
}

/// Returns the name of a function for a tool, of letters that all formats take.
fn function_name(label: &str, tool: &str) -> String {
    let plain = |text: &str| -> String {
        let letter = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        text.chars().map(letter).collect()
    };
    let mut name = format!("{}__{}", plain(label), plain(tool));
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        name.insert(0, '_');
    }
    name.truncate(MAX_FUNCTION_BYTES);
    name
}

/// Returns the name, or the name with a number if it is taken.
fn free_name(name: &str, taken: &HashSet<String>) -> String {
    if !taken.contains(name) {
        return name.to_owned();
    }
    let numbered = (2_u32..).map(|number| {
        let end = format!("_{number}");
        let kept = name.get(..name.len().min(MAX_FUNCTION_BYTES - end.len())).unwrap_or(name);
        format!("{kept}{end}")
    });
    numbered.into_iter().find(|name| !taken.contains(name)).unwrap_or_default()
}
