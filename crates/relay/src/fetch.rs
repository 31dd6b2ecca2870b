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
use transport::Target;
use upstream::{Allowance, FetchError, Fetched, Fetcher};

use super::Call;
use config::LiveLane;

/// How many things are fetched for one call.
const MOST: usize = 20;
/// How many of them at once.
const AT_ONCE: usize = 4;
/// More tokens than any model makes of one picture.
const PICTURE: u64 = 16_384;
/// The window of a model of which the directory tells none; there is hardly a larger one.
const WINDOW: u64 = 1 << 20;

/// What a request names by address.
pub(super) struct Named {
    items: Vec<Item>,
    /// Places in `items` by address: a request may name hundreds of thousands.
    index: HashMap<String, usize>,
    /// What may still be fetched, shared by all lanes that are tried.
    allowance: Allowance,
}

/// One address, however often it is named.
struct Item {
    url: String,
    /// Where it stands.
    places: Vec<String>,
    target: Target,
    /// What is behind it, as far as the request tells; `None` where only its own format knows.
    what: Option<What>,
    got: OnceCell<Arc<Inline>>,
}

#[derive(Clone, Copy)]
struct What {
    kind: MediaKind,
    typed: bool,
}

/// Media as it stands in a request.
#[derive(Debug)]
struct Inline {
    mime: String,
    data: String,
}

/// What was brought for a lane: addresses, and what takes their place.
#[derive(Default)]
pub(super) struct Brought(Vec<(String, Arc<Inline>)>);

impl Named {
    /// Finds what the request names and judges every address, whoever would have to go there.
    /// A request that holds only text names nothing.
    pub(super) fn look(call: &Call, only_text: bool) -> Result<Self, ApiError> {
        let room = call.config.body_limit.saturating_sub(call.body.len());
        // In base64 four bytes stand for three.
        let allowance = Allowance::new(room / 4 * 3);
        let mut named = Self { items: Vec::new(), index: HashMap::new(), allowance };
        let guard = call.config.media.fetcher.guard();
        let addresses = match only_text {
            true => Vec::new(),
            false => dialects::media_urls(call.dialect.origin(), &call.body)?,
        };
        for found in addresses {
            if let Some(item) = named.item(&found.url) {
                item.places.push(found.path);
                continue;
            }
            let target = guard
                .look(&found.url)
                .map_err(|e| ApiError::invalid(&*found.path, format!("`{}` {e}", found.path)))?;
            let (url, places) = (found.url, vec![found.path]);
            named.index.insert(url.clone(), named.items.len());
            named.items.push(Item { url, places, target, what: None, got: OnceCell::new() });
        }
        if !named.items.is_empty()
            && let Ok(mut chat) = call.dialect.read_request(&call.target, &call.body)
        {
            each(&mut chat, &mut |media| named.learn(media));
        }
        Ok(named)
    }

    fn item(&mut self, url: &str) -> Option<&mut Item> {
        self.items.get_mut(*self.index.get(url)?)
    }

    fn learn(&mut self, media: &Media) {
        let MediaSource::Url { url, mime } = &media.source else { return };
        let item = self.item(url);
        // What is a picture here and a file there is bounded and fetched as the file.
        let file = |what: &What| what.kind != MediaKind::Image;
        if let Some(item) = item.filter(|item| !item.what.as_ref().is_some_and(file)) {
            item.what = Some(What { kind: media.kind, typed: mime.is_some() });
        }
    }

    /// More tokens than the model makes of all that is named. How large it is, is not known when
    /// money is set aside, and the bytes of a paper do not bound its pages: its window does.
    pub(super) fn tokens(&self, model: &Model) -> u64 {
        let window = model.context_window.unwrap_or(WINDOW);
        let tokens = self.items.iter().map(|item| {
            let picture = item.what.is_some_and(|what| what.kind == MediaKind::Image);
            let each = if picture { PICTURE.min(window) } else { window };
            each.saturating_mul(item.places.len() as u64)
        });
        tokens.fold(0, u64::saturating_add)
    }

    /// Brings what the lane cannot get by itself.
    pub(super) async fn bring(
        &self,
        call: &Call,
        lane: &LiveLane,
        spoken: WireFormat,
    ) -> Result<Brought, ApiError> {
        let wanted = self.wanted(call, lane, spoken)?;
        let fetcher = &call.config.media.fetcher;
        let mut fetches: Vec<BoxFuture<'_, _>> = Vec::with_capacity(wanted.len());
        for (item, what) in wanted {
            fetches.push(Box::pin(self.bring_one(fetcher, item, what)));
        }
        if fetches.is_empty() {
            return Ok(Brought::default());
        }
        let all = iter(fetches).buffer_unordered(AT_ONCE).try_collect();
        // Boxed: most calls bring nothing and are not to carry it along.
        Box::pin(all).await.map(Brought)
    }

    async fn bring_one(
        &self,
        fetcher: &Fetcher,
        item: &Item,
        what: What,
    ) -> Result<(String, Arc<Inline>), ApiError> {
        let got = item.got.get_or_try_init(|| self.fetch(fetcher, item, what)).await?;
        Ok((item.url.clone(), Arc::clone(got)))
    }

    /// What would be brought, with nothing in it, and where it stands.
    pub(super) fn pretend(
        &self,
        call: &Call,
        lane: &LiveLane,
        spoken: WireFormat,
    ) -> Result<(Brought, Vec<String>), ApiError> {
        let (mut brought, mut places) = (Brought::default(), Vec::new());
        for (item, what) in self.wanted(call, lane, spoken)? {
            let mime = match what.kind {
                MediaKind::Image => "image/png",
                MediaKind::Audio => "audio/mpeg",
                MediaKind::Video => "video/mp4",
                MediaKind::Document => "application/pdf",
            };
            let nothing = Inline { mime: mime.to_owned(), data: String::new() };
            brought.0.push((item.url.clone(), Arc::new(nothing)));
            places.extend(item.places.iter().cloned());
        }
        Ok((brought, places))
    }

    fn wanted(
        &self,
        call: &Call,
        lane: &LiveLane,
        spoken: WireFormat,
    ) -> Result<Vec<(&Item, What)>, ApiError> {
        let own = call.dialect.origin();
        let media = &call.config.media;
        let fetches = media.got_by(&lane.provider.name);
        let with = |item| Some((item, must_bring(item, own, spoken, fetches)?));
        let wanted: Vec<(&Item, What)> = self.items.iter().filter_map(with).collect();
        let refuse = |item: &Item, why: &str| {
            let place = item.place();
            Err(ApiError::invalid(place, format!("`{place}` {why}")))
        };
        match (wanted.first(), wanted.get(MOST)) {
            (Some((item, _)), _) if !media.fetch => refuse(
                item,
                "must stand in the request itself: this model cannot be given an address",
            ),
            (_, Some((item, _))) => refuse(
                item,
                &format!("is one too many: at most {MOST} addresses are fetched for a request"),
            ),
            (_, None) => Ok(wanted),
        }
    }

    async fn fetch(
        &self,
        fetcher: &Fetcher,
        item: &Item,
        what: What,
    ) -> Result<Arc<Inline>, ApiError> {
        match fetcher.fetch(&item.url, what.kind, &self.allowance).await {
            Ok(Fetched { mime, bytes }) => {
                Ok(Arc::new(Inline { mime, data: STANDARD.encode(bytes) }))
            }
            Err(FetchError::Busy) => {
                let say = "too much is being fetched at this moment, retry later";
                let fault = ApiError::new(ErrorKind::Overloaded, say).with_retry_after(Duration::from_secs(1));
                // No lane is to blame, and another one would not help.
                Err(fault.with_blame(Blame::Caller))
            }
            Err(e @ (FetchError::NotPublic | FetchError::Failed(_))) => {
                Err(could_not(item, what, fetcher).with_log_note(e.to_string()))
            }
        }
    }
}

impl Item {
    /// The first place it stands at.
    fn place(&self) -> &str {
        self.places.first().map_or("", String::as_str)
    }
}

/// What must be brought to a lane, if this must.
fn must_bring(item: &Item, own: WireFormat, spoken: WireFormat, fetches: MediaFetch) -> Option<What> {
    let what = item.what?;
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
        MediaFetch::Typed => own != spoken && !what.typed,
        MediaFetch::Nothing => true,
    };
    // Where only we are let in, no provider can go.
    (wordless || cannot || !item.target.is_public()).then_some(what)
}

/// One sentence for every failure: it tells the rules, and nothing of what was found.
fn could_not(item: &Item, what: What, fetcher: &Fetcher) -> ApiError {
    let thing = match what.kind {
        MediaKind::Image => "a picture",
        MediaKind::Audio => "sound",
        MediaKind::Video => "a film",
        MediaKind::Document => "a document",
    };
    let (limits, place) = (fetcher.limits(), item.place());
    let say = format!(
        "`{place}` could not be fetched: it must be a public HTTPS address that gives {thing} of at \
         most {} within {:?}",
        size(limits.size),
        limits.time
    );
    let fault = ApiError::invalid(place, say);
    if what.kind == MediaKind::Image { fault.with_code("failed_to_download_image") } else { fault }
}

/// A size as people write it.
fn size(bytes: usize) -> String {
    const MIB: usize = 1 << 20;
    if bytes.is_multiple_of(MIB) {
        format!("{} MiB", bytes / MIB)
    } else {
        format!("{bytes} bytes")
    }
}

impl Brought {
    /// Whether nothing had to be brought.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts what was brought in the place of its address.
    pub(super) fn place(&self, chat: &mut ChatRequest, own: WireFormat) {
        each(chat, &mut |media| {
            let MediaSource::Url { url, mime: told } = &media.source else { return };
            let Some((_, inline)) = self.0.iter().find(|(own, _)| own == url) else { return };
            let Inline { mime, data } = &**inline;
            // The native format takes a file of any kind without telling which.
            if own == WireFormat::Native && told.is_none() {
                media.kind = MediaKind::from_mime(mime);
            }
            media.source = MediaSource::Inline { mime: mime.clone(), data: data.clone() };
        });
    }
}

/// Every piece of media of a conversation, those that tools gave included.
fn each(chat: &mut ChatRequest, see: &mut dyn FnMut(&mut Media)) {
    fn inside(parts: &mut [Part], see: &mut dyn FnMut(&mut Media)) {
        for part in parts {
            match &mut part.kind {
                PartKind::Media(media) => see(media),
                PartKind::ToolResult(result) => inside(&mut result.parts, see),
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
        inside(&mut turn.parts, see);
    }
}
