//! Audio output: `message.audio` with a transcript.
//!
//! The object does not state the encoding, because the caller chose it in the request. The reader
//! detects it from the first bytes. OpenAI stores the audio under its `id` until `expires_at`; the
//! gateway stores nothing, so it writes an `expires_at` in the past.
//!
//! See <https://platform.openai.com/docs/guides/audio>.

use canon::{Media, MediaKind, MediaSource, Part, PartKind};

use crate::fields::ObjectWriter;
use crate::text::BorrowedText;
use crate::wire_object::wire_object;

wire_object! {
    /// The `audio` object of a message or of a stream delta.
    pub(in crate::chat) struct ChatAudio<'a>("an object") {
        data: BorrowedText<'a>,
        transcript: BorrowedText<'a>,
    }
}

/// Decoded audio so far. Each delta is base64-encoded separately.
#[derive(Debug, Default)]
pub(in crate::chat) struct AudioBuffer(Vec<u8>);

impl AudioBuffer {
    /// Appends a piece. Invalid base64 is skipped.
    pub(in crate::chat) fn add(&mut self, audio: &ChatAudio<'_>) {
        let more = audio.data.as_deref().and_then(media::decode_any_base64).unwrap_or_default();
        self.0.extend(more);
    }

    pub(in crate::chat) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the audio as one part. `None` if there is none.
    pub(in crate::chat) fn into_part(self) -> Option<Part> {
        let Self(bytes) = self;
        if bytes.is_empty() {
            return None;
        }
        let mime = match bytes.as_slice() {
            [b'R', b'I', b'F', b'F', ..] => "audio/wav",
            [b'I', b'D', b'3', ..] | [0xff, 0xfb | 0xf3 | 0xf2, ..] => "audio/mpeg",
            [0xff, 0xf1 | 0xf9, ..] => "audio/aac",
            [b'f', b'L', b'a', b'C', ..] => "audio/flac",
            [b'O', b'g', b'g', b'S', ..] => "audio/ogg",
            _ => "audio/pcm",
        };
        let source =
            MediaSource::Inline { mime: mime.to_owned(), data: media::encode_base64(bytes) };
        Some(Part::new(PartKind::Media(Media::new(MediaKind::Audio, source))))
    }
}

/// Writes audio as the `audio` object. `None` for other media.
pub(in crate::chat) fn write(media: &Media) -> Option<ObjectWriter> {
    let (MediaKind::Audio, MediaSource::Inline { mime: _, data }) = (&media.kind, &media.source)
    else {
        return None;
    };
    let audio = ObjectWriter::new().set("id", "audio_not_kept").set("data", data.as_str());
    Some(audio.set("expires_at", 0).set("transcript", ""))
}
