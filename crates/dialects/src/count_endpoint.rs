//! Counting endpoints of providers: the request that counts the input tokens of another request, and
//! its answer.

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;

use crate::ProviderRequest;
use crate::json;
use crate::json::BodySegments;

/// The counting endpoint of a format.
#[derive(Debug)]
pub struct CountEndpoint {
    /// Returns the path for the model's name at the provider.
    pub(crate) path: fn(&str) -> String,
    /// The fields of a request that count. Providers refuse the others here.
    pub(crate) fields: &'static [&'static str],
    /// The field that takes a whole request with its model.
    pub(crate) whole_request: Option<WholeRequest>,
    /// The field of the answer with the number of tokens.
    pub(crate) total: &'static str,
}

/// A field of a counting request that takes a whole request.
#[derive(Debug)]
pub(crate) struct WholeRequest {
    pub(crate) field: &'static str,
    /// Prefix of the model's name within the request.
    pub(crate) model_prefix: &'static str,
    /// The only field that counts without a whole request.
    pub(crate) plain_field: &'static str,
}

impl CountEndpoint {
    /// Returns the counting request for a request to the same provider. `has_own_path` is true for
    /// providers that serve the format at a path of their own, such as Vertex AI: they take the
    /// fields that count, and not a whole request.
    pub fn request(&self, model: &str, body: &[u8], has_own_path: bool) -> Option<ProviderRequest> {
        let name;
        // A translation writes the arguments of calls as objects, which can be large.
        let mut fields: BTreeMap<String, &RawValue> = json::read_bytes(body).ok()?;
        let body = match &self.whole_request {
            Some(whole) if !has_own_path && fields.keys().any(|key| key != whole.plain_field) => {
                let bare_name = model.strip_prefix(whole.model_prefix).unwrap_or(model);
                name = to_raw_value(&format!("{}{bare_name}", whole.model_prefix)).ok()?;
                fields.insert("model".to_owned(), &name);
                serde_json::to_vec(&BTreeMap::from([(whole.field, &fields)])).ok()?
            }
            Some(_) | None => {
                fields.retain(|key, _| self.fields.contains(&key.as_str()));
                serde_json::to_vec(&fields).ok()?
            }
        };
        Some(ProviderRequest { path: (self.path)(model), body: BodySegments::single(body) })
    }

    /// Reads the number of tokens from a provider's answer.
    pub fn read_total(&self, body: &[u8]) -> Option<u64> {
        json::read_bytes::<Value>(body).ok()?.get(self.total)?.as_u64()
    }
}
