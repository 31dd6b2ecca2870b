//! Speech in an answer: `message.audio`, with what is said as its transcript.
//!
//! The object does not tell how the sound is coded, since the caller chose that, so its first bytes
//! are asked. Under its `id` a provider keeps the sound for a while; a gateway that hands the sound
//! itself on keeps nothing, and says so with a time that is over.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canon::{Kind, Media, MediaKind, Part, Source};
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;

use crate::envelope;
use crate::fields::Object;
use crate::text;

/// The object, or a piece of it in a stream.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Audio<'a> {
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    data: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text::maybe")]
    pub(super) transcript: Option<Cow<'a, str>>,
}

/// The sound so far. Every piece of a stream is coded for itself.
#[derive(Debug, Default)]
pub(super) struct Sound(Vec<u8>);

impl Sound {
    /// Adds a piece; what is no base64 is left out, as a client would have to.
    pub(super) fn add(&mut self, audio: &Audio<'_>) {
        let more = audio.data.as_deref().and_then(envelope::decode).unwrap_or_default();
        self.0.extend(more);
    }

    /// All of it as a part; `None` for silence.
    pub(super) fn part(self) -> Option<Part> {
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
        let source = Source::Inline { mime: mime.to_owned(), data: STANDARD.encode(bytes) };
        let (name, detail, clip) = (None, None, None);
        Some(Part::new(Kind::Media(Media { kind: MediaKind::Audio, source, name, detail, clip })))
    }
}

/// Sound as the object; `None` for other media.
pub(super) fn write(media: &Media) -> Option<Value> {
    let (MediaKind::Audio, Source::Inline { mime: _, data }) = (&media.kind, &media.source) else {
        return None;
    };
    let audio = Object::new().set("id", "audio_not_kept").set("data", data.as_str());
    Some(audio.set("expires_at", 0).set("transcript", "").into())
}
