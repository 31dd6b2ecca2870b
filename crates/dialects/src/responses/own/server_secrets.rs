//! Secrets of MCP servers in the tools of a request. The response object repeats the tools of its request,
//! is stored, and may be read by others, so it repeats them without the secrets.
//!
//! OpenAI does the same: it returns no `authorization`, no values of `headers`, and of an address only the
//! server (<https://platform.openai.com/docs/guides/tools-connectors-mcp>).

use serde_json::Value;

use crate::json;

/// Stands for the part of an address that may be a secret.
const REDACTED: &str = "<redacted>";
/// Fields of a server that may hold secrets.
const SECRET_FIELDS: [&str; 3] = ["\"authorization\"", "\"headers\"", "\"server_url\""];

/// Removes the secrets of a tool that is an MCP server.
pub fn hide_server_secrets(tool: &mut Value) {
    let is_server = tool.get("type").and_then(Value::as_str) == Some("mcp");
    let Some(fields) = tool.as_object_mut().filter(|_| is_server) else { return };
    fields.shift_remove("authorization");
    if let Some(headers) = fields.get_mut("headers") {
        *headers = Value::Null;
    }
    if let Some(Value::String(url)) = fields.get_mut("server_url") {
        *url = shown_address(url);
    }
}

/// Returns the server of an address. Its path may be a secret as well as its query.
fn shown_address(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return REDACTED.to_owned() };
    // The rest is not parsed further: a browser takes a backslash for a slash.
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (server, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let server = server.rsplit_once('@').map_or(server, |(_, server)| server);
    match path {
        "" | "/" => format!("{scheme}://{server}{path}"),
        _ => format!("{scheme}://{server}/{REDACTED}"),
    }
}

/// Returns true if the tools of a response may have secrets, by the names of their fields.
pub(crate) fn may_have_secrets(tools: &str) -> bool {
    SECRET_FIELDS.iter().any(|name| tools.contains(name)) || tools.contains("\\u")
}

/// Returns the tools of a response without secrets; `None` if they have none.
pub(crate) fn without_secrets(tools: &str) -> Option<String> {
    if !may_have_secrets(tools) {
        return None;
    }
    let mut list: Vec<Value> = json::read(tools).ok()?;
    let before = list.clone();
    list.iter_mut().for_each(hide_server_secrets);
    (list != before).then(|| Value::from(list).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_keep_their_server() {
        for (url, shown) in [
            ("https://h.example/", "https://h.example/"),
            ("https://h.example", "https://h.example"),
            ("https://user:pw@h.example:8443", "https://h.example:8443"),
            ("https://user:p@w@h.example/mcp", "https://h.example/<redacted>"),
            ("https://h.example?token=x", "https://h.example/<redacted>"),
            ("https://h.example/s/SECRET/mcp#x", "https://h.example/<redacted>"),
            ("h.example/SECRET", "<redacted>"),
        ] {
            assert_eq!(shown_address(url), shown, "{url}");
        }
    }

    #[test]
    fn tools_of_a_response_have_no_secrets() {
        let function = json!({ "type": "function", "name": "f" });
        let server = json!({ "type": "mcp", "server_label": "s", "authorization": "A",
                             "headers": { "x": "B" }, "server_url": "https://h/C" });
        let shown = without_secrets(&json!([function, server]).to_string()).unwrap();
        let want = json!([function, { "type": "mcp", "server_label": "s", "headers": null,
                                      "server_url": "https://h/<redacted>" }]);
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), want);
        assert_eq!(without_secrets(&json!([function]).to_string()), None);
    }
}
