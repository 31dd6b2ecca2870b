//! Facts about a wire format that the rest of the gateway needs.
//!
//! The other crates ask for a fact and never for the name of a format, so that a new format is one
//! folder here.

use canon::{MediaKind, StopSupport, ToolKind, WireFormat};

use crate::client_tools::{OwnScreen, OwnShell};
use crate::count_endpoint::CountEndpoint;
use crate::media_urls::MediaUrlFields;
use crate::object_fields::ObjectFields;
use crate::plain_shape::PlainShape;
use crate::wire_object::FieldSpec;
use crate::word_search::{RequestWords, WordScans};

/// Facts about a wire format.
#[derive(Debug)]
pub struct FormatTraits {
    /// The format, as other formats name it.
    pub origin: WireFormat,
    /// The described fields of a request.
    pub(crate) request_fields: &'static [FieldSpec],
    /// The words that tell whether a request has to be scanned.
    pub(crate) request_words: RequestWords,
    /// The form of requests that hold only text.
    pub(crate) plain_request: PlainShape,
    /// The shell of the format.
    pub(crate) own_shell: Option<OwnShell>,
    /// The computer of the format.
    pub(crate) own_screen: Option<OwnScreen>,
    /// True if providers demand that the ids of calls are unique in a conversation.
    pub(crate) unique_call_ids: bool,
    /// Means to end a reply early.
    pub stop_support: StopSupport,
    /// True if a request can ask for several candidates.
    pub takes_candidates: bool,
    /// True if a prompt that the provider's content policy refuses is answered with a reply and not
    /// with an error.
    pub answers_blocked_prompts: bool,
    /// Headers of every request to a provider, unless the caller's own are forwarded.
    pub request_headers: &'static [(&'static str, &'static str)],
    /// Headers of the caller that are forwarded to a provider of the same format, because they
    /// change the meaning of the body.
    pub forwarded_headers: &'static [&'static str],
    /// Bytes that keep a silent stream alive and that clients ignore.
    pub keep_alive: &'static [u8],
    /// Endpoint at which providers of this format count tokens.
    pub count_endpoint: Option<&'static CountEndpoint>,
    /// Fields that a conversation begins with, as they stand in a body.
    pub conversation_keys: [&'static str; 2],
    /// True if every signature has a field that clients send back. Otherwise the gateway keeps
    /// signatures for its callers.
    pub returns_signatures: bool,
    /// True if a caller that enables thinking is shown it without asking.
    pub shows_thoughts: bool,
    /// Media that the format can carry.
    pub media_kinds: &'static [MediaKind],
    /// Media that the format can name by URL.
    pub media_by_url: &'static [MediaKind],
    /// True if a file may be of any kind, which its content decides.
    pub has_untyped_files: bool,
    /// True if every provider of the format is one of Google's services, which count media by their
    /// own rates.
    pub is_of_google: bool,
    /// True if clients ignore an error event, so that a broken stream must end with an error of the
    /// transport.
    pub aborts_broken_streams: bool,
    /// Rate-limit headers of replies; `None` if the format has none.
    pub limit_headers: Option<LimitHeaderStyle>,
    /// Path of the list of models.
    pub model_list_path: &'static str,
    /// Ending of the path of a call, before which the path of other endpoints begins.
    pub path_ending: Option<&'static str>,
    /// Fields that hold media URLs.
    pub media_urls: MediaUrlFields,
    /// Fields that name objects in a provider's account.
    pub objects: &'static ObjectFields,
    /// Name of a call in telemetry,
    /// <https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/>.
    pub operation: &'static str,
}

impl FormatTraits {
    /// Returns the header that a lane wants which takes these kinds of tools in its own form.
    pub fn client_tool_header(&self, taken: &[ToolKind]) -> Option<(&'static str, &'static str)> {
        let screen = self.own_screen.as_ref().filter(|_| taken.contains(&ToolKind::ComputerUse));
        screen?.header
    }

    /// Returns the scans that the outline of a request needs.
    pub(crate) fn scans_for(&self, outline: &[u8]) -> WordScans {
        self.request_words.scans_for(outline, || self.scan_words())
    }

    /// Returns the words of all scans.
    pub(crate) fn scan_words(&self) -> impl Iterator<Item = (String, WordScans)> {
        let none = WordScans::default();
        let objects = WordScans { objects: true, ..none };
        let made = WordScans { made_objects: true, ..none };
        let triggers = self.objects.made.triggers.iter();
        let words = self.objects.words().map(move |word| (word, objects));
        words
            .chain(self.objects.needles.words_for(objects))
            .chain(self.media_urls.needles.words_for(WordScans { media: true, ..none }))
            .chain(triggers.flat_map(move |needles| needles.words_for(made)))
    }
}

/// Names and notation of rate-limit headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitHeaderStyle {
    /// `x-ratelimit-limit-requests`, with time spans,
    /// <https://platform.openai.com/docs/guides/rate-limits#rate-limits-in-headers>.
    OpenAi,
    /// `anthropic-ratelimit-requests-limit`, with times,
    /// <https://docs.anthropic.com/en/api/rate-limits#response-headers>.
    Anthropic,
}

/// All kinds of media.
pub(crate) const ALL_MEDIA: &[MediaKind] =
    &[MediaKind::Image, MediaKind::Audio, MediaKind::Video, MediaKind::Document];
