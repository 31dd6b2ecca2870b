//! Spans of tool calls on MCP servers, with the attribute names of the MCP conventions
//! (<https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md>).

use serde_json::{Value, json};

use super::otlp_values::{LabelSet, attributes, unix_nanos};
use super::tool_calls::{DONE, EndedTool};

/// Method of the protocol that calls a tool.
const METHOD: &str = "tools/call";

/// Returns the attributes of the metric. The name of the tool is not one, because a server of a caller may
/// have any number of them.
pub(crate) fn labels(ended: &EndedTool) -> LabelSet {
    let mut labels = vec![
        ("mcp.method.name", METHOD.to_owned()),
        ("gen_ai.operation.name", "execute_tool".to_owned()),
        ("portunus.mcp.server", ended.server.to_string()),
    ];
    if ended.outcome != DONE {
        labels.push(("error.type", ended.outcome.to_owned()));
    }
    labels
}

/// Returns the span of a tool call. Arguments and results are not exported.
pub(crate) fn span(ended: &EndedTool) -> Value {
    let EndedTool {
        trace_id, parent, span, sampled: _, server: _, tool, started, ended: end, ..
    } = ended;
    let mut labels = labels(ended);
    labels.push(("gen_ai.tool.name", tool.clone()));
    let mut value = json!({
        "traceId": format!("{trace_id:032x}"),
        "spanId": format!("{span:016x}"),
        "name": format!("{METHOD} {tool}"),
        // SPAN_KIND_CLIENT: the gateway is a client of the server.
        "kind": 3,
        "startTimeUnixNano": unix_nanos(*started),
        "endTimeUnixNano": unix_nanos(*end),
        "attributes": attributes(&labels),
        "status": { "code": if ended.outcome == DONE { 0 } else { 2 } },
    });
    if let (Some(parent), Some(value)) = (parent, value.as_object_mut()) {
        value.insert("parentSpanId".to_owned(), Value::String(format!("{parent:016x}")));
    }
    value
}
