//! Cache of signatures for callers that may not send them back.
//!
//! Some providers refuse a tool result without the signature of its call
//! (<https://ai.google.dev/gemini-api/docs/thought-signatures>). Signatures that the caller's
//! format has no reliable field for (`dialects::signature_cache`) are stored here under the
//! caller's account and the call id or text. They are restored when these return without them. The
//! cache is bounded in number and bytes and drops the oldest entries first.

use canon::{
    ChatReply, ChatRequest, Event, Part, PartDelta, PartIndex, PartKind, PartStart, ReplyCandidate,
    Role, Thought, ToolCall, Turn, WireFormat,
};
use dialects::Dialect;
use dialects::signature_cache::{self, CachedSignatures, SignatureKey};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

/// Limit over all accounts.
const MAX_ENTRIES: usize = 20_000;
/// Limit over all accounts.
const MAX_TOTAL_BYTES: usize = 64 << 20;
/// Limit of the text scanned in one reply, and of the signatures stored for it.
const MAX_SCANNED_BYTES: usize = 256 << 10;
/// Limit of replies with the same text and different prompts.
const MAX_PER_TEXT: usize = 8;

/// Signatures by account.
#[derive(Default)]
pub struct SignatureCache {
    /// Hasher of texts. Its seed is random, so that callers cannot construct collisions.
    hasher: RandomState,
    table: Mutex<SignatureTable>,
}

#[derive(Default)]
struct SignatureTable {
    entries: HashMap<AccountLookup, Vec<CacheEntry>>,
    order: VecDeque<AccountLookup>,
    total_bytes: usize,
}

type AccountLookup = (String, LookupId);

/// Lookup key of signatures within an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum LookupId {
    Call(String),
    Text(u64, usize),
}

/// Signatures, and a hash of the turn that the reply answers: short texts occur more than once.
struct CacheEntry {
    prompt_hash: u64,
    signatures: CachedSignatures,
}

impl SignatureCache {
    /// Stores the signatures of a reply that a caller of this format may omit.
    pub(super) fn keep_reply(
        &self,
        account: &str,
        caller: WireFormat,
        chat: &ChatRequest,
        reply: &ChatReply,
    ) {
        for ReplyCandidate { parts, .. } in &reply.candidates {
            // Most replies have none, and then nothing is hashed.
            if parts.iter().any(|part| part.signature.is_some()) {
                self.keep_parts(account, caller, self.prompt_hash(chat.turns.last()), parts);
            }
        }
    }

    fn keep_parts(&self, account: &str, caller: WireFormat, prompt_hash: u64, parts: &[Part]) {
        if parts.iter().all(|part| part.signature.is_none()) {
            return;
        }
        signature_cache::collect_signatures(parts, caller, |name, signatures| {
            if signatures.size_bytes() <= MAX_SCANNED_BYTES {
                let key = (account.to_owned(), self.lookup_id(name));
                self.table.lock().insert(key, CacheEntry { prompt_hash, signatures });
            }
        });
    }

    /// Restores signatures that the caller omitted, for a provider of this format.
    pub(super) fn restore(&self, account: &str, provider: WireFormat, chat: &mut ChatRequest) {
        if self.table.lock().entries.is_empty() {
            return;
        }
        let mut before: Option<&Turn> = None;
        for turn in &mut chat.turns {
            if turn.role == Role::Assistant {
                signature_cache::restore_signatures(&mut turn.parts, provider, |name| {
                    let key = (account.to_owned(), self.lookup_id(name));
                    self.table.lock().get(&key, || self.prompt_hash(before))
                });
            }
            before = Some(turn);
        }
    }

    fn lookup_id(&self, name: SignatureKey<'_>) -> LookupId {
        match name {
            SignatureKey::Call(id) => LookupId::Call(id.to_owned()),
            SignatureKey::Text(text) => LookupId::Text(self.hasher.hash_one(text), text.len()),
        }
    }

    /// Hash of the turn that a reply answers. Distinguishes replies with the same text.
    fn prompt_hash(&self, turn: Option<&Turn>) -> u64 {
        let parts = turn.into_iter().flat_map(|turn| &turn.parts);
        let texts = parts.map(|part| match &part.kind {
            PartKind::Text { text, .. } => self.hasher.hash_one(text),
            PartKind::ToolResult(result) => {
                self.hasher.hash_one((&result.call_id, result.as_text()))
            }
            PartKind::Refusal(_)
            | PartKind::Media(_)
            | PartKind::Thought(_)
            | PartKind::ToolCall(_)
            | PartKind::CodeExecution(_)
            | PartKind::CodeResult(_)
            | PartKind::WebSearch(_)
            | PartKind::Foreign { .. } => 0,
        });
        self.hasher.hash_one(texts.collect::<Vec<u64>>())
    }
}

impl SignatureTable {
    fn insert(&mut self, key: AccountLookup, entry: CacheEntry) {
        self.total_bytes += entry.signatures.size_bytes();
        let same = self.entries.entry(key.clone()).or_default();
        if same.is_empty() {
            self.order.push_back(key);
        }
        let mut dropped_bytes = 0;
        same.retain(|other| {
            let stays = other.prompt_hash != entry.prompt_hash;
            dropped_bytes += if stays { 0 } else { other.signatures.size_bytes() };
            stays
        });
        if same.len() >= MAX_PER_TEXT {
            dropped_bytes += same.remove(0).signatures.size_bytes();
        }
        same.push(entry);
        self.total_bytes = self.total_bytes.saturating_sub(dropped_bytes);
        while self.order.len() > MAX_ENTRIES || self.total_bytes > MAX_TOTAL_BYTES {
            let Some(oldest) = self.order.pop_front() else { break };
            for entry in self.entries.remove(&oldest).into_iter().flatten() {
                self.total_bytes = self.total_bytes.saturating_sub(entry.signatures.size_bytes());
            }
        }
    }

    /// Returns the signatures of the reply to that turn, or the latest with the same text: a client
    /// may have changed the turn since.
    fn get(
        &self,
        key: &AccountLookup,
        prompt_hash: impl FnOnce() -> u64,
    ) -> Option<CachedSignatures> {
        let same = self.entries.get(key)?;
        let entry = match same.as_slice() {
            [only] => only,
            several => {
                let prompt_hash = prompt_hash();
                several.iter().find(|entry| entry.prompt_hash == prompt_hash).or(several.last())?
            }
        };
        Some(entry.signatures.clone())
    }
}

/// Collects signatures from a stream.
pub(super) struct SignatureCollector {
    caller: WireFormat,
    prompt_hash: u64,
    parts: BTreeMap<PartIndex, Part>,
    collected_bytes: usize,
}

impl SignatureCollector {
    /// Creates a collector for the reply to a request; `None` if the caller's format has a field
    /// for every signature.
    pub(super) fn for_request(
        cache: &SignatureCache,
        dialect: &dyn Dialect,
        chat: &ChatRequest,
    ) -> Option<Self> {
        if dialect.traits().returns_signatures {
            return None;
        }
        let (caller, prompt_hash) = (dialect.origin(), cache.prompt_hash(chat.turns.last()));
        Some(Self { caller, prompt_hash, parts: BTreeMap::new(), collected_bytes: 0 })
    }

    pub(super) fn observe(&mut self, event: &Event) {
        match event {
            Event::PartStart(place, opening) => {
                self.parts.insert(*place, started_part(opening));
            }
            Event::PartDelta(place, PartDelta::Text(text)) => self.add_text(*place, text),
            Event::PartSignature(place, seal) => {
                if let Some(part) = self.parts.get_mut(place) {
                    part.signature = Some(seal.clone());
                }
            }
            Event::Start { .. }
            | Event::PartDelta(..)
            | Event::PartEnd(_)
            | Event::Usage(_)
            | Event::Extra { .. }
            | Event::Finish { .. }
            | Event::Error(_) => {}
        }
    }

    /// Collects a text that grows a part.
    pub(super) fn add_text(&mut self, place: PartIndex, text: &str) {
        if self.collected_bytes > MAX_SCANNED_BYTES {
            return;
        }
        let Some(part) = self.parts.get_mut(&place) else { return };
        if let PartKind::Text { text: grown, .. }
        | PartKind::Thought(Thought { text: grown, redacted: _ }) = &mut part.kind
        {
            grown.push_str(text);
            self.collected_bytes += text.len();
        }
    }

    /// Stores the collected signatures.
    pub(super) fn store_into(self, cache: &SignatureCache, account: &str) {
        let Self { caller, prompt_hash, parts, collected_bytes } = self;
        if collected_bytes > MAX_SCANNED_BYTES {
            return;
        }
        let mut candidates: BTreeMap<u32, Vec<Part>> = BTreeMap::new();
        for (place, part) in parts {
            candidates.entry(place.candidate).or_default().push(part);
        }
        for parts in candidates.values() {
            cache.keep_parts(account, caller, prompt_hash, parts);
        }
    }
}

/// Returns the part that starts, reduced to what signatures need.
fn started_part(opening: &PartStart) -> Part {
    // Of other parts only the position matters.
    let other = || Part::new(PartKind::Foreign { origin: WireFormat::Images, value: Value::Null });
    match opening {
        PartStart::Text => Part::text(""),
        PartStart::Thought => Part::new(PartKind::Thought(Thought::default())),
        PartStart::ToolCall { id, name, custom } => {
            let (id, name, custom) = (id.clone(), name.clone(), *custom);
            let call = ToolCall { id, name, arguments: String::new(), custom };
            Part::new(PartKind::ToolCall(call))
        }
        PartStart::Complete(part) => match &part.kind {
            PartKind::Text { .. } | PartKind::Thought(_) | PartKind::ToolCall(_) => {
                (**part).clone()
            }
            PartKind::Refusal(_)
            | PartKind::Media(_)
            | PartKind::ToolResult(_)
            | PartKind::CodeExecution(_)
            | PartKind::CodeResult(_)
            | PartKind::WebSearch(_)
            | PartKind::Foreign { .. } => other(),
        },
        PartStart::Refusal => other(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::Signature;

    fn call(id: &str) -> Part {
        let (id, name, arguments) = (id.to_owned(), "f".to_owned(), "{}".to_owned());
        Part::new(PartKind::ToolCall(ToolCall { id, name, arguments, custom: false }))
    }

    fn thought(text: &str) -> Part {
        Part::new(PartKind::Thought(Thought { text: text.to_owned(), redacted: false }))
    }

    fn seal(token: &str) -> Option<Signature> {
        Some(Signature::new(WireFormat::Native, token))
    }

    fn user(text: &str) -> Turn {
        Turn::new(Role::User, vec![Part::text(text)])
    }

    fn chat(turns: Vec<Turn>) -> ChatRequest {
        ChatRequest { turns, ..ChatRequest::default() }
    }

    #[test]
    fn restores_dropped_signatures_for_own_account_and_provider_only() {
        let cache = SignatureCache::default();
        let whole = vec![
            thought("hm").with_signature(seal("t")),
            Part::text("Let me "),
            Part::text("look.").with_signature(seal("x")),
            call("c1").with_signature(seal("s")),
            call("c2"),
        ];
        cache.keep_parts("a", WireFormat::Chat, 0, &whole);
        let parts = vec![thought("hm"), Part::text("Let me look."), call("c1"), call("c2")];
        let dropped = || chat(vec![Turn::new(Role::Assistant, parts.clone())]);
        let mut back = dropped();
        cache.restore("a", WireFormat::Native, &mut back);
        assert_eq!(back.turns[0].parts, whole);
        for (account, provider) in [("b", WireFormat::Native), ("a", WireFormat::Messages)] {
            let mut other = dropped();
            cache.restore(account, provider, &mut other);
            assert_eq!(other, dropped());
        }
    }

    #[test]
    fn equal_texts_keep_separate_signatures() {
        let cache = SignatureCache::default();
        let reply_parts =
            |token: &str| vec![Part::text("Done."), Part::text("").with_signature(seal(token))];
        let mut turns = Vec::new();
        for (prompt, token) in [("One!", "s1"), ("Two!", "s2"), ("Three!", "s3")] {
            turns.push(user(prompt));
            let prompt_hash = cache.prompt_hash(turns.last());
            cache.keep_parts("a", WireFormat::Messages, prompt_hash, &reply_parts(token));
            turns.push(Turn::new(Role::Assistant, vec![Part::text("Done.")]));
        }
        let mut back = chat(turns);
        cache.restore("a", WireFormat::Native, &mut back);
        let answers = [1, 3, 5].map(|at| back.turns[at].parts.clone());
        assert_eq!(answers, ["s1", "s2", "s3"].map(reply_parts));
        // Signatures are not restored for a different text.
        let mut other = chat(vec![Turn::new(Role::Assistant, vec![Part::text("Done!")])]);
        cache.restore("a", WireFormat::Native, &mut other);
        assert_eq!(other.turns[0].parts, [Part::text("Done!")]);
    }

    #[test]
    fn cache_is_bounded() {
        let cache = SignatureCache::default();
        for n in 0..MAX_ENTRIES + 10 {
            cache.keep_parts(
                "a",
                WireFormat::Chat,
                0,
                &[call(&format!("c{n}")).with_signature(seal("s"))],
            );
        }
        {
            let table = cache.table.lock();
            assert_eq!((table.entries.len(), table.order.len()), (MAX_ENTRIES, MAX_ENTRIES));
            assert!(
                !table.entries.contains_key(&("a".to_owned(), LookupId::Call("c0".to_owned())))
            );
        }
        let large = "x".repeat(MAX_SCANNED_BYTES / 2);
        for n in 0..2 * MAX_TOTAL_BYTES / MAX_SCANNED_BYTES + 10 {
            let parts = [thought(&large).with_signature(seal("s")), call(&format!("l{n}"))];
            cache.keep_parts("a", WireFormat::Chat, 0, &parts);
            assert!(cache.table.lock().total_bytes <= MAX_TOTAL_BYTES);
        }
        for n in 0..3 * MAX_PER_TEXT as u64 {
            cache.keep_parts(
                "a",
                WireFormat::Messages,
                n,
                &[Part::text("Done.").with_signature(seal("s"))],
            );
        }
        let table = cache.table.lock();
        let all: usize =
            table.entries.values().flatten().map(|entry| entry.signatures.size_bytes()).sum();
        assert_eq!((table.total_bytes, table.entries.len()), (all, table.order.len()));
        assert!(table.entries.values().all(|same| same.len() <= MAX_PER_TEXT));
    }
}
