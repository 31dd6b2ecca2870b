//! Media named by address: every address is judged, and what a lane cannot get is got for it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canon::{Blame, ChatRequest, ApiError, PartKind, Media, MediaKind, WireFormat, Part, MediaSource, ErrorKind};
use catalog::{MediaFetch, Model};
use futures_util::future::BoxFuture;
use futures_util::stream::{StreamExt as _, TryStreamExt as _, iter};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use transport::FetchTarget;
use upstream::{FetchAllowance, FetchError, FetchedMedia, MediaFetcher};

use super::Call;
use config::LiveLane;

/// How many things are fetched for one call.
const MAX_FETCHES: usize = 20;
/// How many of them at once.
const MAX_CONCURRENT_FETCHES: usize = 4;
/// More tokens than any model makes of one picture.
const MAX_IMAGE_TOKENS: u64 = 16_384;
/// The window of a model of which the directory tells none; there is hardly a larger one.
const DEFAULT_CONTEXT_TOKENS: u64 = 1 << 20;

/// What a request names by address.
pub(super) struct MediaRefs {
    items: Vec<MediaRef>,
    /// Places in `items` by address: a request may name hundreds of thousands.
    index: HashMap<String, usize>,
    /// What may still be fetched, shared by all lanes that are tried.
    allowance: FetchAllowance,
}

/// One address, however often it is named.
struct MediaRef {
    url: String,
    /// Where it stands.
    paths: Vec<String>,
    target: FetchTarget,
    /// What is behind it, as far as the request tells; `None` where only its own format knows.
    hint: Option<MediaHint>,
    inlined: OnceCell<Arc<InlineData>>,
}

#[derive(Clone, Copy)]
struct MediaHint {
    kind: MediaKind,
    has_mime: bool,
}

/// Media as it stands in a request.
#[derive(Debug)]
struct InlineData {
    mime: String,
    data: String,
}

/// What was brought for a lane: addresses, and what takes their place.
#[derive(Default)]
pub(super) struct InlinedMedia(Vec<(String, Arc<InlineData>)>);

impl MediaRefs {
    /// Finds what the request names and judges every address, whoever would have to go there.
    /// A request that holds only text names nothing.
    pub(super) fn find_in(call: &Call, only_text: bool) -> Result<Self, ApiError> {
        let room = call.config.max_body_bytes.saturating_sub(call.body.len());
        // In base64 four bytes stand for three.
        let allowance = FetchAllowance::new(room / 4 * 3);
        let mut named = Self { items: Vec::new(), index: HashMap::new(), allowance };
        let guard = call.config.media.fetcher.guard();
        let addresses = match only_text {
            true => Vec::new(),
            false => dialects::media_urls(call.dialect.origin(), &call.body)?,
        };
        for found in addresses {
            if let Some(item) = named.item(&found.url) {
                item.paths.push(found.path);
                continue;
            }
            let target = guard
                .check(&found.url)
                .map_err(|e| ApiError::invalid(&*found.path, format!("`{}` {e}", found.path)))?;
            let (url, places) = (found.url, vec![found.path]);
            named.index.insert(url.clone(), named.items.len());
            named.items.push(MediaRef { url, paths: places, target, hint: None, inlined: OnceCell::new() });
        }
        if !named.items.is_empty()
            && let Ok(mut chat) = call.dialect.read_request(&call.target, &call.body)
        {
            for_each_media(&mut chat, &mut |media| named.note_kind(media));
        }
        Ok(named)
    }

    fn item(&mut self, url: &str) -> Option<&mut MediaRef> {
        self.items.get_mut(*self.index.get(url)?)
    }

    fn note_kind(&mut self, media: &Media) {
        let MediaSource::Url { url, mime } = &media.source else { return };
        let item = self.item(url);
        // What is a picture here and a file there is bounded and fetched as the file.
        let file = |what: &MediaHint| what.kind != MediaKind::Image;
        if let Some(item) = item.filter(|item| !item.hint.as_ref().is_some_and(file)) {
            item.hint = Some(MediaHint { kind: media.kind, has_mime: mime.is_some() });
        }
    }

    /// More tokens than the model makes of all that is named. How large it is, is not known when
    /// money is set aside, and the bytes of a paper do not bound its pages: its window does.
    pub(super) fn max_tokens(&self, model: &Model) -> u64 {
        let window = model.context_window.unwrap_or(DEFAULT_CONTEXT_TOKENS);
        let tokens = self.items.iter().map(|item| {
            let picture = item.hint.is_some_and(|what| what.kind == MediaKind::Image);
            let each = if picture { MAX_IMAGE_TOKENS.min(window) } else { window };
            each.saturating_mul(item.paths.len() as u64)
        });
        tokens.fold(0, u64::saturating_add)
    }

    /// Brings what the lane cannot get by itself.
    pub(super) async fn inline(
        &self,
        call: &Call,
        lane: &LiveLane,
        spoken: WireFormat,
    ) -> Result<InlinedMedia, ApiError> {
        let wanted = self.refs_to_inline(call, lane, spoken)?;
        let fetcher = &call.config.media.fetcher;
        let mut fetches: Vec<BoxFuture<'_, _>> = Vec::with_capacity(wanted.len());
        for (item, what) in wanted {
            fetches.push(Box::pin(self.inline_one(fetcher, item, what)));
        }
        if fetches.is_empty() {
            return Ok(InlinedMedia::default());
        }
        let all = iter(fetches).buffer_unordered(MAX_CONCURRENT_FETCHES).try_collect();
        // Boxed: most calls bring nothing and are not to carry it along.
        Box::pin(all).await.map(InlinedMedia)
    }

    async fn inline_one(
        &self,
        fetcher: &MediaFetcher,
        item: &MediaRef,
        what: MediaHint,
    ) -> Result<(String, Arc<InlineData>), ApiError> {
        let got = item.inlined.get_or_try_init(|| self.fetch(fetcher, item, what)).await?;
        Ok((item.url.clone(), Arc::clone(got)))
    }

    /// What would be brought, with nothing in it, and where it stands.
    pub(super) fn inline_placeholders(
        &self,
        call: &Call,
        lane: &LiveLane,
        spoken: WireFormat,
    ) -> Result<(InlinedMedia, Vec<String>), ApiError> {
        let (mut brought, mut places) = (InlinedMedia::default(), Vec::new());
        for (item, what) in self.refs_to_inline(call, lane, spoken)? {
            let mime = match what.kind {
                MediaKind::Image => "image/png",
                MediaKind::Audio => "audio/mpeg",
                MediaKind::Video => "video/mp4",
                MediaKind::Document => "application/pdf",
            };
            let nothing = InlineData { mime: mime.to_owned(), data: String::new() };
            brought.0.push((item.url.clone(), Arc::new(nothing)));
            places.extend(item.paths.iter().cloned());
        }
        Ok((brought, places))
    }

    fn refs_to_inline(
        &self,
        call: &Call,
        lane: &LiveLane,
        spoken: WireFormat,
    ) -> Result<Vec<(&MediaRef, MediaHint)>, ApiError> {
        let own = call.dialect.origin();
        let media = &call.config.media;
        let fetches = media.provider_fetch(&lane.provider.name);
        let with = |item| Some((item, needs_inlining(item, own, spoken, fetches)?));
        let wanted: Vec<(&MediaRef, MediaHint)> = self.items.iter().filter_map(with).collect();
        let refuse = |item: &MediaRef, why: &str| {
            let place = item.first_path();
            Err(ApiError::invalid(place, format!("`{place}` {why}")))
        };
        match (wanted.first(), wanted.get(MAX_FETCHES)) {
            (Some((item, _)), _) if !media.is_fetch_enabled => refuse(
                item,
                "must stand in the request itself: this model cannot be given an address",
            ),
            (_, Some((item, _))) => refuse(
                item,
                &format!("is one too many: at most {MAX_FETCHES} addresses are fetched for a request"),
            ),
            (_, None) => Ok(wanted),
        }
    }

    async fn fetch(
        &self,
        fetcher: &MediaFetcher,
        item: &MediaRef,
        what: MediaHint,
    ) -> Result<Arc<InlineData>, ApiError> {
        match fetcher.fetch(&item.url, what.kind, &self.allowance).await {
            Ok(FetchedMedia { mime, bytes }) => {
                Ok(Arc::new(InlineData { mime, data: STANDARD.encode(bytes) }))
            }
            Err(FetchError::Busy) => {
                let say = "too much is being fetched at this moment, retry later";
                let fault = ApiError::new(ErrorKind::Overloaded, say).with_retry_after(Duration::from_secs(1));
                // No lane is to blame, and another one would not help.
                Err(fault.with_blame(Blame::Caller))
            }
            Err(e @ (FetchError::NotPublic | FetchError::Failed(_))) => {
                Err(fetch_error(item, what, fetcher).with_log_note(e.to_string()))
            }
        }
    }
}

impl MediaRef {
    /// The first place it stands at.
    fn first_path(&self) -> &str {
        self.paths.first().map_or("", String::as_str)
    }
}

/// What must be brought to a lane, if this must.
fn needs_inlining(item: &MediaRef, own: WireFormat, spoken: WireFormat, fetches: MediaFetch) -> Option<MediaHint> {
    let what = item.hint?;
    let takes = match (spoken, what.kind) {
        (WireFormat::Chat | WireFormat::Native, _)
        | (WireFormat::Messages | WireFormat::Responses, MediaKind::Image | MediaKind::Document) => true,
        // The translation tells that there is no place for it, wherever its bytes are.
        (WireFormat::Messages | WireFormat::Responses, MediaKind::Audio | MediaKind::Video)
        | (WireFormat::Images, _) => false,
    };
    // A film on such a site is no file behind an address: only a model that knows the site sees it.
    let site = what.kind == MediaKind::Video
        && matches!(&*item.target.host(), "youtu.be" | "youtube.com" | "www.youtube.com");
    if !takes || site {
        return None;
    }
    let wordless = own != spoken
        && match (spoken, what.kind) {
            (WireFormat::Chat, MediaKind::Audio | MediaKind::Document) => true,
            (
                WireFormat::Chat
                | WireFormat::Responses
                | WireFormat::Messages
                | WireFormat::Native
                | WireFormat::Images,
                MediaKind::Image | MediaKind::Audio | MediaKind::Video | MediaKind::Document,
            ) => false,
        };
    let cannot = match fetches {
        MediaFetch::All => false,
        // A caller in the provider's own format knows what it may leave out.
        MediaFetch::Typed => own != spoken && !what.has_mime,
        MediaFetch::Nothing => true,
    };
    // Where only we are let in, no provider can go.
    (wordless || cannot || !item.target.is_public()).then_some(what)
}

/// One sentence for every failure: it tells the rules, and nothing of what was found.
fn fetch_error(item: &MediaRef, what: MediaHint, fetcher: &MediaFetcher) -> ApiError {
    let thing = match what.kind {
        MediaKind::Image => "a picture",
        MediaKind::Audio => "sound",
        MediaKind::Video => "a video",
        MediaKind::Document => "a document",
    };
    let (limits, place) = (fetcher.limits(), item.first_path());
    let say = format!(
        "`{place}` could not be fetched: it must be a public HTTPS address that gives {thing} of at \
         most {} within {:?}",
        format_size(limits.max_bytes),
        limits.timeout
    );
    let fault = ApiError::invalid(place, say);
    if what.kind == MediaKind::Image { fault.with_code("failed_to_download_image") } else { fault }
}

/// A size as people write it.
fn format_size(bytes: usize) -> String {
    const MIB: usize = 1 << 20;
    if bytes.is_multiple_of(MIB) {
        format!("{} MiB", bytes / MIB)
    } else {
        format!("{bytes} bytes")
    }
}

impl InlinedMedia {
    /// Whether nothing had to be brought.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts what was brought in the place of its address.
    pub(super) fn replace_urls(&self, chat: &mut ChatRequest, own: WireFormat) {
        for_each_media(chat, &mut |media| {
            let MediaSource::Url { url, mime: told } = &media.source else { return };
            let Some((_, inline)) = self.0.iter().find(|(own, _)| own == url) else { return };
            let InlineData { mime, data } = &**inline;
            // The native format takes a file of any kind without telling which.
            if own == WireFormat::Native && told.is_none() {
                media.kind = MediaKind::from_mime(mime);
            }
            media.source = MediaSource::Inline { mime: mime.clone(), data: data.clone() };
        });
    }
}

/// Every piece of media of a conversation, those that tools gave included.
fn for_each_media(chat: &mut ChatRequest, see: &mut dyn FnMut(&mut Media)) {
    fn visit_parts(parts: &mut [Part], see: &mut dyn FnMut(&mut Media)) {
        for part in parts {
            match &mut part.kind {
                PartKind::Media(media) => see(media),
                PartKind::ToolResult(result) => visit_parts(&mut result.parts, see),
                PartKind::Text { .. }
                | PartKind::Refusal(_)
                | PartKind::Thought(_)
                | PartKind::ToolCall(_)
                | PartKind::CodeExecution(_)
                | PartKind::CodeResult(_)
                | PartKind::WebSearch(_)
                | PartKind::Foreign { .. } => {}
            }
        }
    }
    for turn in &mut chat.turns {
        visit_parts(&mut turn.parts, see);
    }
}
