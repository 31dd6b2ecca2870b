//! A place that serves models, as the directory knows it.

use canon::Origin;

/// The kind of credential a provider takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Auth {
    /// `Authorization: Bearer …`.
    Bearer,
    /// The key alone in the header of that name.
    Header(String),
    /// A Google access token, from a service account or the machine itself.
    Google,
    /// An AWS signature over the request.
    SigV4,
    /// No credential.
    None,
}

/// What a provider gets by itself where a request names media by address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fetches {
    /// Whatever is named.
    #[default]
    All,
    /// Only what the request tells the media type of.
    Typed,
    /// Nothing: media must stand in the request itself.
    Nothing,
}

impl Fetches {
    /// The meaning of a word of data files and configuration; `None` when it has none.
    pub fn by_word(word: &str) -> Option<Self> {
        match word {
            "all" => Some(Self::All),
            "typed" => Some(Self::Typed),
            "nothing" => Some(Self::Nothing),
            _ => None,
        }
    }
}

/// A provider the directory knows, so that a key alone is enough to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderEntry {
    /// The id used in lanes and configuration.
    pub id: String,
    /// The name people know.
    pub name: String,
    /// The wire formats it understands, the best one first.
    pub speaks: Vec<Origin>,
    /// What comes before `/v1/…` or `/v1beta/…`. A word in braces, as in
    /// `https://{resource}.example.com`, is for the operator to fill in.
    pub base: String,
    /// The kind of credential it takes.
    pub auth: Auth,
    /// The usual environment variables for its key, the preferred one first.
    pub env: Vec<String>,
    /// Paths that differ from the format's usual one, as they follow `base`.
    pub paths: Vec<(Origin, String)>,
    /// What it gets by itself where a request names media by address.
    pub fetches: Fetches,
}

impl ProviderEntry {
    /// The path for a format where the provider has one of its own.
    pub fn path(&self, origin: Origin) -> Option<&str> {
        self.paths.iter().find(|(own, _)| *own == origin).map(|(_, path)| path.as_str())
    }

    /// The words in braces an operator has to fill in before the provider can be reached. The
    /// model and the operation in a path are filled in call by call and are not among them.
    pub fn blanks(&self) -> Vec<&str> {
        let mut blanks = Vec::new();
        let paths = self.paths.iter().map(|(_, path)| path.as_str());
        for mut rest in std::iter::once(self.base.as_str()).chain(paths) {
            while let Some((_, after)) = rest.split_once('{') {
                let Some((word, tail)) = after.split_once('}') else { break };
                if !blanks.contains(&word) && word != "model" && word != "op" {
                    blanks.push(word);
                }
                rest = tail;
            }
        }
        blanks
    }

    /// Whether a key, or nothing, is all an operator has to bring.
    pub fn is_ready(&self) -> bool {
        self.blanks().is_empty() && matches!(self.auth, Auth::Bearer | Auth::Header(_) | Auth::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_of_an_address_are_told_once_each() {
        let mut entry = ProviderEntry {
            id: "x".into(),
            name: "X".into(),
            speaks: vec![Origin::Chat],
            base: "https://{region}.x.example/{region}".into(),
            auth: Auth::Bearer,
            env: vec![],
            paths: vec![(Origin::Chat, "/{project}/{model}:{op}".into())],
            fetches: Fetches::All,
        };
        assert_eq!(entry.blanks(), ["region", "project"]);
        assert!(!entry.is_ready());
        entry.base = "https://x.example".into();
        entry.paths = vec![(Origin::Chat, "/chat".into())];
        assert!(entry.blanks().is_empty() && entry.is_ready());
        assert_eq!(entry.path(Origin::Chat), Some("/chat"));
        assert_eq!(entry.path(Origin::Native), None);
    }
}
