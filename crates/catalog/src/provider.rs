//! Providers in the directory.

use canon::WireFormat;

use crate::Endpoints;

/// Authentication scheme of a provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AuthScheme {
    /// `Authorization: Bearer …`.
    Bearer,
    /// The bare key in the header of that name.
    Header(String),
    /// A Google access token, from a service account or the metadata server.
    Google,
    /// An AWS Signature Version 4, for the service of that name
    /// (<https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html>).
    SigV4(String),
    /// No credential.
    None,
}

/// Media URLs that a provider fetches itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MediaFetch {
    /// All URLs.
    #[default]
    All,
    /// Only URLs whose media type the request states.
    Typed,
    /// None: media must be inline in the request.
    Nothing,
}

impl MediaFetch {
    /// Returns the value of a word of data files and configuration; `None` if the word is unknown.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "all" => Some(Self::All),
            "typed" => Some(Self::Typed),
            "nothing" => Some(Self::Nothing),
            _ => None,
        }
    }
}

/// A provider in the directory. A key alone is enough to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderEntry {
    /// Id used in lanes and configuration.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Supported wire formats, the preferred one first.
    pub formats: Vec<WireFormat>,
    /// Base URL before `/v1/…` or `/v1beta/…`. A word in braces, as in
    /// `https://{resource}.example.com`, is a placeholder that the operator fills in.
    pub base: String,
    /// Authentication scheme.
    pub auth: AuthScheme,
    /// Usual environment variables of its key, the preferred one first.
    pub key_env: Vec<String>,
    /// Media URLs that it fetches itself.
    pub fetches: MediaFetch,
    /// Usual environment variables of the placeholders, the preferred one first.
    pub placeholder_env: Vec<(String, Vec<String>)>,
    /// Base URLs that replace `base` for these values of `{region}`.
    pub regional_bases: Vec<(String, String)>,
    /// Differences of its requests from the usual ones of a format.
    pub endpoints: Endpoints,
}

impl ProviderEntry {
    /// Returns the placeholders that an operator must fill in. The model and the operation in a
    /// path are filled in per call and are not included.
    pub fn placeholders(&self) -> Vec<&str> {
        let mut names = Vec::new();
        let paths = self.endpoints.paths.iter().flat_map(|(_, path)| [&*path.whole, &*path.stream]);
        for mut rest in std::iter::once(self.base.as_str()).chain(paths) {
            while let Some((_, after)) = rest.split_once('{') {
                let Some((word, tail)) = after.split_once('}') else { break };
                if !names.contains(&word) && word != "model" && word != "op" {
                    names.push(word);
                }
                rest = tail;
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EndpointPath;

    #[test]
    fn placeholders_are_listed_once_each() {
        let mut entry = ProviderEntry {
            id: "x".into(),
            name: "X".into(),
            formats: vec![WireFormat::Chat],
            base: "https://{region}.x.example/{region}".into(),
            auth: AuthScheme::Bearer,
            key_env: vec![],
            fetches: MediaFetch::All,
            placeholder_env: vec![],
            regional_bases: vec![],
            endpoints: Endpoints::default(),
        };
        let (whole, stream) = ("/{project}/{model}:{op}".to_owned(), "/{zone}/x".to_owned());
        entry.endpoints.paths = vec![(WireFormat::Chat, EndpointPath { whole, stream })];
        assert_eq!(entry.placeholders(), ["region", "project", "zone"]);
        entry.base = "https://x.example".into();
        let (whole, stream) = ("/chat".to_owned(), "/chat".to_owned());
        entry.endpoints.paths = vec![(WireFormat::Chat, EndpointPath { whole, stream })];
        assert!(entry.placeholders().is_empty());
        assert_eq!(entry.endpoints.path(WireFormat::Chat).unwrap().whole, "/chat");
        assert_eq!(entry.endpoints.path(WireFormat::Native), None);
    }
}
