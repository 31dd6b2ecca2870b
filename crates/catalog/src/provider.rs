//! A place that serves models, as the directory knows it.

use canon::Origin;

use crate::Ways;

/// The kind of credential a provider takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Auth {
    /// `Authorization: Bearer …`.
    Bearer,
    /// The key alone in the header of that name.
    Header(String),
    /// A Google access token, from a service account or the machine itself.
    Google,
    /// An AWS signature over the request, for the service of that name.
    SigV4(String),
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
    /// What it gets by itself where a request names media by address.
    pub fetches: Fetches,
    /// The usual environment variables for the words in braces, the preferred one first.
    pub fill: Vec<(String, Vec<String>)>,
    /// Bases that stand instead of `base` where `{region}` is filled in with that word.
    pub bases: Vec<(String, String)>,
    /// How its requests differ from the usual ones of a format.
    pub ways: Ways,
}

impl ProviderEntry {
    /// The words in braces an operator has to fill in before the provider can be reached. The
    /// model and the operation in a path are filled in call by call and are not among them.
    pub fn blanks(&self) -> Vec<&str> {
        let mut blanks = Vec::new();
        let paths = self.ways.paths.iter().flat_map(|(_, path)| [&*path.whole, &*path.stream]);
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Path;

    #[test]
    fn blanks_of_an_address_are_told_once_each() {
        let mut entry = ProviderEntry {
            id: "x".into(),
            name: "X".into(),
            speaks: vec![Origin::Chat],
            base: "https://{region}.x.example/{region}".into(),
            auth: Auth::Bearer,
            env: vec![],
            fetches: Fetches::All,
            fill: vec![],
            bases: vec![],
            ways: Ways::default(),
        };
        let (whole, stream) = ("/{project}/{model}:{op}".to_owned(), "/{zone}/x".to_owned());
        entry.ways.paths = vec![(Origin::Chat, Path { whole, stream })];
        assert_eq!(entry.blanks(), ["region", "project", "zone"]);
        entry.base = "https://x.example".into();
        let (whole, stream) = ("/chat".to_owned(), "/chat".to_owned());
        entry.ways.paths = vec![(Origin::Chat, Path { whole, stream })];
        assert!(entry.blanks().is_empty());
        assert_eq!(entry.ways.path(Origin::Chat).unwrap().whole, "/chat");
        assert_eq!(entry.ways.path(Origin::Native), None);
    }
}
