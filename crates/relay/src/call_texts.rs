//! Owners of the words in a provider's text about one call.

use bytes::Bytes;
use canon::{ApiError, TextOwners};
use http::HeaderMap;
use memchr::memmem;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use upstream::{Provider, SentSecrets};

use super::Call;

/// Passes over a request for pieces of credentials at most. One pass finds all pieces of a text, and
/// later texts mostly have the same ones.
const MAX_PASSES: u32 = 16;
/// Words of a provider's texts that are looked for in a request at most, and the largest request in
/// which they are. The rest counts as not sent, and is hidden.
const MAX_SEARCHES: u32 = 16;
const MAX_SEARCHED_BYTES: usize = 256 << 10;
/// Pieces of this length that a provider repeats of a request are not logged.
const ECHO_BYTES: usize = 16;
/// Bytes at each end of a request in which they are looked for.
const MAX_ECHO_BYTES: usize = 512 << 10;

/// Texts that the caller sent, and the fetched secrets that its requests were sent with.
pub(super) struct RequestTexts {
    body: Bytes,
    model: Option<String>,
    headers: HeaderMap,
    secrets: SentSecrets,
    /// The body without escapes, once it is needed.
    unescaped: OnceLock<String>,
    /// Pieces of credentials that were looked for, each with true if it was found.
    pieces: Mutex<HashMap<Vec<u8>, bool>>,
    passes: AtomicU32,
    searches: AtomicU32,
    echo_passes: AtomicU32,
}

impl RequestTexts {
    pub(super) fn of(call: &Call) -> Self {
        let (model, headers) = (call.target.model.clone(), call.forwarded_headers.clone());
        Self { secrets: call.sent_secrets.clone(), ..Self::new(call.body.clone(), model, headers) }
    }

    fn new(body: Bytes, model: Option<String>, headers: HeaderMap) -> Self {
        let (unescaped, pieces) = (OnceLock::new(), Mutex::default());
        let [passes, searches, echo_passes] = Default::default();
        let secrets = SentSecrets::default();
        Self { body, model, headers, secrets, unescaped, pieces, passes, searches, echo_passes }
    }

    /// Returns a text of the provider without its credentials and without the secrets that were sent to it.
    pub(super) fn hide_secrets(&self, provider: &Provider, text: Vec<u8>) -> Vec<u8> {
        provider.hide_secrets(text, &self.secrets, &|pieces| self.known_pieces(pieces))
    }

    /// Returns an error with the texts of [`Self::hide_secrets`].
    pub(super) fn hide_in_error(&self, provider: &Provider, error: ApiError) -> ApiError {
        provider.hide_in_error(error, &self.secrets, &|pieces| self.known_pieces(pieces))
    }

    /// Returns the pieces that the caller sent. A request of any size is searched, because a piece
    /// that is hidden although it was sent tells a caller who guesses that it is right.
    fn known_pieces<'p>(&self, pieces: HashSet<&'p [u8]>) -> HashSet<&'p [u8]> {
        let mut seen = self.pieces.lock();
        let new: HashSet<&[u8]> =
            pieces.iter().copied().filter(|piece| !seen.contains_key(*piece)).collect();
        if !new.is_empty() && take_one(&self.passes, MAX_PASSES) {
            let mut found = HashSet::new();
            for place in self.places() {
                add_found(place, &new, &mut found);
            }
            seen.extend(new.iter().map(|piece| (piece.to_vec(), found.contains(piece))));
        }
        pieces.into_iter().filter(|piece| seen.get(*piece) == Some(&true)).collect()
    }

    /// Returns true if the caller sent this word.
    fn has_word(&self, word: &str) -> bool {
        self.body.len() <= MAX_SEARCHED_BYTES
            && take_one(&self.searches, MAX_SEARCHES)
            && self.places().any(|place| memmem::find(place, word.as_bytes()).is_some())
    }

    /// Returns a text without the pieces that the body contains, but for the name of the model; `None` if it
    /// has none. After too many searches all of it counts as repeated.
    fn hide_echo(&self, text: &str) -> Option<String> {
        let model = self.model.as_deref().unwrap_or_default().as_bytes();
        let pieces = text.as_bytes().windows(ECHO_BYTES);
        let pieces: HashSet<&[u8]> =
            pieces.filter(|piece| memmem::find(model, piece).is_none()).collect();
        if pieces.is_empty() {
            return None;
        }
        if !take_one(&self.echo_passes, MAX_PASSES) {
            return Some(canon::HIDDEN.to_owned());
        }
        let mut found = HashSet::new();
        for place in self.places() {
            let (head, rest) = place.split_at(place.len().min(MAX_ECHO_BYTES));
            let tail = rest.get(rest.len().saturating_sub(MAX_ECHO_BYTES)..).unwrap_or_default();
            add_found(head, &pieces, &mut found);
            add_found(tail, &pieces, &mut found);
        }
        if found.is_empty() {
            return None;
        }
        let mut shown = Vec::with_capacity(text.len());
        // The end of the piece that was found last, and the bytes that are written.
        let (mut hidden_to, mut written_to) = (0, 0);
        for (start, piece) in text.as_bytes().windows(ECHO_BYTES).enumerate() {
            if !found.contains(piece) {
                continue;
            }
            if start >= hidden_to {
                shown.extend_from_slice(text.as_bytes().get(written_to..start).unwrap_or_default());
                shown.extend_from_slice(canon::HIDDEN.as_bytes());
            }
            hidden_to = start + ECHO_BYTES;
            written_to = hidden_to;
        }
        shown.extend_from_slice(text.as_bytes().get(written_to..).unwrap_or_default());
        Some(String::from_utf8_lossy(&shown).into_owned())
    }

    /// Returns what the caller sent, whatever way it is written in JSON.
    fn places(&self) -> impl Iterator<Item = &[u8]> {
        let unescaped = || {
            self.unescaped.get_or_init(|| {
                let body: Value = dialects::json::read_bytes(&self.body).unwrap_or_default();
                body.to_string()
            })
        };
        let has_escapes = || memmem::find(&self.body, b"\\u").is_some();
        let model = self.model.as_deref().unwrap_or_default().as_bytes();
        [&*self.body, model]
            .into_iter()
            .chain(self.headers.values().map(http::HeaderValue::as_bytes))
            .chain(std::iter::once_with(move || match has_escapes() {
                true => unescaped().as_bytes(),
                false => &[],
            }))
    }
}

/// Counts one more; false if there were as many already.
fn take_one(count: &AtomicU32, most: u32) -> bool {
    let one_more = |done: u32| (done < most).then_some(done + 1);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
}

/// Adds the pieces that a text contains, in one pass for each length: pieces of credentials have one.
fn add_found<'p>(text: &[u8], pieces: &HashSet<&'p [u8]>, found: &mut HashSet<&'p [u8]>) {
    let lengths: HashSet<usize> = pieces.iter().map(|piece| piece.len()).collect();
    // Most windows of a text do not begin like a piece.
    let mut is_first = [false; 256];
    let mut is_second = [false; 256];
    for piece in pieces {
        for (at, table) in [&mut is_first, &mut is_second].into_iter().enumerate() {
            let byte = piece.get(at).copied().unwrap_or_default();
            table.iter_mut().skip(usize::from(byte)).take(1).for_each(|own| *own = true);
        }
    }
    let is_in = |table: &[bool; 256], byte: u8| table.get(usize::from(byte)) == Some(&true);
    for length in lengths.into_iter().filter(|length| *length >= 2) {
        for window in text.windows(length) {
            if let [first, second, ..] = window
                && is_in(&is_first, *first)
                && is_in(&is_second, *second)
                && let Some(piece) = pieces.get(window)
            {
                found.insert(*piece);
            }
        }
    }
}

/// Texts of one call and of the provider that answers it.
struct CallTexts {
    request: RequestTexts,
    provider: Arc<Provider>,
}

/// Returns the owners of the words in a text of the provider.
pub(super) fn text_owners(call: &Call, provider: &Arc<Provider>) -> Arc<dyn TextOwners> {
    Arc::new(CallTexts { request: RequestTexts::of(call), provider: Arc::clone(provider) })
}

impl TextOwners for CallTexts {
    fn hide_credentials(&self, text: &str) -> Option<String> {
        let CallTexts { request, provider } = self;
        provider.hide_in_text(text, &request.secrets, &|pieces| request.known_pieces(pieces))
    }

    fn is_providers_host(&self, host: &str) -> bool {
        self.provider.has_host(host)
    }

    fn is_in_request(&self, word: &str) -> bool {
        self.request.has_word(word)
    }

    fn hide_echo(&self, text: &str) -> Option<String> {
        self.request.hide_echo(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &str) -> RequestTexts {
        RequestTexts::new(
            Bytes::from(body.to_owned()),
            Some("model-77".to_owned()),
            HeaderMap::new(),
        )
    }

    fn pieces(text: &str) -> HashSet<&[u8]> {
        text.as_bytes().windows(8).collect()
    }

    /// A search for each piece would take a pass over the request for each.
    #[test]
    fn all_pieces_of_all_texts_take_one_pass_over_the_request() {
        let secret = "sk-proj-A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6";
        let request = request(r#"{"a":"k-proj-A","b":"\u0041\u0031b2C3d4","c":"x"}"#);
        let known = ["k-proj-A", "A1b2C3d4"].map(str::as_bytes).into_iter().collect();
        for _ in 0..100 {
            assert_eq!(request.known_pieces(pieces(secret)), known);
        }
        assert_eq!(request.passes.load(Ordering::Relaxed), 1);
        assert_eq!(request.known_pieces(pieces("model-77")), pieces("model-77"));
        for number in 0..100 {
            request.known_pieces(pieces(&format!("other-{number:02}")));
        }
        assert_eq!(request.passes.load(Ordering::Relaxed), MAX_PASSES);
    }

    #[test]
    fn what_a_provider_repeats_of_a_request_is_hidden() {
        let request = request(
            r#"{"model":"model-77","messages":[{"content":"my secret diary of \u00e9t\u00e9, page 7"}]}"#,
        );
        for (text, expected) in [
            ("no such field `stop`", None),
            ("the model-77 of a customer is busy", None),
            ("not allowed: my secret diary of été, page 7!", Some("not allowed: [hidden]!")),
            ("not allowed: my secret diary of...", Some("not allowed: [hidden]...")),
            ("short: my secret", None),
        ] {
            assert_eq!(request.hide_echo(text).as_deref(), expected, "{text}");
        }
        for _ in 0..100 {
            request.hide_echo("a text without any of it");
        }
        assert_eq!(request.hide_echo("a text without any of it").as_deref(), Some("[hidden]"));
        // The search for credentials has its own passes.
        assert_eq!(request.known_pieces(pieces("my secret")).len(), 2);
    }

    /// Words that a caller lets a provider repeat do not use up the search for credentials.
    #[test]
    fn searches_for_words_are_bounded_apart() {
        let small = request(r#"{"a":"org_X9 k-proj-A"}"#);
        for _ in 0..100 {
            small.has_word("org_X9");
        }
        assert_eq!(small.searches.load(Ordering::Relaxed), MAX_SEARCHES);
        assert_eq!(small.known_pieces(pieces("k-proj-A")).len(), 1);
        let large = request(&format!("{} org_X9 k-proj-A", "x".repeat(MAX_SEARCHED_BYTES)));
        assert!(!large.has_word("org_X9"));
        assert_eq!(large.searches.load(Ordering::Relaxed), 0);
        assert_eq!(large.known_pieces(pieces("k-proj-A")).len(), 1);
    }
}
