//! Search for words that tell whether a body has to be scanned.
//!
//! Most bodies have none of them. A request is searched for the words of all its scans at once.

use memchr::memchr;
use memchr::memmem::Finder;
use std::sync::{LazyLock, OnceLock};

/// Words, one of which a body must have to be scanned.
#[derive(Debug)]
pub(crate) struct Needles {
    words: &'static [&'static str],
    search: OnceLock<WordSearch>,
}

/// The beginning of a text that names a file. Blanks may come before it.
pub(crate) const FILE_TEXT: &str = "fileid";

/// The scans that a word leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WordScans {
    /// That for objects in a provider's account.
    pub(crate) objects: bool,
    /// That for media.
    pub(crate) media: bool,
    /// That of replies for objects that they hand out.
    pub(crate) made_objects: bool,
}

impl WordScans {
    const ALL: Self = Self { objects: true, media: true, made_objects: true };

    fn add(&mut self, other: Self) {
        self.objects |= other.objects;
        self.media |= other.media;
        self.made_objects |= other.made_objects;
    }
}

/// The words of all scans of a format's requests.
#[derive(Debug)]
pub(crate) struct RequestWords(OnceLock<WordSearch>);

impl RequestWords {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Returns the scans that a body needs. The function returns the words of each and is called once.
    pub(crate) fn scans_for<I: Iterator<Item = (String, WordScans)>>(
        &self,
        body: &[u8],
        words: impl FnOnce() -> I,
    ) -> WordScans {
        self.0.get_or_init(|| WordSearch::new(words())).scans_for(body)
    }
}

/// A word, and the scans that it leads to.
type ScanWord = (Box<[u8]>, WordScans);

/// Words to search for.
#[derive(Debug)]
struct WordSearch {
    /// Words with a quote at their beginning, by the byte behind it. Long texts have few quotes.
    quoted: Vec<Vec<ScanWord>>,
    /// Words with a quote at their end alone, without it.
    ended: Vec<ScanWord>,
    file_text: Option<(Finder<'static>, WordScans)>,
    others: Vec<(Finder<'static>, WordScans)>,
    /// The scans of all words.
    all: WordScans,
}

impl WordSearch {
    fn new(words: impl Iterator<Item = (String, WordScans)>) -> Self {
        let finder = |word: &str| Finder::new(word).into_owned();
        let mut quoted = vec![Vec::<ScanWord>::new(); 256];
        let (mut file_text, mut ended, mut others) = (None, Vec::<ScanWord>::new(), Vec::new());
        let mut all = WordScans::default();
        for (word, scans) in words {
            all.add(scans);
            if let Some(end) = word.strip_suffix('"').filter(|end| !end.starts_with('"')) {
                add_word(&mut ended, end, scans);
                continue;
            }
            let is_file = word == FILE_TEXT;
            let key = word.strip_prefix('"').or(is_file.then_some(FILE_TEXT)).unwrap_or_default();
            match key.bytes().next().and_then(|first| quoted.get_mut(usize::from(first))) {
                Some(list) => add_word(list, key, scans),
                None => others.push((finder(&word), scans)),
            }
            file_text = file_text.or(is_file.then(|| (finder(&word), scans)));
        }
        Self { quoted, ended, file_text, others, all }
    }

    /// Returns the scans of the words in a body. An escaped letter may be one of a word, so that it leads
    /// to all of them.
    fn scans_for(&self, body: &[u8]) -> WordScans {
        let (mut scans, mut text, mut has_blanks) = (WordScans::default(), body, false);
        while scans != self.all
            && let Some(at) = find_quote(text)
        {
            let before = text.get(..at).unwrap_or_default();
            for (_, own) in self.ended.iter().filter(|(word, _)| before.ends_with(word)) {
                scans.add(*own);
            }
            text = text.get(at + 1..).unwrap_or_default();
            let Some(first) = text.first() else { break };
            let words = self.quoted.get(usize::from(*first)).map_or(&[][..], Vec::as_slice);
            for (_, own) in words.iter().filter(|(word, _)| text.starts_with(word)) {
                scans.add(*own);
            }
            has_blanks |= !first.is_ascii_graphic() || *first == b'\\';
        }
        let file_text = self.file_text.iter().filter(|_| has_blanks);
        for (word, own) in self.others.iter().chain(file_text) {
            if scans != self.all && word.find(body).is_some() {
                scans.add(*own);
            }
        }
        if scans != self.all && has_escaped_letter(body) { self.all } else { scans }
    }
}

/// Adds a word. Few words are found faster.
fn add_word(list: &mut Vec<ScanWord>, word: &str, scans: WordScans) {
    match list.iter_mut().find(|(own, _)| **own == *word.as_bytes()) {
        Some((_, own)) => own.add(scans),
        None => list.push((Box::from(word.as_bytes()), scans)),
    }
}

/// A number with the value one in each byte.
const ONES: u64 = u64::MAX / 255;

/// Finds a quote. Most are near, where a search with vector instructions costs more than it saves.
fn find_quote(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < 16
        && let Some(block) = text.get(at..).and_then(<[u8]>::first_chunk)
    {
        // Zero in the place of a quote. The subtraction sets the highest bit of the first zero.
        let other = u64::from_le_bytes(*block) ^ (ONES * u64::from(b'"'));
        let found = other.wrapping_sub(ONES) & !other & (ONES * 128);
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    memchr(b'"', text.get(at..)?).map(|found| at + found)
}

impl Needles {
    /// Returns the words of a format, together with the scans that they lead to.
    pub(crate) fn words_for(&self, scans: WordScans) -> impl Iterator<Item = (String, WordScans)> {
        self.words.iter().map(move |word| ((*word).to_owned(), scans))
    }

    pub(crate) const fn new(words: &'static [&'static str]) -> Self {
        Self { words, search: OnceLock::new() }
    }

    pub(crate) fn is_in(&self, body: &[u8]) -> bool {
        self.or_one_is_in(body, std::iter::empty)
    }

    /// Returns true if a body has one of the words or of those that the function returns, or an escaped
    /// letter, which a key may be written with. The function is called once.
    pub(crate) fn or_one_is_in<I: Iterator<Item = String>>(
        &self,
        body: &[u8],
        more: impl FnOnce() -> I,
    ) -> bool {
        let search = self.search.get_or_init(|| {
            let words = self.words.iter().map(|word| (*word).to_owned()).chain(more());
            WordSearch::new(words.map(|word| (word, WordScans::ALL)))
        });
        search.scans_for(body) == WordScans::ALL
    }
}

/// Returns true if a body has an escaped letter, which a key may be written with.
pub fn has_escaped_letter(body: &[u8]) -> bool {
    static ESCAPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\\u00"));
    // Most bodies have no escape at all.
    let Some(escapes) = memchr(b'\\', body).and_then(|first| body.get(first..)) else {
        return false;
    };
    ESCAPE.find_iter(escapes).any(|at| matches!(escapes.get(at + 4), Some(b'4'..=b'7')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::WireFormat;

    #[test]
    fn a_key_with_escapes_is_found() {
        let needles = Needles::new(&["\"id\""]);
        assert!(needles.is_in(br#"{"\u0069d":1}"#));
        assert!(needles.is_in(br#"{"id":1}"#));
        assert!(!needles.is_in(br#"{"name":"\u00e9\u0007"}"#));
        assert!(!needles.is_in(br#"{"text":"the \"id\" of it"}"#));
        assert!(
            has_escaped_letter(br#"{"\u0069d":1}"#) && !has_escaped_letter(br#"{"id":"\u000a"}"#)
        );
    }

    /// One search for all words tells the same as one for each scan.
    #[test]
    fn all_words_are_found_at_once() {
        for format in WireFormat::ALL {
            let Some(dialect) = crate::get(format) else { continue };
            let traits = dialect.traits();
            let mut words: Vec<String> = traits.scan_words().map(|(word, _)| word).collect();
            words.extend(["\" fileid://a".into(), "\"\\u0069d\"".into(), "\"other\"".into()]);
            for (at, word) in words.iter().enumerate() {
                let other = words.get(at / 2).unwrap();
                for body in [format!("{{{word}:1}}"), format!("{{{word}:[{other} ,\"x\"]}}")] {
                    let body = body.as_bytes();
                    let triggers = traits.objects.made.triggers.as_ref();
                    let expected = WordScans {
                        objects: traits
                            .objects
                            .needles
                            .or_one_is_in(body, || traits.objects.words()),
                        media: traits.media_urls.needles.is_in(body),
                        made_objects: triggers.is_some_and(|words| words.is_in(body)),
                    };
                    let found = traits.scans_for(body);
                    assert_eq!(found, expected, "{format}: {}", String::from_utf8_lossy(body));
                }
            }
        }
    }
}
