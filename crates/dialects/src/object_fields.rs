//! Objects in a provider's account that a request names by id and does not contain: files,
//! containers, conversations, caches. And those that a reply hands out.
//!
//! A provider finds them by the operator's credential, so the id of somebody else's object would
//! open it. Each format lists its fields in `objects.rs`; nothing else knows them.

use canon::{ApiError, ErrorKind};
use memchr::memmem;
use std::collections::HashSet;

use crate::field_scan::{FieldScan, FieldText, KeyPath, Needles};

/// Longer ids are cut. None of this length is recorded, because no provider makes them.
const MAX_ID_CHARS: usize = 1_024;
/// Characters of an id in an error.
const MAX_SHOWN_CHARS: usize = 64;
/// Objects of one reply that are recorded at most.
const MAX_MADE_OBJECTS: usize = 256;

/// The names that say for themselves that a provider keeps the object, behind a beginning of the
/// path. A format's own service refuses most of them; its imitations have them.
macro_rules! object_ids {
    ($beginning:literal) => {
        concat!(
            $beginning,
            "file_id|file_ids|container_id|vector_store_id|vector_store_ids|collection_id|\
             collection_ids|knowledge_id|knowledge_base_id|knowledge_base_ids|corpus_id|dataset_id|\
             index_name|index_asset_id|connection_id|project_connection_id|tunnel_id|assistant_id|\
             memory_store_id|memory_store_name|queue_name|cached_content"
        )
    };
}
pub(crate) use object_ids;

/// One field of a request that names an object.
#[derive(Debug)]
pub(crate) struct ObjectField {
    path: KeyPath,
    /// The word for the object in an error; empty if its key says it.
    kind: &'static str,
    /// The path in an error, if it is not the field's own.
    shown_path: Option<&'static str>,
    /// Words, one of which stands in a body with such an object. The keys of the path by default.
    words: &'static [&'static str],
    /// Returns true for a text that may name an object.
    is_name: fn(&str) -> bool,
    /// Returns true if the text names an object.
    is_object: fn(&FieldText) -> bool,
    /// Returns true if the text is the id of what the body contains, and is looked up nevertheless.
    /// Other texts of such a field are the ids of what the body contains.
    is_contained: Option<fn(&FieldText) -> bool>,
}

impl ObjectField {
    /// A field of which the key says what it names.
    pub(crate) const fn of_key(path: KeyPath) -> Self {
        Self::new(path, "")
    }

    pub(crate) const fn new(path: KeyPath, kind: &'static str) -> Self {
        Self {
            path,
            kind,
            shown_path: None,
            words: &[],
            is_name: |_| true,
            is_object: |_| true,
            is_contained: None,
        }
    }

    /// A body with such an object has one of these words.
    pub(crate) const fn with_words(self, words: &'static [&'static str]) -> Self {
        Self { words, ..self }
    }

    /// The field names an object only with such a text.
    pub(crate) const fn only_named(self, is_name: fn(&str) -> bool) -> Self {
        Self { is_name, ..self }
    }

    /// The field names an object only then.
    pub(crate) const fn only_if(self, is_object: fn(&FieldText) -> bool) -> Self {
        Self { is_object, ..self }
    }

    /// The other texts of the field, and these, are the ids of what the body contains.
    pub(crate) const fn or_contained(self, is_contained: fn(&FieldText) -> bool) -> Self {
        Self { is_contained: Some(is_contained), ..self }
    }

    /// Errors show this path.
    pub(crate) const fn shown_as(self, path: &'static str) -> Self {
        Self { shown_path: Some(path), ..self }
    }

    /// Returns words, one of which every body with such an object has.
    fn needles(&self) -> Vec<String> {
        if !self.words.is_empty() {
            return self.words.iter().map(|word| (*word).to_owned()).collect();
        }
        let is_telling =
            |step: &&str| !step.ends_with(['*', '?']) && !["id", "name"].contains(step);
        let keys = self.path.rsplit('.').find(is_telling).unwrap_or_default().split('|');
        keys.flat_map(|key| [format!("\"{key}\""), format!("\"{}\"", snake_case(key))]).collect()
    }
}

fn snake_case(key: &str) -> String {
    key.chars().fold(String::new(), |name, c| match c {
        'A'..='Z' => name + "_" + &c.to_ascii_lowercase().to_string(),
        _ => name + &c.to_string(),
    })
}

/// Returns the word for an object by the key of its id: `Vector store` for `vector_store_ids[0]`, and
/// for `vector_store.id`.
fn kind_of(path: &str) -> String {
    let mut keys = path.rsplit('.').map(|key| key.split('[').next().unwrap_or_default());
    let key = keys.find(|key| !matches!(*key, "id" | "name")).unwrap_or("object");
    let word = ["_ids", "_id", "_name"].iter().find_map(|end| key.strip_suffix(end));
    let word = word.unwrap_or(key).replace('_', " ");
    let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
    first.to_uppercase() + rest
}

/// The fields of a format's requests that name objects, and of its replies that hand out ids.
#[derive(Debug)]
pub struct ObjectFields {
    pub(crate) fields: &'static [ObjectField],
    /// The words of the fields. A body without any of them names no object.
    pub(crate) needles: Needles,
    /// True if keys may be in snake_case as well.
    pub(crate) allows_snake_case: bool,
    /// The message of the format's own service if it does not hold an object of this kind and id.
    pub(crate) not_found: fn(&str, &str) -> String,
    /// Returns true if a URL leads to an object of the provider's account.
    pub(crate) is_own_url: fn(&str) -> bool,
    pub(crate) made: MadeFields,
}

impl ObjectFields {
    /// Returns true if a provider of this format would look for an object under this URL.
    pub fn holds_url(&self, url: &str) -> bool {
        (self.is_own_url)(url)
    }

    /// Returns the path of every field that names an object, without the indexes of lists, in the
    /// notation of the tables.
    pub fn paths(&self) -> impl Iterator<Item = &'static str> {
        self.fields.iter().map(|field| field.path)
    }
}

/// The fields of replies and events that hand out ids which clients send back.
#[derive(Debug)]
pub(crate) struct MadeFields {
    /// Words of requests, one of which leads to such a reply. An empty list means every request.
    pub(crate) triggers: &'static [&'static str],
    /// Words of replies and events with such a field.
    pub(crate) needles: &'static [&'static str],
    /// True if the event that ends a stream has all of them.
    pub(crate) is_in_last_event: bool,
    /// Fields of which the next request of the conversation depends.
    pub(crate) paths: &'static [KeyPath],
    /// Further fields, with ids of what the provider stores. Clients may send their content instead.
    pub(crate) stored_paths: &'static [KeyPath],
    /// Words of requests that tell the provider to store nothing.
    pub(crate) unstored: &'static [&'static str],
    /// Returns true if clients cannot send the content of such an object, stored or not.
    pub(crate) is_needed: fn(&FieldText) -> bool,
}

impl MadeFields {
    /// Replies hand out nothing.
    pub(crate) const NONE: Self = Self {
        triggers: &[],
        needles: &[],
        is_in_last_event: false,
        paths: &[],
        stored_paths: &[],
        unstored: &[],
        is_needed: |_| false,
    };
}

/// An object that a request names by id and does not contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// JSON path of the name.
    pub path: String,
    /// The id.
    pub id: String,
    /// The message of the format's own service if it does not hold the object.
    pub message: String,
    /// True if the body has an object of this id itself. A provider of this format looks for the id
    /// in its storage nevertheless.
    pub is_contained: bool,
}

impl StoredObject {
    /// Returns the error of a lane that does not hold the object.
    pub fn not_found(&self) -> ApiError {
        ApiError::new(ErrorKind::NotFound, self.message.clone()).with_param(self.path.clone())
    }
}

/// Returns every object that a request names, in the order of the body. Most requests have none; a byte
/// search detects that without parsing the body.
pub fn stored_objects(table: &ObjectFields, body: &[u8]) -> Result<Vec<StoredObject>, ApiError> {
    let words = || table.fields.iter().flat_map(ObjectField::needles).collect();
    if !table.needles.or_one_is_in(body, words) {
        return Ok(Vec::new());
    }
    let paths: Vec<KeyPath> = table.fields.iter().map(|field| field.path).collect();
    let scan = FieldScan {
        paths: &paths,
        allows_snake_case: table.allows_snake_case,
        wants_parents: true,
        accepts: &|row, text| table.fields.get(row).is_some_and(|field| (field.is_name)(text)),
    };
    let found = scan.run(body)?;
    let fields = || found.iter().filter_map(|text| Some((text, table.fields.get(text.row)?)));
    let contained: HashSet<&str> = fields()
        .filter(|(text, field)| field.is_contained.is_some() && !(field.is_object)(text))
        .map(|(text, _)| &*text.text)
        .collect();
    let object = |(text, field): (&FieldText, &ObjectField)| StoredObject {
        path: field.shown_path.map_or_else(|| text.path.clone(), str::to_owned),
        id: text.text.chars().take(MAX_ID_CHARS).collect(),
        message: {
            let shown: String = text.text.chars().take(MAX_SHOWN_CHARS).collect();
            let kind = kind_of(&text.path);
            (table.not_found)(if field.kind.is_empty() { &kind } else { field.kind }, &shown)
        },
        is_contained: field
            .is_contained
            .is_some_and(|is_contained| is_contained(text) || contained.contains(&*text.text)),
    };
    Ok(fields().filter(|(text, field)| (field.is_object)(text)).map(object).collect())
}

/// Returns true for a file in the storage of Google's services: its name, a bucket, or a URL of the
/// service itself. Public files of its storage service have URLs like those of any other host. The
/// guard of URLs refuses every other text.
pub(crate) fn is_google_object(uri: &str) -> bool {
    let uri = uri.to_ascii_lowercase();
    if uri.starts_with("files/") || uri.starts_with("gs:") {
        return true;
    }
    let Some(("https" | "http", rest)) = uri.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = host.split(':').next().unwrap_or_default().trim_end_matches('.');
    let is_service = host == "googleapis.com" || host.ends_with(".googleapis.com");
    is_service && host != "storage.googleapis.com"
}

/// Collects the ids that a reply hands out.
#[derive(Debug)]
pub struct MadeObjects {
    table: &'static MadeFields,
    paths: Vec<KeyPath>,
    is_unstored: bool,
    ids: Vec<String>,
    is_awaited: bool,
}

impl MadeObjects {
    /// Returns a collector for the reply to a request; `None` if no such reply has ids.
    pub fn of_request(table: &'static ObjectFields, body: &[u8]) -> Option<Self> {
        let table = &table.made;
        let has = |word: &&str| memmem::find(body, word.as_bytes()).is_some();
        let is_expected = table.triggers.is_empty() || table.triggers.iter().any(has);
        if table.paths.is_empty() || !is_expected {
            return None;
        }
        let paths = [table.paths, table.stored_paths].concat();
        let is_unstored = table.unstored.iter().any(has);
        Some(Self { table, paths, is_unstored, ids: Vec::new(), is_awaited: false })
    }

    /// Returns true if only the event that ends a stream has to be observed.
    pub fn is_in_last_event(&self) -> bool {
        self.table.is_in_last_event
    }

    /// Returns true if the next request of the conversation depends on an id that was observed.
    pub fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Takes a whole reply, or an event of a stream.
    pub fn observe(&mut self, data: &[u8]) {
        let mut needles = self.table.needles.iter();
        let is_there = needles.any(|word| memmem::find(data, word.as_bytes()).is_some());
        if self.ids.len() >= MAX_MADE_OBJECTS || !is_there {
            return;
        }
        let scan = FieldScan {
            paths: &self.paths,
            allows_snake_case: false,
            wants_parents: true,
            accepts: &|_, text| !text.is_empty() && text.len() < MAX_ID_CHARS,
        };
        // The readers of the format judge an unreadable reply.
        let found = scan.run(data).unwrap_or_default();
        for field in found {
            let is_stored = field.row >= self.table.paths.len();
            if is_stored && self.is_unstored && !(self.table.is_needed)(&field) {
                continue;
            }
            let FieldText { text, row, .. } = field;
            if self.ids.len() < MAX_MADE_OBJECTS && !self.ids.contains(&text) {
                self.is_awaited |= row < self.table.paths.len();
                self.ids.push(text);
            }
        }
    }

    /// Takes the ids out.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::WireFormat;
    use serde_json::{Value, json};

    fn table(origin: WireFormat) -> &'static ObjectFields {
        crate::get(origin).unwrap().traits().objects
    }

    fn named(origin: WireFormat, body: &Value) -> Vec<StoredObject> {
        stored_objects(table(origin), body.to_string().as_bytes()).unwrap()
    }

    fn paths(origin: WireFormat, body: &Value) -> Vec<String> {
        named(origin, body).into_iter().map(|object| object.path).collect()
    }

    /// Returns every path without alternatives, with each number of keys for `**`.
    fn plain_paths(path: &str) -> Vec<String> {
        path.split('.').fold(vec![String::new()], |paths, step| {
            let keys: Vec<&str> = match (step, step.strip_suffix('?')) {
                ("**", _) => vec!["", "tools", "one.two"],
                ("*", _) => vec!["any"],
                (_, Some(key)) => key.split('|').chain([""]).collect(),
                (_, None) => step.split('|').collect(),
            };
            let join = |path: &String| {
                let longer = |key: &&str| format!("{path}.{key}").trim_matches('.').to_owned();
                keys.iter().map(longer).collect::<Vec<_>>()
            };
            paths.iter().flat_map(join).collect()
        })
    }

    /// Builds a body with that text at a path. Every object around it is in a list, and is a
    /// reference.
    fn body_with(path: &str, text: &str, spell: fn(&str) -> String) -> Value {
        let keys: Vec<&str> = path.split('.').collect();
        keys.iter().enumerate().rev().fold(json!(text), |value, (depth, key)| {
            let mut object = json!({ "type": 1 });
            if *key == "id" {
                object["type"] = json!("item_reference");
            }
            object[spell(key)] = value;
            if depth == 0 { object } else { json!([object]) }
        })
    }

    #[test]
    fn every_field_of_the_tables_is_found_in_every_spelling() {
        let mut found = 0;
        let tables = crate::all().map(|dialect| dialect.traits().objects);
        for table in tables {
            for field in table.fields {
                let spellings: &[fn(&str) -> String] = match table.allows_snake_case {
                    true => &[|key| key.to_owned(), snake_case],
                    false => &[|key| key.to_owned()],
                };
                let names = ["files/x", "rs_1:", "fileid://x", "voice_x"];
                let name = names.iter().find(|name| (field.is_name)(name)).unwrap();
                for (spell, path) in spellings
                    .iter()
                    .flat_map(|s| plain_paths(field.path).into_iter().map(move |p| (s, p)))
                {
                    let body = body_with(&path, name, *spell);
                    let objects = stored_objects(table, body.to_string().as_bytes()).unwrap();
                    assert_eq!(objects.len(), 1, "{} {body}", field.path);
                    assert_eq!(objects[0].id, *name);
                    assert_eq!(objects[0].not_found().kind(), ErrorKind::NotFound);
                    found += 1;
                }
            }
        }
        assert!(found > 400, "{found}");
    }

    #[test]
    fn a_body_without_the_words_is_not_parsed() {
        let tables = crate::all().map(|dialect| dialect.traits().objects);
        for table in tables {
            assert_eq!(stored_objects(table, b"not JSON").unwrap(), []);
            assert!(stored_objects(table, b"{\"file_id\" \"fileUri\"").is_err());
        }
    }

    #[test]
    fn an_error_has_the_word_for_its_object() {
        for (path, kind) in [
            ("tools[0].vector_store_ids[1]", "Vector store"),
            ("messages[0].audio.id", "Audio"),
            ("cachedContent", "CachedContent"),
            ("tools[0].index_name", "Index"),
            ("id", "Object"),
        ] {
            assert_eq!(kind_of(path), kind);
        }
    }

    #[test]
    fn names_inside_of_schemas_and_labels_of_the_caller_are_none() {
        for body in [
            json!({"user_id": "u", "session_id": "s", "trace_id": "t", "conversation_id": "c",
                "thread_id": "t", "agent_id": "a", "safety_identifier": "i", "user": "u"}),
            json!({"metadata": {"file_id": "x", "cached_content": "y"}}),
            json!({"tools": [{"type": "function", "name": "f", "function": {"name": "file_id",
                "parameters": {"default": {"file_id": "x"}}}, "parameters": {"file_ids": ["x"]},
                "input_schema": {"index_name": "x"}, "input_examples": [{"connection_id": "x"}],
                "metadata": {"dataset_id": "x"}, "headers": {"queue_name": "x"}}]}),
            json!({"tools": [{"type": "function", "function": {"parameters": {"type": "object",
                "properties": {"file_id": {"type": "string"}}, "required": ["file_id"]}}}]}),
            json!({"messages": [{"role": "tool", "tool_call_id": "c", "content": "fine fileid://x"}]}),
            json!({"messages": [{"reasoning_details": [{"id": "rs_1", "signature": "rs_1:gAAA"}]}]}),
        ] {
            for origin in [WireFormat::Chat, WireFormat::Messages, WireFormat::Responses] {
                assert_eq!(paths(origin, &body), Vec::<String>::new(), "{origin} {body}");
            }
        }
    }

    #[test]
    fn the_documentation_lists_every_field() {
        let page = include_str!("../../../docs/compatibility.md");
        for name in object_ids!("").split('|') {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
        for path in crate::all().flat_map(|dialect| dialect.traits().objects.paths()) {
            let path = path.replace(object_ids!(""), "ID");
            assert!(page.contains(&format!("`{path}`")), "{path}");
        }
    }

    #[test]
    fn errors_are_those_of_the_format() {
        for (origin, body, path, message) in [
            (
                WireFormat::Chat,
                json!({"messages": [{"content": [{"file": {"file_id": "file_1"}}]}]}),
                "messages[0].content[0].file.file_id",
                "File with id 'file_1' not found.",
            ),
            (
                WireFormat::Messages,
                json!({"container": {"id": "c_1"}}),
                "container.id",
                "Container not found: c_1",
            ),
            (
                WireFormat::Responses,
                json!({"prompt": {"id": "pmpt_1"}}),
                "prompt",
                "Prompt with id 'pmpt_1' not found.",
            ),
            (
                WireFormat::Responses,
                json!({"conversation": {"id": "conv_1"}}),
                "conversation",
                "Conversation with id 'conv_1' not found.",
            ),
            (
                WireFormat::Native,
                json!({"cached_content": "cachedContents/x"}),
                "cachedContent",
                "CachedContent not found (or permission denied)",
            ),
        ] {
            let objects = named(origin, &body);
            let shown: Vec<_> = objects.iter().map(|o| (&*o.path, &*o.message)).collect();
            assert_eq!(shown, [(path, message)], "{body}");
        }
        let long = "x".repeat(5_000);
        let object = named(WireFormat::Messages, &json!({ "container": long })).remove(0);
        assert!(object.message.len() < 100 && object.id.len() == MAX_ID_CHARS);
    }

    #[test]
    fn files_of_the_provider_are_told_from_public_ones() {
        let uri = |uri: &str| {
            let body = json!({"contents": [{"parts": [{"fileData": {"fileUri": uri}}]}]});
            !named(WireFormat::Native, &body).is_empty()
        };
        for own in [
            "files/abc",
            "gs://bucket/x.png",
            "https://generativelanguage.googleapis.com/v1beta/files/abc",
            "HTTPS://GenerativeLanguage.googleapis.com./v1beta/files/abc",
            "https://x@generativelanguage.googleapis.com:443/v1beta/files/abc",
            "https://eu-aiplatform.googleapis.com/v1/x",
        ] {
            assert!(uri(own), "{own}");
        }
        for public in [
            "https://example.com/files/abc",
            "https://storage.googleapis.com/bucket/x.png",
            "https://example.com/?at=generativelanguage.googleapis.com",
            "https://www.youtube.com/watch?v=x",
            "data:image/png;base64,AA==",
            "file:///etc/passwd",
            "x",
        ] {
            assert!(!uri(public), "{public}");
        }
    }

    #[test]
    fn objects_of_the_provider_for_everybody_are_none_of_the_operators() {
        let skills = |skills: Value| json!({ "container": { "skills": skills } });
        let own = json!({"type": "anthropic", "skill_id": "pptx"});
        let custom = json!({"skill_id": "pptx", "type": "custom"});
        assert_eq!(paths(WireFormat::Messages, &skills(json!([own]))), Vec::<String>::new());
        assert_eq!(
            paths(WireFormat::Messages, &skills(json!([own, custom]))),
            ["container.skills[1].skill_id"]
        );
        let twice =
            br#"{"container":{"skills":[{"type":"anthropic","type":"custom","skill_id":"s"}]}}"#;
        assert_eq!(stored_objects(table(WireFormat::Messages), twice).unwrap().len(), 1);
        let tool = |id: &str| json!({"tools": [{"environment": {"skills": [{"skill_id": id}]}}]});
        assert_eq!(paths(WireFormat::Responses, &tool("openai-spreadsheets")).len(), 0);
        assert_eq!(paths(WireFormat::Responses, &tool("skill_1")).len(), 1);
    }

    #[test]
    fn references_tell_if_the_body_contains_their_item() {
        let message = json!({"type": "message", "id": "msg_1", "role": "user", "content": "x"});
        let reference = |id: &str| json!({"type": "item_reference", "id": id});
        let body = json!({"input": [message, reference("msg_1"), reference("msg_2"),
            {"type": "image_generation_call", "id": "ig_1", "result": "AA=="},
            {"type": "image_generation_call", "id": "ig_2"}]});
        let objects = named(WireFormat::Responses, &body);
        let shown: Vec<_> = objects.iter().map(|o| (&*o.path, o.is_contained)).collect();
        assert_eq!(shown, [("input[1].id", true), ("input[2].id", false), ("input[4].id", false)]);
    }

    #[test]
    fn other_fields_name_nothing() {
        for (origin, body) in [
            (WireFormat::Chat, json!({"messages": [{"content": "\"file_id\": \"x\""}]})),
            (WireFormat::Chat, json!({"modalities": ["audio"], "audio": {"voice": "alloy"}})),
            (
                WireFormat::Messages,
                json!({"messages": [{"content": [{"type": "tool_use", "input": {"file_id": "x"}}]}]}),
            ),
            (WireFormat::Messages, json!({"container": null, "tools": [{"name": "container"}]})),
            (WireFormat::Responses, json!({"tools": [{"container": {"type": "auto"}}]})),
            (
                WireFormat::Native,
                json!({"contents": [{"parts": [{"functionCall": {"args": {"cachedContent": "x"}}}]}]}),
            ),
        ] {
            assert_eq!(paths(origin, &body), Vec::<String>::new(), "{body}");
        }
    }

    #[test]
    fn ids_of_replies_and_events_are_collected_once() {
        let collect = |origin: WireFormat, request: &str, replies: &[Value]| {
            let mut made = MadeObjects::of_request(table(origin), request.as_bytes())?;
            replies.iter().for_each(|reply| made.observe(reply.to_string().as_bytes()));
            Some(made.take())
        };
        let audio = json!({"choices": [{"message": {"audio": {"id": "audio_1"}}}]});
        let delta = json!({"choices": [{"delta": {"audio": {"id": "audio_2"}}}]});
        let asked = r#"{"modalities":["audio"]}"#;
        assert_eq!(collect(WireFormat::Chat, "{}", &[]), None);
        assert_eq!(
            collect(WireFormat::Chat, asked, &[audio.clone(), delta, audio]).unwrap(),
            ["audio_1", "audio_2"]
        );
        let start = json!({"type": "message_start", "message": {"container": {"id": "c_1"}}});
        let block = json!({"type": "content_block_start", "content_block": {
            "type": "bash_code_execution_tool_result",
            "content": {"content": [{"file_id": "file_1"}]}}});
        let end = json!({"type": "message_delta", "delta": {"container": {"id": "c_1"}}});
        let whole = json!({"container": {"id": "c_2"}, "content": [
            {"content": {"content": [{"file_id": "file_2"}]}}]});
        let asked = r#"{"tools":[{"type":"code_execution_20250825"}]}"#;
        assert_eq!(
            collect(WireFormat::Messages, asked, &[start, block, end, whole]).unwrap(),
            ["c_1", "file_1", "c_2", "file_2"]
        );
        let output =
            json!([{"id": "ci_1", "type": "code_interpreter_call", "container_id": "c_3"}]);
        let replies = [
            json!({"type": "response.output_text.delta", "delta": "x", "item_id": "no"}),
            json!({"type": "response.completed", "response": {"output": output}}),
            json!({"object": "response", "output": [{"id": "msg_1"}]}),
        ];
        assert_eq!(
            collect(WireFormat::Responses, "{}", &replies).unwrap(),
            ["ci_1", "c_3", "msg_1"]
        );
        let unstored = r#"{"store": false}"#;
        assert_eq!(collect(WireFormat::Responses, unstored, &replies).unwrap(), ["c_3"]);
        assert_eq!(collect(WireFormat::Native, "{}", &[]), None);
    }
}
