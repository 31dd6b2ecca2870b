//! Secrets that expire: fetched once for all calls, renewed in the background before they expire,
//! and used as long as they are valid.
//!
//! Every credential of a cloud is one of these. A fetch is a task of its own, so that a caller that
//! leaves does not end it for the others. After a failure the next fetch waits.

use arc_swap::ArcSwapOption;
use aws_lc_rs::digest;
use canon::{ApiError, AtomicMicros, ErrorKind, Micros};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

use crate::clock::ClockFn;
use transport::HttpClient;

/// Time a fetch may take with all its requests.
const FETCH_TIMEOUT: Duration = Duration::from_secs(20);
/// Time before expiry at which a secret is renewed, if its lifetime is long enough.
const RENEW_AHEAD: Micros = Micros::from_secs(300);
/// Time before expiry at which a secret is no longer used, for clock differences and the duration of
/// a request. At most a quarter of its lifetime.
const CLOCK_SKEW: Micros = Micros::from_secs(10);
/// Longest lifetime that is believed.
const MAX_LIFETIME: Micros = Micros::from_hours(12);
/// Pause after the first failure. It doubles with every further one.
const FIRST_PAUSE: Micros = Micros::from_secs(1);
/// Longest pause after a failure.
const MAX_PAUSE: Micros = Micros::from_secs(30);
/// Time between two secrets that are replaced because the provider refused them. A provider that
/// refuses everything must not cause a fetch for each call.
const REFUSAL_PAUSE: Micros = Micros::from_secs(30);

/// A secret and the end of its validity.
pub(crate) struct FetchedSecret<T> {
    pub(crate) value: T,
    pub(crate) expires_at: Micros,
}

/// A running fetch. The error is a note for the operator.
pub(crate) type FetchFuture<'a, T> =
    Pin<Box<dyn Future<Output = Result<FetchedSecret<T>, String>> + Send + 'a>>;

/// Service or file that secrets come from.
pub(crate) trait SecretSource<T>: Send + Sync {
    /// Name of the secret in messages, as in "no AWS credentials: …".
    fn title(&self) -> &'static str;

    /// Fetches a secret. `client` is that of the provider.
    fn fetch<'a>(&'a self, client: &'a HttpClient, now: Micros) -> FetchFuture<'a, T>;
}

/// Identity of a source: equal for two sources with the same settings. It tells nothing of them.
pub(crate) type SourceIdentity = [u8; digest::SHA256_OUTPUT_LEN];

/// Computes the identity of a source from its settings.
pub(crate) fn source_identity<'a>(parts: impl IntoIterator<Item = &'a str>) -> SourceIdentity {
    let mut hash = digest::Context::new(&digest::SHA256);
    for part in parts {
        hash.update(&part.len().to_be_bytes());
        hash.update(part.as_bytes());
    }
    let mut identity = SourceIdentity::default();
    for (byte, own) in identity.iter_mut().zip(hash.finish().as_ref()) {
        *byte = *own;
    }
    identity
}

struct HeldSecret<T> {
    value: Arc<T>,
    renew_at: Micros,
    expires_at: Micros,
}

struct FetchFailure {
    note: String,
    /// Failures in a row.
    count: u32,
    retry_at: Micros,
}

type FetchOutcome<T> = Result<Arc<T>, String>;
type RunningFetch<T> = watch::Receiver<Option<FetchOutcome<T>>>;

enum FetchStep<T> {
    Done(FetchOutcome<T>),
    Running(RunningFetch<T>),
}

/// A secret of a source, with all that is known about its renewal. Never printed.
pub(crate) struct RenewedSecret<T> {
    source: Box<dyn SecretSource<T>>,
    identity: SourceIdentity,
    now: ClockFn,
    held: ArcSwapOption<HeldSecret<T>>,
    failure: ArcSwapOption<FetchFailure>,
    running: Mutex<Option<RunningFetch<T>>>,
    refused_at: AtomicMicros,
}

impl<T: Send + Sync + 'static> RenewedSecret<T> {
    pub(crate) fn new(
        source: impl SecretSource<T> + 'static,
        identity: SourceIdentity,
        now: ClockFn,
    ) -> Self {
        Self {
            source: Box::new(source),
            identity,
            now,
            held: ArcSwapOption::empty(),
            failure: ArcSwapOption::empty(),
            running: Mutex::new(None),
            refused_at: AtomicMicros::default(),
        }
    }

    /// Returns the identity of the source.
    pub(crate) const fn identity(&self) -> &SourceIdentity {
        &self.identity
    }

    /// Returns a valid secret, which may have to be fetched first. The error is neutral for the
    /// caller, because the credential is the operator's.
    pub(crate) async fn get(self: &Arc<Self>, client: &HttpClient) -> Result<Arc<T>, ApiError> {
        let now = (self.now)();
        if let Some(held) = self.valid(now) {
            if now >= held.renew_at {
                drop(self.join_fetch(client, now));
            }
            return Ok(Arc::clone(&held.value));
        }
        // Boxed, because it is rare and would enlarge the future of every call.
        Box::pin(self.wait_for_fetch(client, now)).await.map_err(|note| {
            let message = "the model is not available at the moment";
            ApiError::new(ErrorKind::Unavailable, message).with_log_note(self.describe(&note))
        })
    }

    /// Returns a valid secret, for another source. The error is a note for the operator.
    pub(crate) async fn get_for_source(self: &Arc<Self>, client: &HttpClient) -> FetchOutcome<T> {
        let now = (self.now)();
        match self.valid(now).filter(|held| now < held.renew_at) {
            Some(held) => Ok(Arc::clone(&held.value)),
            None => match self.wait_for_fetch(client, now).await {
                Ok(value) => Ok(value),
                // The present secret is good until it expires.
                Err(note) => self
                    .valid((self.now)())
                    .map(|held| Arc::clone(&held.value))
                    .ok_or_else(|| self.describe(&note)),
            },
        }
    }

    /// Starts a fetch if there is no valid secret or it is due for renewal.
    pub(crate) fn keep_fresh(self: &Arc<Self>, client: &HttpClient) {
        drop(self.join_fetch(client, (self.now)()));
    }

    /// Returns the last secret, valid or not.
    pub(crate) fn current(&self) -> Option<Arc<T>> {
        self.held.load().as_ref().map(|held| Arc::clone(&held.value))
    }

    /// Returns the reason why the last fetch failed, for the operator.
    pub(crate) fn trouble(&self) -> Option<String> {
        let failure = self.failure.load();
        let text = self.describe(&failure.as_ref()?.note);
        Some(match self.valid((self.now)()) {
            Some(_) => format!("{text}; the present one is used until it expires"),
            None => text,
        })
    }

    /// Takes over the secret of an earlier configuration, if both have the same source.
    pub(crate) fn adopt(&self, earlier: &Self) {
        if self.identity == earlier.identity && self.held.load().is_none() {
            self.held.store(earlier.held.load_full());
            self.failure.store(earlier.failure.load_full());
        }
    }

    /// Makes a secret that the provider refused unusable, so that the next call fetches another. It stays
    /// known, because the provider may still repeat it.
    pub(crate) fn end_refused(&self) {
        if let Some(held) = self.held.load_full() {
            self.replace_refused(&held, Micros::ZERO);
        }
    }

    /// Makes the next call renew the secret. Calls use it until then.
    pub(crate) fn renew_soon(&self) {
        if let Some(held) = self.held.load_full() {
            self.replace_refused(&held, held.expires_at);
        }
    }

    /// Makes the held secret due for renewal, and ends it at this time.
    fn replace_refused(&self, held: &HeldSecret<T>, expires_at: Micros) {
        if self.may_replace_refused() {
            let value = Arc::clone(&held.value);
            let due = HeldSecret { value, renew_at: Micros::ZERO, expires_at };
            self.held.store(Some(Arc::new(due)));
        }
    }

    fn may_replace_refused(&self) -> bool {
        let now = (self.now)();
        let may = !(Micros::ZERO..REFUSAL_PAUSE).contains(&(now - self.refused_at.load()));
        if may {
            self.refused_at.store(now);
        }
        may
    }

    fn describe(&self, note: &str) -> String {
        format!("no {}: {note}", self.source.title())
    }

    fn valid(&self, now: Micros) -> Option<Arc<HeldSecret<T>>> {
        self.held.load_full().filter(|held| now < held.expires_at)
    }

    /// Returns the last failure while no fetch may start. A clock that was set back ends the pause.
    fn paused(&self, now: Micros) -> Option<Arc<FetchFailure>> {
        let is_paused = |failure: &Arc<FetchFailure>| {
            now < failure.retry_at && failure.retry_at - now <= MAX_PAUSE
        };
        self.failure.load_full().filter(is_paused)
    }

    /// Joins the running fetch, or starts one if it is due.
    fn join_fetch(self: &Arc<Self>, client: &HttpClient, now: Micros) -> FetchStep<T> {
        let mut running = self.running.lock();
        // The sender is gone if the task of the fetch was ended.
        if let Some(fetch) = running.as_ref().filter(|fetch| fetch.has_changed().is_ok()) {
            return FetchStep::Running(fetch.clone());
        }
        // A fetch may have ended since the caller looked.
        if let Some(held) = self.valid(now).filter(|held| now < held.renew_at) {
            return FetchStep::Done(Ok(Arc::clone(&held.value)));
        }
        if let Some(failure) = self.paused(now) {
            return FetchStep::Done(Err(failure.note.clone()));
        }
        let (sender, receiver) = watch::channel(None);
        *running = Some(receiver.clone());
        let (own, client) = (Arc::clone(self), client.clone());
        tokio::spawn(async move {
            let outcome = own.fetch(&client).await;
            own.running.lock().take();
            sender.send_replace(Some(outcome));
        });
        FetchStep::Running(receiver)
    }

    async fn wait_for_fetch(self: &Arc<Self>, client: &HttpClient, now: Micros) -> FetchOutcome<T> {
        let mut running = match self.join_fetch(client, now) {
            FetchStep::Done(outcome) => return outcome,
            FetchStep::Running(running) => running,
        };
        let outcome = running.wait_for(Option::is_some).await.map(|outcome| outcome.clone());
        outcome.ok().flatten().unwrap_or_else(|| Err("the fetch was ended".to_owned()))
    }

    /// Asks the source and keeps the result.
    async fn fetch(&self, client: &HttpClient) -> FetchOutcome<T> {
        let began = (self.now)();
        let fetched = tokio::time::timeout(FETCH_TIMEOUT, self.source.fetch(client, began)).await;
        let fetched =
            fetched.unwrap_or_else(|_| Err(format!("no answer within {FETCH_TIMEOUT:?}")));
        // One that is of no use must not cause a fetch for each call, as a failure does not.
        let fetched = fetched.and_then(|secret| match secret.expires_at > began {
            true => Ok(secret),
            false => Err("the answer has one that has expired; compare the clock".to_owned()),
        });
        let failures = self.failure.load().as_ref().map_or(0, |failure| failure.count);
        match fetched {
            Ok(FetchedSecret { value, expires_at }) => {
                let lifetime = (expires_at - began).clamp(Micros::ZERO, MAX_LIFETIME);
                let expires_at = began + lifetime - CLOCK_SKEW.min(lifetime / 4);
                let renew_at = expires_at - RENEW_AHEAD.min(lifetime / 4);
                let value = Arc::new(value);
                let held = HeldSecret { value: Arc::clone(&value), renew_at, expires_at };
                self.held.store(Some(Arc::new(held)));
                self.failure.store(None);
                if failures > 0 {
                    tracing::info!("{} can be fetched again", self.source.title());
                }
                Ok(value)
            }
            Err(note) => {
                let count = failures.saturating_add(1);
                let doubled = FIRST_PAUSE * (1_i64 << failures.min(8));
                let retry_at = (self.now)() + doubled.min(MAX_PAUSE);
                let failure = FetchFailure { note: note.clone(), count, retry_at };
                self.failure.store(Some(Arc::new(failure)));
                // A source that stays away is logged less and less often.
                if count.is_power_of_two() {
                    tracing::warn!(failures = count, "{}", self.describe(&note));
                }
                Err(note)
            }
        }
    }
}
