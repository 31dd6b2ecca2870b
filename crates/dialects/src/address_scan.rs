//! Addresses in the fields of a request that a provider in a private network must not get.
//!
//! No table lists the fields that a server opens: those that imitate a format add their own, and some
//! read keys in any case. So every text that is an absolute URL counts, except in the fields that hold
//! texts and data for the model.

use canon::ApiError;
use memchr::{memchr, memchr_iter, memmem};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

use crate::body_outline::BodyOutline;
use crate::field_scan::ignore_scalars;
use crate::text::{BorrowedText, to_camel_case};

/// Fields whose content is free, at any depth: schemas and data of the caller, and what an earlier
/// answer cited. Keys are without case and underscores.
const FREE_FIELDS: [&str; 23] = [
    "action",
    "annotations",
    "args",
    "arguments",
    "attributes",
    "chattemplatekwargs",
    "citationmetadata",
    "citations",
    "documents",
    "examples",
    "groundingmetadata",
    "headers",
    "inputexamples",
    "labels",
    "logitbias",
    "logprobs",
    "metadata",
    "outputs",
    "parameters",
    "response",
    "results",
    "searchresults",
    "structuredoutputs",
];

/// Fields that hold a text, or a list of texts.
const TEXT_FIELDS: [&str; 48] = [
    "badwords",
    "callid",
    "chattemplate",
    "code",
    "command",
    "commands",
    "content",
    "context",
    "definition",
    "diff",
    "displayname",
    "encryptedcontent",
    "error",
    "filename",
    "grammar",
    "id",
    "input",
    "instructions",
    "lines",
    "logs",
    "message",
    "model",
    "name",
    "output",
    "outputtext",
    "pattern",
    "prefix",
    "promptcachekey",
    "queries",
    "query",
    "reason",
    "reasoning",
    "reasoningcontent",
    "refusal",
    "regex",
    "safetyidentifier",
    "sessionid",
    "stderr",
    "stdout",
    "stop",
    "stopsequences",
    "suffix",
    "summary",
    "system",
    "text",
    "thinking",
    "title",
    "tooluseid",
];
/// Further ones by the end of their key. `user` is one of them.
const TEXT_ENDS: [&str; 6] =
    ["description", "domains", "domainfilter", "prompt", "transcript", "user"];

/// Schemes whose URL needs no slashes for some readers.
const BARE_SCHEMES: [&str; 4] = ["http", "https", "file", "ftp"];
/// A URL of this scheme is data.
const DATA_SCHEME: &str = "data";
const MAX_SCHEME_CHARS: usize = 24;

/// Returns the path of the first address outside of the fields for texts, except at the paths that are
/// known. Most bodies have none, which a byte search of the outline tells.
pub fn first_address(
    body: &[u8],
    outline: &BodyOutline,
    allows_snake_case: bool,
    is_known: &dyn Fn(&str) -> bool,
) -> Result<Option<String>, ApiError> {
    if !may_have_address(outline.of(body)) {
        return Ok(None);
    }
    let path = String::new();
    let mut scan =
        AddressScan { path, allows_snake_case, is_known, found: None, type_name: String::new() };
    let visitor = ValueVisitor { scan: &mut scan, kind: FieldKind::Other };
    match visitor.deserialize(&mut serde_json::Deserializer::from_slice(body)) {
        Ok(_) => Ok(scan.found),
        Err(e) => Err(ApiError::invalid("", format!("the body cannot be read: {e}"))),
    }
}

/// Returns false if no text of a JSON body can be an address.
fn may_have_address(body: &[u8]) -> bool {
    let begins_one = |at: usize| {
        let before = at.checked_sub(1).and_then(|at| body.get(at)).copied().unwrap_or_default();
        // The colon behind a key.
        if before == b'"' || before.is_ascii_whitespace() {
            return false;
        }
        let mut rest = body.get(at + 1..).unwrap_or_default();
        // Some readers remove white space.
        while let [b'\\', b'n' | b'r' | b't', more @ ..] = rest {
            rest = more;
        }
        match rest {
            [b'/', ..] | [b'\\', b'/' | b'\\' | b'u', ..] => true,
            [next, ..] => {
                let ends_scheme = matches!(before | 0x20, b'p' | b's' | b'e');
                ends_scheme && (next.is_ascii_alphanumeric() || *next == b'[')
            }
            [] => false,
        }
    };
    // An escaped colon. Most bodies have no escape at all.
    let escapes = || memchr(b'\\', body).and_then(|first| body.get(first..)).unwrap_or_default();
    memchr_iter(b':', body).any(begins_one) || memmem::find(escapes(), b"\\u003").is_some()
}

/// Returns true for an absolute URL, however it is decorated.
fn is_address(text: &str) -> bool {
    let is_removed = |c: &char| matches!(c, '\t' | '\n' | '\r');
    let decoration = |c: &char| !c.is_ascii_alphanumeric();
    let letters = text.chars().filter(|c| !is_removed(c)).skip_while(decoration);
    let head: String = letters.take(MAX_SCHEME_CHARS + 8).collect::<String>().to_ascii_lowercase();
    // `urllib` of Python takes `<URL:…>`.
    let head = head.strip_prefix("url:").unwrap_or(&head);
    let Some((scheme, rest)) = head.split_once(':') else { return false };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    if !is_scheme || scheme == DATA_SCHEME {
        return false;
    }
    let is_slash = |c: char| matches!(c, '/' | '\\');
    let has_slashes = rest.chars().take(2).filter(|c| is_slash(*c)).count() == 2;
    let is_bare = rest.starts_with(|c: char| is_slash(c) || c.is_ascii_alphanumeric() || c == '[');
    has_slashes || (BARE_SCHEMES.contains(&scheme) && is_bare)
}

/// Returns true for the type of an object that an earlier answer found.
fn is_found_type(name: &str) -> bool {
    let ends = ["_citation", "_location", "search_result", "web_fetch_result"];
    ends.iter().any(|end| name.ends_with(end))
}

/// Content of a field, by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldKind {
    Free,
    Text,
    /// The type of the object.
    Type,
    /// Text, or the arguments of a call if it is an object.
    Input,
    /// The text of an object for a text.
    Data,
    /// The origin of an object for something that was found.
    Source,
    Other,
}

impl FieldKind {
    fn of(key: &str) -> Self {
        let is_letter = |c: &char| !matches!(c, '_' | '-');
        let plain: String = key.chars().filter(is_letter).map(|c| c.to_ascii_lowercase()).collect();
        let plain = plain.as_str();
        if plain == "type" {
            Self::Type
        } else if plain == "input" {
            Self::Input
        } else if FREE_FIELDS.contains(&plain)
            || plain.ends_with("schema")
            || plain.starts_with("guided")
        {
            Self::Free
        } else if TEXT_FIELDS.contains(&plain)
            || (TEXT_ENDS.iter().any(|end| plain.ends_with(end)) && !plain.contains("image"))
        {
            Self::Text
        } else if plain == "data" {
            Self::Data
        } else if matches!(plain, "url" | "source") {
            Self::Source
        } else {
            Self::Other
        }
    }
}

struct AddressScan<'s> {
    path: String,
    allows_snake_case: bool,
    is_known: &'s dyn Fn(&str) -> bool,
    found: Option<String>,
    /// The type that was read last.
    type_name: String,
}

/// Visits one value. Returns the path of an address that is the value, or an item of it.
struct ValueVisitor<'f, 's> {
    scan: &'f mut AddressScan<'s>,
    kind: FieldKind,
}

impl<'de> DeserializeSeed<'de> for ValueVisitor<'_, '_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueVisitor<'_, '_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Self { scan, kind: _ } = self;
        let length = scan.path.len();
        let (mut own, mut in_arguments) = (None, None);
        let (mut own_data, mut own_source) = (None, None);
        let (mut is_text, mut is_found, mut is_call) = (None, None, None);
        while let Some(BorrowedText(key)) = map.next_key::<BorrowedText<'de>>()? {
            let kind = FieldKind::of(&key);
            if kind == FieldKind::Free {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let name =
                if scan.allows_snake_case { to_camel_case(&key) } else { Cow::Borrowed(&*key) };
            if length > 0 {
                scan.path.push('.');
            }
            scan.path.push_str(&name);
            let before = scan.found.take();
            let at = map.next_value_seed(ValueVisitor { scan: &mut *scan, kind })?;
            let inside = std::mem::replace(&mut scan.found, before);
            if kind == FieldKind::Input {
                in_arguments = in_arguments.or(inside);
            } else if scan.found.is_none() {
                scan.found = inside;
            }
            if kind == FieldKind::Type {
                // A key may stand there twice, and readers differ in the one that they take.
                let name = std::mem::take(&mut scan.type_name);
                is_text = Some(is_text.unwrap_or(true) && name == "text");
                is_found = Some(is_found.unwrap_or(true) && is_found_type(&name));
                is_call = Some(is_call.unwrap_or(true) && name.ends_with("tool_use"));
            }
            match kind {
                FieldKind::Data => own_data = own_data.or(at),
                FieldKind::Source => own_source = own_source.or(at),
                FieldKind::Free
                | FieldKind::Text
                | FieldKind::Type
                | FieldKind::Input
                | FieldKind::Other => own = own.or(at),
            }
            scan.path.truncate(length);
        }
        let own_data = own_data.filter(|_| is_text != Some(true));
        // Only a conversation has what was found.
        let is_said = scan.path.contains("content");
        let own_source = own_source.filter(|_| is_found != Some(true) || !is_said);
        let own = own.or(own_data).or(own_source);
        let in_arguments = in_arguments.filter(|_| is_call != Some(true));
        scan.found = scan.found.take().or(own).or(in_arguments);
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let Self { scan, kind } = self;
        let (length, mut own) = (scan.path.len(), None);
        for at in 0_usize.. {
            scan.path.push_str(&format!("[{at}]"));
            let next = list.next_element_seed(ValueVisitor { scan: &mut *scan, kind })?;
            scan.path.truncate(length);
            let Some(item) = next else { break };
            own = own.or(item);
        }
        Ok(own)
    }

    ignore_scalars!();

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        let Self { scan, kind } = self;
        if kind == FieldKind::Type {
            text.clone_into(&mut scan.type_name);
        }
        let is_looked_at = match kind {
            FieldKind::Other | FieldKind::Type | FieldKind::Data | FieldKind::Source => true,
            FieldKind::Free | FieldKind::Text | FieldKind::Input => false,
        };
        let is_found = is_looked_at && is_address(text) && !(scan.is_known)(&scan.path);
        Ok(is_found.then(|| scan.path.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(body: &str) -> Option<String> {
        first_address(body.as_bytes(), &BodyOutline::default(), false, &|_| false).unwrap()
    }

    #[test]
    fn an_address_is_found_under_any_key() {
        for (value, path) in [
            (
                json!({ "tools": [{ "type": "function", "server_url": "U" }] }),
                "tools[0].server_url",
            ),
            (
                json!({ "tools": [{ "type": "function", "function": { "name": "f", "server_url": "U" } }] }),
                "tools[0].function.server_url",
            ),
            (json!({ "tools": [{ "Server_URL": { "x": ["U"] } }] }), "tools[0].Server_URL.x[0]"),
            (
                json!({ "tools": [{ "input_image_mask": { "image_url": "U" } }] }),
                "tools[0].input_image_mask.image_url",
            ),
            (json!({ "mcp_servers": { "a": { "URL": "U" } } }), "mcp_servers.a.URL"),
            (
                json!({ "messages": [{ "content": "a", "images": [{ "url": "U" }] }] }),
                "messages[0].images[0].url",
            ),
            (
                json!({ "messages": [{ "content": [{ "type": "image", "image": { "url": "U" } }] }] }),
                "messages[0].content[0].image.url",
            ),
            // Nested documents, at any depth.
            (
                json!({ "content": [{ "type": "document", "source": { "content": [
                    { "type": "document", "source": { "content": [{ "type": "document",
                        "source": { "content": [{ "type": "image",
                            "source": { "type": "url", "url": "U" } }] } }] } }] } }] }),
                "content[0].source.content[0].source.content[0].source.content[0].source.url",
            ),
            (
                json!({ "input": [{ "type": "input_image", "image_url": "U" }] }),
                "input[0].image_url",
            ),
            (json!({ "prompt": "x", "ref_images": ["U"] }), "ref_images[0]"),
            // A reader takes one of two types.
            (json!({ "x": { "TYPE": "image", "type": "search_result", "url": "U" } }), "x.url"),
            (json!({ "x": { "type": "image", "input": { "url": "U" } } }), "x.input.url"),
            (json!({ "x": { "type": "U" } }), "x.type"),
            // A type frees its own fields only.
            (json!({ "tools": [{ "type": "text", "server_url": "U" }] }), "tools[0].server_url"),
            (json!({ "mcp_servers": [{ "type": "text", "url": "U" }] }), "mcp_servers[0].url"),
            (json!({ "init": { "type": "search_result", "url": "U" } }), "init.url"),
            (json!({ "prompt": "x", "image_prompt": "U" }), "image_prompt"),
        ] {
            for url in
                ["http://10.1.2.3/x", "https://e.example", "gs://b/o", "s3://b/o", "file:///x"]
            {
                let body = value.to_string().replace("\"U\"", &format!("\"{url}\""));
                assert_eq!(found(&body).as_deref(), Some(path), "{body}");
            }
        }
    }

    #[test]
    fn an_address_is_found_however_it_is_written() {
        for url in [
            "HTTP://10.1.2.3",
            " http://10.1.2.3",
            "<URL:http://10.1.2.3>",
            "http:10.1.2.3",
            "http:/10.1.2.3",
            "file:/etc/passwd",
            r"http:\\\\10.1.2.3",
            r"ht\ntp:\t//10.1.2.3",
            r"http:\/\/10.1.2.3",
            r"http\u003a//10.1.2.3",
            r"http\u003A\u002f\u002F10.1.2.3",
            r"\u0068ttp://10.1.2.3",
            "http:[::1]/x",
            "gopher://10.1.2.3",
        ] {
            let body = format!(r#"{{"x":"{url}"}}"#);
            assert_eq!(found(&body).as_deref(), Some("x"), "{body}");
        }
    }

    /// Texts for the model, schemas, arguments, and what an earlier answer cited.
    #[test]
    fn texts_and_data_of_the_caller_stay() {
        const U: &str = "https://e.example/x";
        let schema = json!({ "$schema": U, "$id": U, "properties": { "url": { "type": "string",
            "const": U, "$ref": U, "default": U, "description": U } } });
        for body in [
            json!({ "messages": [{ "role": "user", "content": U }], "stop": [U], "user": U,
                "prompt_cache_key": U, "metadata": { "page": U } }),
            json!({ "tools": [{ "type": "function", "function": { "name": "f", "description": U,
                "parameters": schema } }], "response_format": { "json_schema": { "schema": schema } } }),
            json!({ "messages": [{ "role": "assistant", "content": [{ "type": "text", "text": U }],
                "tool_calls": [{ "function": { "arguments": U } }], "reasoning_content": U,
                "annotations": [{ "type": "url_citation", "url_citation": { "url": U } }] }] }),
            json!({ "system": [{ "text": U }], "messages": [{ "content": [
                { "type": "tool_use", "name": "open", "input": { "url": U, "more": [{ "url": U }] } },
                { "input": { "url": U }, "type": "server_tool_use" },
                { "type": "tool_result", "content": U },
                { "type": "search_result", "source": U, "title": U, "content": [{ "type": "text", "text": U }] },
                { "type": "web_search_tool_result", "content": [{ "type": "web_search_result", "url": U }] },
                { "type": "text", "text": "x", "citations": [{ "type": "web_search_result_location", "url": U }] },
                { "type": "document", "source": { "type": "text", "data": U } },
            ] }], "tools": [{ "input_schema": schema, "input_examples": [{ "url": U }] }] }),
            json!({ "instructions": U, "input": [{ "type": "function_call_output", "output": U },
                { "type": "web_search_call", "action": { "type": "open_page", "url": U } },
                { "type": "custom_tool_call", "input": U }, { "role": "user", "content": U }],
                "tools": [{ "type": "web_search", "filters": { "allowed_domains": [U] } }] }),
            json!({ "contents": [{ "parts": [{ "text": U }, { "functionCall": { "args": { "url": U } } },
                { "functionResponse": { "response": { "url": U } } }] }],
                "systemInstruction": { "parts": [{ "text": U }] },
                "generationConfig": { "responseJsonSchema": schema, "stopSequences": [U] } }),
            json!({ "input": ["a", U] }),
            json!({ "messages": [{ "content": [{ "type": "document", "title": "T", "context": U,
                "source": { "type": "text", "data": U } }], "logprobs": { "content": [{ "token": U }] } }] }),
            json!({ "input": [{ "type": "file_search_call", "id": "file:0",
                "results": [{ "attributes": { "source": U } }] }] }),
            json!({ "x": "data:image/png;base64,AA", "y": "12:30", "z": "note: http is", "p": "C:/x" }),
        ] {
            assert_eq!(found(&body.to_string()), None, "{body}");
        }
        let known = |path: &str| path == "contents.fileData";
        let body = json!({ "contents": { "file_data": U } }).to_string();
        assert_eq!(
            first_address(body.as_bytes(), &BodyOutline::default(), true, &known).unwrap(),
            None
        );
    }

    #[test]
    fn a_byte_search_tells_ordinary_bodies() {
        for body in [
            r#"{"model":"m","messages":[{"role":"user","content":"Hi: at 12:30,\nnote:\n- a"}]}"#,
            r#"{ "a" : 1, "b":{"c":["x: y"]},"d":"data:image/png;base64,//AA"}"#,
        ] {
            assert!(!may_have_address(body.as_bytes()), "{body}");
        }
        assert!(may_have_address(br#"{"a":"see https://e.example"}"#));
    }
}
