//! Cached content: the beginning of a conversation that later requests name,
//! <https://ai.google.dev/api/caching>. The gateway keeps it and inserts it into the requests, so that it
//! works with any provider.

use bytes::Bytes;
use canon::{ApiError, ErrorKind, Micros};
use serde_json::value::RawValue;

use crate::checks::{ensure_field, invalid_field};
use crate::error_paths::InsertedItems;
use crate::json;
use crate::native::objects::OBJECTS;
use crate::text::{BorrowedText, char_count};
use crate::wire_object::wire_object;
use crate::wire_rule::{RuleResult, refuse_if};

/// The beginning of every name of cached content.
const COLLECTION: &str = "cachedContents/";
/// The kind of the object in errors.
const KIND: &str = "CachedContent";
const MAX_NAME_CHARS: usize = 128;
/// Digits of a fraction of a second.
const MAX_FRACTION_DIGITS: usize = 9;

wire_object! {
    /// Content to keep. What the service fills in itself is ignored, as the service does.
    struct CachedContentView<'a>("a JSON object", camel_case) {
        model required: BorrowedText<'a>,
        display_name "displayName": BorrowedText<'a> where display_name,
        ttl: BorrowedText<'a>,
        expire_time "expireTime": BorrowedText<'a>,
        contents: &'a RawValue,
        system_instruction "systemInstruction": &'a RawValue,
        tools: &'a RawValue,
        tool_config "toolConfig": &'a RawValue,
        name: &'a RawValue,
        create_time "createTime": &'a RawValue,
        update_time "updateTime": &'a RawValue,
        usage_metadata "usageMetadata": &'a RawValue,
    }

    /// A change of cached content.
    struct CacheChangeView<'a>("a JSON object", camel_case) {
        ttl: BorrowedText<'a>,
        expire_time "expireTime": BorrowedText<'a>,
        name: &'a RawValue,
    }

    /// A request that names cached content, or the content itself.
    pub(super) struct CachedRequestView<'a>("a JSON object", camel_case) {
        contents: &'a RawValue,
        system_instruction "systemInstruction": &'a RawValue,
        tools: &'a RawValue,
        tool_config "toolConfig": &'a RawValue,
        cached_content "cachedContent": &'a RawValue,
    }
}

fn display_name(name: &BorrowedText<'_>) -> RuleResult {
    refuse_if(char_count(name) > MAX_NAME_CHARS, || {
        format!("must have at most {MAX_NAME_CHARS} characters")
    })
}

/// Content to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCachedContent {
    /// The model, without the name of its collection.
    pub model: String,
    /// Name for people.
    pub display_name: Option<String>,
    /// When it expires; `None` for the usual time.
    pub expiry: Option<CacheExpiry>,
    /// Turns, instruction and tools, as the body of a request.
    pub body: String,
}

/// When cached content expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheExpiry {
    /// After that time, in the field `ttl`.
    After(Micros),
    /// At that time, in the field `expireTime`.
    At(Micros),
}

impl CacheExpiry {
    /// Returns the name of its field.
    pub const fn field(self) -> &'static str {
        match self {
            Self::After(_) => "ttl",
            Self::At(_) => "expireTime",
        }
    }

    fn read(ttl: Option<&str>, time: Option<&str>) -> Result<Option<Self>, ApiError> {
        match (ttl, time) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(invalid_field("expireTime", "cannot stand beside `ttl`")),
            (Some(ttl), None) => {
                let why = "must be a duration in seconds, such as `3600s`";
                let ttl = read_duration(ttl).ok_or_else(|| invalid_field("ttl", why))?;
                Ok(Some(Self::After(ttl)))
            }
            (None, Some(time)) => {
                let why = "must be an RFC 3339 time, such as `2026-05-04T20:01:02Z`";
                let time: Result<jiff::Timestamp, _> = time.parse();
                let time = time.map_err(|_| invalid_field("expireTime", why))?;
                Ok(Some(Self::At(Micros::new(time.as_microsecond()))))
            }
        }
    }
}

/// Reads a duration (<https://protobuf.dev/programming-guides/json/>), to the microsecond.
fn read_duration(text: &str) -> Option<Micros> {
    let (whole, fraction) =
        text.strip_suffix('s').map(|n| n.split_once('.').unwrap_or((n, "0")))?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > MAX_FRACTION_DIGITS {
        return None;
    }
    let micros: i64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    whole.parse::<i64>().ok()?.checked_mul(1_000_000)?.checked_add(micros).map(Micros::new)
}

/// Reads the request to keep content. Only the fields around the content are checked.
pub fn read_cached_content(body: &[u8]) -> Result<NewCachedContent, ApiError> {
    let view: CachedContentView<'_> = json::parse_request(body)?.view;
    if let Some((name, _)) = view.rest.present().next() {
        return Err(invalid_field(name, "is no field of cached content"));
    }
    let fields = CachedRequestView {
        contents: view.contents,
        system_instruction: view.system_instruction,
        tools: view.tools,
        tool_config: view.tool_config,
        ..CachedRequestView::default()
    };
    let has_content = fields.contents.is_some() || fields.own_field().is_some();
    ensure_field(has_content, "contents", "is required")?;
    let model = view.model.as_deref().unwrap_or_default();
    let mut out = CachedObjectText::default();
    out.contents(&raw_list(fields.contents).unwrap_or_default());
    for (name, value) in fields.own_fields() {
        out.member(name, value.get());
    }
    Ok(NewCachedContent {
        model: model.strip_prefix("models/").unwrap_or(model).to_owned(),
        display_name: view.display_name.map(BorrowedText::into_owned),
        expiry: CacheExpiry::read(view.ttl.as_deref(), view.expire_time.as_deref())?,
        body: match (fields.contents, raw_list(fields.contents)) {
            // Left as it is, so that the rules refuse it.
            (Some(other), None) => format!("{{\"contents\":{}}}", other.get()),
            (_, _) => out.finish(),
        },
    })
}

/// Reads the change of cached content: only its expiry may change.
pub fn read_cache_change(body: &[u8]) -> Result<CacheExpiry, ApiError> {
    let view: CacheChangeView<'_> = json::parse_request(body)?.view;
    if let Some((name, _)) = view.rest.present().next() {
        return Err(invalid_field(name, "cannot be changed: only `ttl` or `expireTime` can"));
    }
    let expiry = CacheExpiry::read(view.ttl.as_deref(), view.expire_time.as_deref())?;
    expiry.ok_or_else(|| invalid_field("ttl", "or `expireTime` is required"))
}

impl<'a> CachedRequestView<'a> {
    /// Returns the fields beside the turns that only content or the request may have.
    fn own_fields(&self) -> impl Iterator<Item = (&'static str, &'a RawValue)> {
        let fields = [
            ("systemInstruction", self.system_instruction),
            ("tools", self.tools),
            ("toolConfig", self.tool_config),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    fn own_field(&self) -> Option<&'static str> {
        self.own_fields().next().map(|(name, _)| name)
    }
}

/// Returns the elements of a list, or one object as a list of one; `None` for any other value.
pub(super) fn raw_list(value: Option<&RawValue>) -> Option<Vec<&RawValue>> {
    let value = value?;
    match value.get().as_bytes().first() {
        Some(b'[') => json::read(value.get()).ok(),
        Some(b'{') => Some(vec![value]),
        _ => None,
    }
}

/// The text of a JSON object.
#[derive(Default)]
pub(super) struct CachedObjectText(Vec<u8>);

impl CachedObjectText {
    pub(super) fn member(&mut self, name: &str, value: &str) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        json::write_string(name, &mut self.0);
        self.0.push(b':');
        self.0.extend_from_slice(value.as_bytes());
    }

    pub(super) fn contents(&mut self, turns: &[&RawValue]) {
        if turns.is_empty() {
            return;
        }
        let turns: Vec<&str> = turns.iter().map(|turn| turn.get()).collect();
        self.member("contents", &format!("[{}]", turns.join(",")));
    }

    pub(super) fn finish(mut self) -> String {
        if self.0.is_empty() {
            self.0.push(b'{');
        }
        self.0.push(b'}');
        // Every part was a text.
        String::from_utf8(self.0).unwrap_or_default()
    }
}

/// Returns the id of the cached content that a request names; `None` if it names none, or if the rules will
/// refuse the request.
pub fn cached_content_id(body: &[u8]) -> Option<String> {
    let view: CachedRequestView<'_> = json::read_bytes(body).ok()?;
    // An empty list is refused although the content may have turns.
    raw_list(view.contents).filter(|own| !own.is_empty())?;
    let BorrowedText(name) = json::read(view.cached_content?.get()).ok()?;
    name.strip_prefix(COLLECTION).map(str::to_owned)
}

/// Returns the name of cached content.
pub fn cached_content_name(id: &str) -> String {
    format!("{COLLECTION}{id}")
}

/// A request with cached content in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpandedRequest {
    /// The body.
    pub body: Bytes,
    /// The place of the inserted content.
    pub prefix: CachedPrefix,
}

/// Content that was inserted before the turns of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedPrefix {
    /// Number of inserted turns, and of the request's own; `None` if the request names no content.
    turns: Option<(usize, usize)>,
}

/// Inserts cached content into a request that names it.
pub fn insert_cached_content(body: &[u8], cached: &str) -> Result<ExpandedRequest, ApiError> {
    let own: CachedRequestView<'_> = json::parse_request(body)?.view;
    if let Some(name) = own.own_field() {
        let why = "cannot stand beside `cachedContent`, which has its own";
        return Err(invalid_field(name, why));
    }
    let cached: CachedRequestView<'_> = json::read(cached)
        .map_err(|e| ApiError::internal(format!("cached content cannot be read: {e}")))?;
    let mut turns = raw_list(cached.contents).unwrap_or_default();
    let own_turns = raw_list(own.contents).unwrap_or_default();
    let prefix = CachedPrefix { turns: Some((turns.len(), own_turns.len())) };
    turns.extend(own_turns);
    let mut out = CachedObjectText(Vec::with_capacity(body.len()));
    for (name, value) in cached.own_fields() {
        out.member(name, value.get());
    }
    out.contents(&turns);
    for (name, value) in own.rest.present() {
        out.member(name, value.get());
    }
    Ok(ExpandedRequest { body: out.finish().into(), prefix })
}

impl CachedPrefix {
    /// Returns the number of inserted turns, and of the request's own.
    pub(super) const fn turns(self) -> Option<(usize, usize)> {
        self.turns
    }

    /// Returns an error with the path in the request's own turns. What is wrong with the cached content is
    /// wrong with its name.
    pub fn restore_path(self, error: ApiError) -> ApiError {
        let Some((turns, _)) = self.turns else { return error };
        let path = error.param().unwrap_or_default().to_owned();
        let (list, source) = ("contents", "cachedContent");
        let turn = InsertedItems { list, source, count: turns }.own_path(&path);
        let is_cached = ["systemInstruction", "tools", "toolConfig"].iter().any(|name| {
            let rest = path.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        });
        let own = match turn {
            Some(own) => own,
            None if is_cached => source.to_owned(),
            None => return error,
        };
        let message = error.message().replace(&path, &own);
        error.with_message(message).with_param(own)
    }
}

/// Returns the error for content that does not exist, has expired or is not the caller's.
pub fn cached_content_not_found() -> ApiError {
    ApiError::new(ErrorKind::NotFound, (OBJECTS.not_found)(KIND, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const DAY: &str = r#"{"model":"models/m","contents":{"parts":[{"text":"A"}]},"ttl":"86400s"}"#;

    fn refused<T: std::fmt::Debug>(outcome: Result<T, ApiError>) -> String {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        error.param().unwrap_or_default().to_owned()
    }

    #[test]
    fn content_is_read_as_the_body_of_a_request() {
        let read = read_cached_content(DAY.as_bytes()).unwrap();
        assert_eq!(read.body, r#"{"contents":[{"parts":[{"text":"A"}]}]}"#);
        assert_eq!((read.model.as_str(), read.display_name), ("m", None));
        assert_eq!(read.expiry, Some(CacheExpiry::After(Micros::from_hours(24))));
        let body = json!({ "model": "org/m", "display_name": "é", "tool_config": {}, "tools": [],
            "system_instruction": { "parts": [] }, "expire_time": "1970-01-01T02:00:00.5+01:00",
            "name": "x", "createTime": null, "usageMetadata": {} });
        let read = read_cached_content(body.to_string().as_bytes()).unwrap();
        let fields = r#"{"systemInstruction":{"parts":[]},"tools":[],"toolConfig":{}}"#;
        assert_eq!(read.body, fields);
        assert_eq!((read.model.as_str(), read.display_name.as_deref()), ("org/m", Some("é")));
        assert_eq!(read.expiry, Some(CacheExpiry::At(Micros::from_millis(3_600_500))));
    }

    #[test]
    fn wrong_content_is_refused_by_its_field() {
        let with = |field: &str, value: Value| {
            let mut body: Value = serde_json::from_str(DAY).unwrap();
            body[field] = value;
            refused(read_cached_content(body.to_string().as_bytes()))
        };
        for (field, value) in [
            ("model", Value::Null),
            ("model", json!(5)),
            ("displayName", json!("é".repeat(129))),
            ("generationConfig", json!({})),
            ("ttl", json!(5)),
            ("ttl", json!("5")),
            ("ttl", json!("-5s")),
            ("ttl", json!("5.s")),
            ("ttl", json!(".5s")),
            ("ttl", json!("1.0000000000s")),
            ("ttl", json!("99999999999999s")),
            ("expireTime", json!("2026-05-04T20:01:02Z")),
        ] {
            assert_eq!(with(field, value.clone()), field, "{field}: {value}");
        }
        let bare = |body: &str| refused(read_cached_content(body.as_bytes()));
        assert_eq!(bare(r#"{"model":"m"}"#), "contents");
        assert_eq!(bare(r#"{"model":"m","tools":[],"expireTime":"soon"}"#), "expireTime");
        assert_eq!(bare(r#"{"model":"m","tools":[],"tools":[]}"#), "tools");
        // The rules of the format judge what the content holds.
        let odd = read_cached_content(br#"{"model":"m","contents":5}"#).unwrap();
        assert_eq!(odd.body, r#"{"contents":5}"#);
    }

    #[test]
    fn only_the_expiry_changes() {
        let change = |body: &str| read_cache_change(body.as_bytes());
        let second = CacheExpiry::After(Micros::new(1_250_000));
        assert_eq!(change(r#"{"name":"cachedContents/x","ttl":"1.25s"}"#).unwrap(), second);
        assert_eq!(refused(change("{}")), "ttl");
        assert_eq!(refused(change(r#"{"ttl":"1s","displayName":"x"}"#)), "displayName");
    }

    #[test]
    fn content_stands_before_the_turns_of_the_request() {
        let request = r#"{"cached_content": "cachedContents/x", "generation_config": {"topK": 1e0},
            "contents": {"parts": [{"text": "B"}]}, "labels": null}"#;
        assert_eq!(cached_content_id(request.as_bytes()).as_deref(), Some("x"));
        let cached = r#"{"contents":[{"parts":[{"text":"A"}]}],"tools":[{"googleSearch":{}}]}"#;
        let ExpandedRequest { body, prefix } =
            insert_cached_content(request.as_bytes(), cached).unwrap();
        let expected = r#"{"tools":[{"googleSearch":{}}],"contents":[{"parts":[{"text":"A"}]},{"parts": [{"text": "B"}]}],"generationConfig":{"topK": 1e0}}"#;
        assert_eq!(body, expected);
        let restored = |path: &str| {
            let error = ApiError::invalid(path, format!("`{path}` is wrong"));
            let error = prefix.restore_path(error);
            assert_eq!(error.message(), format!("`{}` is wrong", error.param().unwrap()));
            error.param().unwrap().to_owned()
        };
        assert_eq!(restored("contents[0].parts[0]"), "cachedContent");
        assert_eq!(restored("contents[1].parts[0]"), "contents[0].parts[0]");
        assert_eq!(restored("tools[0].googleSearch"), "cachedContent");
        assert_eq!(restored("toolsX"), "toolsX");
        assert_eq!(restored("generationConfig.topK"), "generationConfig.topK");
        // Without content the request's own fields are wrong.
        for path in ["systemInstruction.parts", "tools[0]", "contents[0]"] {
            let error = CachedPrefix::default().restore_path(ApiError::invalid(path, "wrong"));
            assert_eq!(error.param(), Some(path));
        }
    }

    #[test]
    fn a_request_has_no_instruction_or_tools_beside_cached_content() {
        for field in ["systemInstruction", "tools", "toolConfig"] {
            let body = json!({ "contents": [{}], "cachedContent": "cachedContents/x", field: {} });
            let outcome = insert_cached_content(body.to_string().as_bytes(), "{}");
            assert_eq!(refused(outcome), field);
        }
    }

    /// Requests that the rules refuse are left to them.
    #[test]
    fn only_a_request_with_turns_names_content() {
        for body in [
            r#"{"cachedContent":"cachedContents/x"}"#,
            r#"{"contents":[],"cachedContent":"cachedContents/x"}"#,
            r#"{"contents":"A","cachedContent":"cachedContents/x"}"#,
            r#"{"contents":[{}],"cachedContent":"x"}"#,
            r#"{"contents":[{}],"cachedContent":5}"#,
            r#"{"contents":[{}]}"#,
            "[]",
            "",
        ] {
            assert_eq!(cached_content_id(body.as_bytes()), None, "{body}");
        }
    }
}
