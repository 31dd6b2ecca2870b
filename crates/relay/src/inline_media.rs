//! Media in the request itself, measured to reserve money for them. Their bytes do not bound their
//! tokens: a small file may have many pages, and a picture of many bytes has few tokens.

use catalog::MediaTokens;
use config::LiveLane;
use media::{InlineFile, MediaSize};
use memchr::memmem;
use std::cell::OnceCell;

/// Sizes of all media in a request.
#[derive(Default)]
pub(super) struct InlineMedia {
    files: Vec<InlineFile>,
    /// True if the request may set the number of pictures for a second of video.
    has_frame_rate: bool,
}

impl InlineMedia {
    /// Returns the characters of all data, which are not text of the prompt.
    pub(super) fn chars(&self) -> u64 {
        self.files.iter().map(|file| file.chars).fold(0, u64::saturating_add)
    }

    /// Upper bound of the tokens that a lane makes of the media.
    pub(super) fn max_tokens(&self, lane: &LiveLane, window: u64) -> u64 {
        let tokens = self.files.iter().map(|file| self.tokens(file, lane).unwrap_or(window));
        tokens.fold(0, u64::saturating_add)
    }

    /// Size of the media on the scale of text, to estimate their tokens.
    pub(super) fn likely_chars(&self, lane: &LiveLane, window: u64) -> u64 {
        let sizes = self.files.iter().map(|file| match file.size {
            Some(_) => self.tokens(file, lane).unwrap_or(window),
            None => window.min(file.chars),
        });
        sizes.fold(0, u64::saturating_add)
    }

    fn tokens(&self, file: &InlineFile, lane: &LiveLane) -> Option<u64> {
        let size = file.size?;
        if matches!(size, MediaSize::Video(_)) && self.has_frame_rate {
            return None;
        }
        let tokens = rates(lane).of_file(size, lane.served_model.counts.image);
        // A file that is read as text has the tokens of its letters.
        Some(tokens.max(file.text))
    }
}

/// Returns the tokens that the provider of a lane makes of media.
pub(super) fn rates(lane: &LiveLane) -> MediaTokens {
    let mut dialects = lane.formats.iter().filter_map(|format| dialects::get(*format));
    let is_google = dialects.any(|dialect| dialect.traits().is_of_google);
    if is_google { MediaTokens::GOOGLE } else { MediaTokens::USUAL }
}

/// Measures the media of a body while its fields are found.
pub(super) struct MediaScan<'b> {
    body: &'b [u8],
    files: Vec<Option<InlineFile>>,
    may_declare_text: OnceCell<bool>,
}

impl<'b> MediaScan<'b> {
    pub(super) fn new(body: &'b [u8]) -> Self {
        Self { body, files: Vec::new(), may_declare_text: OnceCell::new() }
    }

    /// Adds the text of a field for data.
    pub(super) fn add(&mut self, text: &str) {
        let may_be_text = || *self.may_declare_text.get_or_init(|| may_declare_text(self.body));
        self.files.push(media::inline_file(text, may_be_text));
    }

    /// Returns the files. Texts stay text of the prompt.
    pub(super) fn finish(self, are_texts: &[bool]) -> InlineMedia {
        let files = self.files.into_iter().zip(are_texts).filter(|(_, is_text)| !**is_text);
        let files: Vec<InlineFile> = files.filter_map(|(file, _)| file).collect();
        let has_frame_rate = !files.is_empty()
            && (memmem::find(self.body, b"fps").is_some()
                || dialects::has_escaped_letter(self.body));
        InlineMedia { files, has_frame_rate }
    }
}

/// Returns true if a body may declare a file to be a text, by a type or by its name, whatever way that
/// is written in JSON.
fn may_declare_text(body: &[u8]) -> bool {
    const OTHER: &[u8] = b"application/";
    let is_other =
        |at: usize| !body.get(at + OTHER.len()..).is_some_and(|end| end.starts_with(b"pdf"));
    let has = |word: &str| memmem::find(body, word.as_bytes()).is_some();
    has("text/")
        || has("filename")
        || has("\\/")
        || dialects::has_escaped_letter(body)
        || memmem::find_iter(body, OTHER).any(is_other)
}
