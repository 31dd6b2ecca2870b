//! Media that a request names by URL: a step before preparation.
//!
//! Every URL is checked once per call. For each lane the step has one result: the parsed request
//! with the media inlined that the lane cannot fetch itself, or nothing if every URL can stay.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canon::{
    ApiError, Blame, ChatRequest, ErrorKind, Media, MediaKind, MediaSource, Part, PartKind,
};
use catalog::MediaFetch;
use dialects::{Dialect, FormatTraits, RequestFacts, StoredObject};
use futures_util::future::BoxFuture;
use futures_util::stream::{StreamExt as _, TryStreamExt as _, iter};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use transport::FetchTarget;
use upstream::{FetchAllowance, FetchError, FetchedMedia, MediaFetcher};

use super::Call;
use super::inline_media::{self, InlineMedia, MediaScan};
use super::sizing::DEFAULT_CONTEXT_TOKENS;
use config::LiveLane;

/// Limit per call.
const MAX_FETCHES: usize = 20;
const MAX_CONCURRENT_FETCHES: usize = 4;

/// Media URLs of a request, and the sizes of media in the request itself.
pub(super) struct MediaRefs {
    pub(super) inline: InlineMedia,
    items: Vec<MediaRef>,
    /// Index in `items` by URL: a request may contain hundreds of thousands.
    index: HashMap<String, usize>,
    /// JSON path of the first address in another field. It is only looked for if a lane must not
    /// get it.
    other_path: Option<String>,
    /// Bytes that may still be fetched, shared by all lanes that are tried.
    allowance: FetchAllowance,
}

/// One URL, with every place it is used at.
struct MediaRef {
    url: String,
    /// JSON paths of its uses.
    paths: Vec<String>,
    target: FetchTarget,
    /// Kind of the media in the request; `None` if the parsed request does not contain
    /// the URL.
    hint: Option<MediaHint>,
    inlined: OnceCell<Arc<InlineData>>,
}

#[derive(Clone, Copy)]
struct MediaHint {
    kind: MediaKind,
    has_mime: bool,
}

/// Media as base64.
#[derive(Debug)]
struct InlineData {
    mime: String,
    data: String,
}

/// Request with its media inlined for one lane; `None` if every URL can stay. Boxed because most
/// calls have none.
pub(super) type InlinedRequest = Option<Box<ChatRequest>>;

impl MediaRefs {
    /// Finds the media URLs of a request and checks every one, even those that a provider would
    /// fetch. A text-only request has none. Names of stored objects are no URLs to fetch. If one of the
    /// lanes gets the caller's own fields and must not get addresses, the other fields are searched for
    /// them too.
    pub(super) fn find_in(
        call: &Call,
        facts: &RequestFacts,
        named: &[StoredObject],
        lanes: &[Arc<LiveLane>],
    ) -> Result<Self, ApiError> {
        let room = call.config.max_body_bytes.saturating_sub(call.body.len());
        // Base64 encodes three bytes as four.
        let allowance = FetchAllowance::new(room / 4 * 3);
        let inline = InlineMedia::default();
        let (items, index) = (Vec::new(), HashMap::new());
        let mut refs = Self { inline, items, index, other_path: None, allowance };
        if facts.outline.is_nothing() {
            return Ok(refs);
        }
        let origin = call.dialect.origin();
        let is_barred = lanes
            .iter()
            .any(|lane| lane.formats.contains(&origin) && must_not_get_addresses(call, lane));
        if facts.only_text && !is_barred {
            return Ok(refs);
        }
        let guard = call.config.media.fetcher.guard();
        let named: HashSet<&str> = named.iter().map(|object| &*object.path).collect();
        let fields = &call.dialect.traits().media_urls;
        let mut scan = MediaScan::new(&call.body);
        let found =
            dialects::request_media(fields, &call.body, &facts.outline, |text| scan.add(text))?;
        refs.inline = scan.finish(&found.are_texts);
        if is_barred {
            let media: HashSet<&str> = found.urls.iter().map(|media| &*media.path).collect();
            let is_known = |path: &str| media.contains(path) || named.contains(path);
            let is_snake = fields.allows_snake_case;
            refs.other_path =
                dialects::first_address(&call.body, &facts.outline, is_snake, &is_known)?;
        }
        for media_url in found.urls {
            if named.contains(&*media_url.path) {
                continue;
            }
            if let Some(item) = refs.item(&media_url.url) {
                item.paths.push(media_url.path);
                continue;
            }
            let target = guard.check(&media_url.url).map_err(|e| {
                ApiError::invalid(&*media_url.path, format!("`{}` {e}", media_url.path))
            })?;
            let (url, paths) = (media_url.url, vec![media_url.path]);
            refs.index.insert(url.clone(), refs.items.len());
            refs.items.push(MediaRef { url, paths, target, hint: None, inlined: OnceCell::new() });
        }
        if !refs.items.is_empty()
            && let Ok(mut chat) = call.read_chat()
        {
            for_each_media(&mut chat, &mut |media| refs.note_kind(media));
            call.keep_chat(chat);
        }
        Ok(refs)
    }

    /// Returns true if no media stand at URLs.
    pub(super) const fn is_inline(&self) -> bool {
        self.items.is_empty()
    }

    fn item(&mut self, url: &str) -> Option<&mut MediaRef> {
        self.items.get_mut(*self.index.get(url)?)
    }

    fn note_kind(&mut self, media: &Media) {
        let MediaSource::Url { url, mime } = &media.source else { return };
        let item = self.item(url);
        // A URL used both as image and as file is fetched and bounded as the file.
        let file = |hint: &MediaHint| hint.kind != MediaKind::Image;
        if let Some(item) = item.filter(|item| !item.hint.as_ref().is_some_and(file)) {
            item.hint = Some(MediaHint { kind: media.kind, has_mime: mime.is_some() });
        }
    }

    /// Upper bound of the tokens that the model makes of the media at URLs.
    ///
    /// The sizes are unknown when money is reserved, and the bytes of a document do not bound its
    /// pages. The context window does.
    pub(super) fn max_tokens(&self, lane: &LiveLane) -> u64 {
        let model = &lane.served_model;
        let window = lane.capabilities.context_window.unwrap_or(DEFAULT_CONTEXT_TOKENS);
        let tokens = self.items.iter().map(|item| {
            let is_image = item.hint.is_some_and(|hint| hint.kind == MediaKind::Image);
            let image = model.counts.image.unwrap_or(inline_media::rates(lane).max_image);
            // The caller's word does not make a picture of a video.
            let each = if is_image && !item.is_video_site() { image.min(window) } else { window };
            each.saturating_mul(item.paths.len() as u64)
        });
        tokens.fold(0, u64::saturating_add)
    }

    /// Fetches and inlines the media that the lane cannot fetch itself.
    pub(super) async fn inline(
        &self,
        call: &Call,
        lane: &LiveLane,
        lane_dialect: &dyn Dialect,
    ) -> Result<InlinedRequest, ApiError> {
        let wanted = self.refs_to_inline(call, lane, lane_dialect)?;
        if wanted.is_empty() {
            return Ok(None);
        }
        let fetcher = &call.config.media.fetcher;
        let mut fetches: Vec<BoxFuture<'_, _>> = Vec::with_capacity(wanted.len());
        for (item, hint) in wanted {
            fetches.push(Box::pin(self.inline_one(fetcher, item, hint)));
        }
        let all = iter(fetches).buffer_unordered(MAX_CONCURRENT_FETCHES);
        // Boxed because most calls fetch nothing: the future of every call would grow by its size.
        let inlined: Vec<_> = Box::pin(all.try_collect()).await?;
        call.work_permit().await.run(|| inlined_request(call, &inlined)).await
    }

    async fn inline_one<'a>(
        &self,
        fetcher: &MediaFetcher,
        item: &'a MediaRef,
        hint: MediaHint,
    ) -> Result<(&'a str, Arc<InlineData>), ApiError> {
        let got = item.inlined.get_or_try_init(|| self.fetch(fetcher, item, hint)).await?;
        Ok((&item.url, Arc::clone(got)))
    }

    /// Inlines empty media for a dry run. Returns the JSON paths of the URLs that would be fetched
    /// as well.
    pub(super) fn inline_placeholders(
        &self,
        call: &Call,
        lane: &LiveLane,
        lane_dialect: &dyn Dialect,
    ) -> Result<(InlinedRequest, Vec<String>), ApiError> {
        let (mut inlined, mut paths) = (Vec::new(), Vec::new());
        for (item, hint) in self.refs_to_inline(call, lane, lane_dialect)? {
            let mime = match hint.kind {
                MediaKind::Image => "image/png",
                MediaKind::Audio => "audio/mpeg",
                MediaKind::Video => "video/mp4",
                MediaKind::Document => "application/pdf",
            };
            let placeholder = InlineData { mime: mime.to_owned(), data: String::new() };
            inlined.push((&*item.url, Arc::new(placeholder)));
            paths.extend(item.paths.iter().cloned());
        }
        let request = if inlined.is_empty() { None } else { inlined_request(call, &inlined)? };
        Ok((request, paths))
    }

    fn refs_to_inline(
        &self,
        call: &Call,
        lane: &LiveLane,
        lane_dialect: &dyn Dialect,
    ) -> Result<Vec<(&MediaRef, MediaHint)>, ApiError> {
        if self.items.is_empty() && self.other_path.is_none() {
            return Ok(Vec::new());
        }
        let is_translated = call.dialect.origin() != lane_dialect.origin();
        let media = &call.config.media;
        let fetches = media.provider_fetch(&lane.provider.name);
        let is_shared = lane.provider.shares_objects;
        // A translation loses such fields.
        if let Some(path) = self.other_path.as_deref().filter(|_| !is_translated) {
            refuse_address(call, lane, path)?;
        }
        let terms = LaneTerms { is_translated, traits: lane_dialect.traits(), fetches, is_shared };
        let with = |item| Some((item, terms.needs_inlining(item)?));
        let wanted: Vec<(&MediaRef, MediaHint)> = self.items.iter().filter_map(with).collect();
        let refuse = |item: &MediaRef, why: &str| {
            let path = item.first_path();
            Err(ApiError::invalid(path, format!("`{path}` {why}")))
        };
        let no_address = "must stand in the request itself: this model cannot be given an address";
        if let Some(item) = self.items.iter().find(|item| terms.must_refuse(item)) {
            return refuse(item, no_address);
        }
        match (wanted.first(), wanted.get(MAX_FETCHES)) {
            (Some((item, _)), _) if !media.is_fetch_enabled => refuse(item, no_address),
            (_, Some((item, _))) => refuse(
                item,
                &format!("is one too many: at most {MAX_FETCHES} URLs are fetched for a request"),
            ),
            (_, None) => Ok(wanted),
        }
    }

    /// Refuses an address in the caller's own bytes, which are sent without fetching anything.
    pub(super) fn check_own_bytes(&self, call: &Call, lane: &LiveLane) -> Result<(), ApiError> {
        let media = self.items.first().map(MediaRef::first_path);
        media.or(self.other_path.as_deref()).map_or(Ok(()), |path| refuse_address(call, lane, path))
    }

    async fn fetch(
        &self,
        fetcher: &MediaFetcher,
        item: &MediaRef,
        hint: MediaHint,
    ) -> Result<Arc<InlineData>, ApiError> {
        match fetcher.fetch(&item.url, hint.kind, &self.allowance).await {
            Ok(FetchedMedia { mime, bytes }) => {
                Ok(Arc::new(InlineData { mime, data: STANDARD.encode(bytes) }))
            }
            Err(FetchError::Busy) => {
                let message = "too much is being fetched at this moment, retry later";
                let error = ApiError::new(ErrorKind::Overloaded, message)
                    .with_retry_after(Duration::from_secs(1));
                // No lane is at fault, and another one would not help.
                Err(error.with_blame(Blame::Caller))
            }
            Err(e @ (FetchError::NotPublic | FetchError::Failed(_))) => {
                Err(fetch_error(item, hint, fetcher).with_log_note(e.to_string()))
            }
        }
    }
}

/// Returns true for a provider in a private network, unless the operator says that it may fetch: it
/// would let callers reach that network. A provider on the internet cannot.
pub(super) fn must_not_get_addresses(call: &Call, lane: &LiveLane) -> bool {
    let fetches = call.config.media.provider_fetch(&lane.provider.name);
    fetches == MediaFetch::Nothing && !lane.provider.is_public()
}

/// Refuses the address at this path if the lane must not get it.
pub(super) fn refuse_address(call: &Call, lane: &LiveLane, path: &str) -> Result<(), ApiError> {
    if !must_not_get_addresses(call, lane) {
        return Ok(());
    }
    let why = "must not be an address: the provider of this model stands in a private network";
    Err(ApiError::invalid(path, format!("`{path}` {why}")))
}

impl MediaRef {
    /// Returns true if the URL is that of a video at YouTube, and not of a file.
    fn is_video_site(&self) -> bool {
        let host = self.target.host();
        let host = host.strip_prefix("www.").or(host.strip_prefix("m.")).unwrap_or(&host);
        matches!(host, "youtu.be" | "youtube.com" | "music.youtube.com")
    }

    fn first_path(&self) -> &str {
        self.paths.first().map_or("", String::as_str)
    }
}

/// Rules of a lane for media URLs.
struct LaneTerms {
    is_translated: bool,
    traits: &'static FormatTraits,
    fetches: MediaFetch,
    is_shared: bool,
}

impl LaneTerms {
    /// Returns the kind of a media URL that must be inlined; `None` if the URL can stay.
    fn needs_inlining(&self, item: &MediaRef) -> Option<MediaHint> {
        let hint = item.hint?;
        // The translation reports other media as losses, inlined or not.
        let accepts_media = self.traits.media_kinds.contains(&hint.kind);
        // A YouTube URL is not a file: only models that support the site can use it
        // (<https://ai.google.dev/gemini-api/docs/video-understanding#youtube>).
        let is_video_site = hint.kind == MediaKind::Video && item.is_video_site();
        if !accepts_media || is_video_site {
            return None;
        }
        let cannot_express = self.is_translated && !self.traits.media_by_url.contains(&hint.kind);
        (cannot_express || self.is_barred(item)).then_some(hint)
    }

    /// Returns true for a URL that the provider must not get, in a field that the gateway does not
    /// read: it cannot be inlined. A translation loses such a field.
    fn must_refuse(&self, item: &MediaRef) -> bool {
        item.hint.is_none() && !self.is_translated && self.is_barred(item)
    }

    /// Returns true if the provider must not get the URL.
    fn is_barred(&self, item: &MediaRef) -> bool {
        let has_mime = item.hint.is_some_and(|hint| hint.has_mime);
        let cannot_fetch = match self.fetches {
            MediaFetch::All => false,
            // A caller in the provider's own format knows which fields it can omit.
            MediaFetch::Typed => self.is_translated && !has_mime,
            MediaFetch::Nothing => true,
        };
        // The gateway fetches it without the operator's credential.
        let is_fenced =
            (self.is_translated || !self.is_shared) && self.traits.objects.holds_url(&item.url);
        // A provider cannot reach a URL that is not public.
        is_fenced || cannot_fetch || !item.target.is_public()
    }
}

/// The same message for every failure. It states the rules and reveals nothing about the fetched
/// address.
fn fetch_error(item: &MediaRef, hint: MediaHint, fetcher: &MediaFetcher) -> ApiError {
    let thing = match hint.kind {
        MediaKind::Image => "a picture",
        MediaKind::Audio => "sound",
        MediaKind::Video => "a video",
        MediaKind::Document => "a document",
    };
    let (limits, path) = (fetcher.limits(), item.first_path());
    let message = format!(
        "`{path}` could not be fetched: it must be a public HTTPS address that gives {thing} of at \
         most {} within {:?}",
        format_size(limits.max_bytes),
        limits.timeout
    );
    let error = ApiError::invalid(path, message);
    if hint.kind == MediaKind::Image { error.with_code("failed_to_download_image") } else { error }
}

fn format_size(bytes: usize) -> String {
    const MIB: usize = 1 << 20;
    if bytes.is_multiple_of(MIB) {
        format!("{} MiB", bytes / MIB)
    } else {
        format!("{bytes} bytes")
    }
}

/// Parses the request and replaces URLs by their inlined media.
fn inlined_request(
    call: &Call,
    inlined: &[(&str, Arc<InlineData>)],
) -> Result<InlinedRequest, ApiError> {
    let mut chat = call.read_chat()?;
    for_each_media(&mut chat, &mut |media| {
        let MediaSource::Url { url, mime: declared } = &media.source else { return };
        let Some((_, inline)) = inlined.iter().find(|(known, _)| known == url) else { return };
        let InlineData { mime, data } = &**inline;
        if call.dialect.traits().has_untyped_files && declared.is_none() {
            media.kind = MediaKind::from_mime(mime);
        }
        media.source = MediaSource::Inline { mime: mime.clone(), data: data.clone() };
    });
    Ok(Some(chat))
}

/// Visits all media of a request, including those in tool results.
fn for_each_media(chat: &mut ChatRequest, visit: &mut dyn FnMut(&mut Media)) {
    fn visit_parts(parts: &mut [Part], visit: &mut dyn FnMut(&mut Media)) {
        for part in parts {
            match &mut part.kind {
                PartKind::Media(media) => visit(media),
                PartKind::ToolResult(result) => visit_parts(&mut result.parts, visit),
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
        visit_parts(&mut turn.parts, visit);
    }
}
