//! Caches at providers of the native format: <https://ai.google.dev/api/caching>, and on Vertex AI
//! <https://docs.cloud.google.com/vertex-ai/generative-ai/docs/context-cache/context-cache-create>.

use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

use super::cached_content::{CachedObjectText, CachedPrefix, CachedRequestView, raw_list};
use crate::ProviderRequest;
use crate::json::{self, BodySegments};

/// The fields of a request that a cache may hold.
const CONTENT_FIELDS: [&str; 4] = ["contents", "systemInstruction", "tools", "toolConfig"];
/// Part of the path of a provider that names the collection of publishers, such as Vertex AI.
const PUBLISHERS: &str = "/publishers/";

/// The addresses of caches at a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheEndpoint {
    /// Path of the collection.
    collection: String,
    /// Path before the names of caches.
    root: String,
    /// Name of the model within a cache.
    model: String,
}

/// A cache that a provider has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedCache {
    /// Its name.
    pub name: String,
    /// Its size, if the provider tells it.
    pub tokens: Option<u64>,
}

impl CacheEndpoint {
    /// Returns the addresses at a provider with that path of calls, if it is not the usual one; `None` if
    /// a provider with such a path has no caches that are known.
    pub fn new(own_path: Option<&str>, model: &str) -> Option<Self> {
        let Some(template) = own_path else {
            let bare = model.strip_prefix("models/").unwrap_or(model);
            let (collection, root) = ("/v1beta/cachedContents".to_owned(), "/v1beta/".to_owned());
            return Some(Self { collection, root, model: format!("models/{bare}") });
        };
        let (location, _) = template.split_once(PUBLISHERS)?;
        let calls = template.strip_suffix(":{op}")?;
        let (version, resource) = calls.strip_prefix('/')?.split_once('/')?;
        Some(Self {
            collection: format!("{location}/cachedContents"),
            root: format!("/{version}/"),
            model: resource.replace("{model}", model),
        })
    }

    /// Returns the request that makes a cache of the content in a request to the model.
    pub fn create(&self, body: &[u8], seconds: u64) -> Option<ProviderRequest> {
        let mut fields: BTreeMap<String, &RawValue> = json::read_bytes(body).ok()?;
        fields.retain(|name, _| CONTENT_FIELDS.contains(&name.as_str()));
        let mut out = CachedObjectText::default();
        for (name, text) in [("model", self.model.as_str()), ("ttl", &format!("{seconds}s"))] {
            out.member(name, &Value::from(text).to_string());
        }
        for (name, value) in fields {
            out.member(&name, value.get());
        }
        let body = BodySegments::single(out.finish());
        Some(ProviderRequest { path: self.collection.clone(), body })
    }

    /// Returns the path of a cache.
    pub fn path(&self, name: &str) -> String {
        format!("{}{name}", self.root)
    }

    /// Reads the answer to the creation of a cache. A name that is not a plain path is not used.
    pub fn read_created(body: &[u8]) -> Option<CreatedCache> {
        let created: Value = json::read_bytes(body).ok()?;
        let name = created.get("name")?.as_str()?.to_owned();
        let is_plain = |part: &str| {
            let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            part.chars().all(is_word) && part.chars().any(|c| c != '.')
        };
        let is_name = name.contains("cachedContents/") && name.split('/').all(is_plain);
        let usage = created.get("usageMetadata");
        let tokens = usage.and_then(|usage| usage.get("totalTokenCount")?.as_u64());
        is_name.then_some(CreatedCache { name, tokens })
    }
}

/// Returns a request with the name of a cache in place of the content that was inserted; `None` if the
/// request does not begin with that content.
pub fn name_provider_cache(body: &[u8], prefix: CachedPrefix, name: &str) -> Option<Vec<u8>> {
    let view: CachedRequestView<'_> = json::read_bytes(body).ok()?;
    let (inserted, own) = prefix.turns()?;
    let turns = raw_list(view.contents)?;
    let turns = turns.get(inserted..).filter(|rest| rest.len() == own && own > 0)?;
    let mut out = CachedObjectText::default();
    out.member("cachedContent", &Value::from(name).to_string());
    out.contents(turns);
    for (name, value) in view.rest.present() {
        out.member(name, value.get());
    }
    Some(out.finish().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::{ExpandedRequest, insert_cached_content};

    const VERTEX: &str = "/v1/projects/p/locations/r/publishers/google/models/{model}:{op}";

    fn text(body: &BodySegments) -> String {
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[test]
    fn caches_are_made_at_both_services_of_google() {
        let body = br#"{"contents":[{"parts":[{"text":"A"}]}],"store":false,"tools":[]}"#;
        let gemini = CacheEndpoint::new(None, "models/m").unwrap();
        let made = gemini.create(body, 60).unwrap();
        assert_eq!(made.path, "/v1beta/cachedContents");
        let expected =
            r#"{"model":"models/m","ttl":"60s","contents":[{"parts":[{"text":"A"}]}],"tools":[]}"#;
        assert_eq!(text(&made.body), expected);
        assert_eq!(gemini.path("cachedContents/x"), "/v1beta/cachedContents/x");
        let vertex = CacheEndpoint::new(Some(VERTEX), "m").unwrap();
        let made = vertex.create(b"{}", 60).unwrap();
        assert_eq!(made.path, "/v1/projects/p/locations/r/cachedContents");
        let model = "projects/p/locations/r/publishers/google/models/m";
        assert_eq!(text(&made.body), format!(r#"{{"model":"{model}","ttl":"60s"}}"#));
        let name = "projects/p/locations/r/cachedContents/7";
        assert_eq!(vertex.path(name), format!("/v1/{name}"));
        assert_eq!(CacheEndpoint::new(Some("/proxy/{model}:{op}"), "m"), None);
    }

    #[test]
    fn only_a_plain_name_is_used() {
        let read = |body: &str| CacheEndpoint::read_created(body.as_bytes());
        let made = read(r#"{"name":"cachedContents/a-1","usageMetadata":{"totalTokenCount":9}}"#);
        assert_eq!(made, Some(CreatedCache { name: "cachedContents/a-1".into(), tokens: Some(9) }));
        for name in [
            "",
            "x",
            "cachedContents/",
            "cachedContents/../x",
            "cachedContents/a?b=c",
            "/cachedContents/a",
        ] {
            assert_eq!(read(&format!(r#"{{"name":"{name}"}}"#)), None, "{name}");
        }
        assert_eq!(read("[]"), None);
    }

    #[test]
    fn a_name_takes_the_place_of_what_was_inserted() {
        let cached = r#"{"contents":[{"a":1},{"b":2}],"systemInstruction":{},"tools":[]}"#;
        let request = br#"{"contents":[{"c":3}],"generationConfig":{"topK":1},"cachedContent":"cachedContents/x"}"#;
        let ExpandedRequest { body, prefix } = insert_cached_content(request, cached).unwrap();
        let named = name_provider_cache(&body, prefix, "cachedContents/y").unwrap();
        let expected = r#"{"cachedContent":"cachedContents/y","contents":[{"c":3}],"generationConfig":{"topK":1}}"#;
        assert_eq!(String::from_utf8(named).unwrap(), expected);
        // Turns that were joined or added are not cut.
        assert_eq!(name_provider_cache(br#"{"contents":[{"a":1},{"c":3}]}"#, prefix, "n"), None);
        assert_eq!(name_provider_cache(&body, CachedPrefix::default(), "n"), None);
    }
}
