//! TLS of the listener: its certificate, and those that it asks callers for.
//!
//! Files are looked at by their paths every few seconds, as the configuration file is (`watch.rs`). New
//! connections use what was read last. The certificate with its key is one set of files, and what callers are
//! checked with is another. A set that cannot be used changes nothing: the one before stays, and
//! [`ListenerTls::trouble`] tells why. The other set is used all the same. A disk may hang while it is looked at, so no lock
//! that others wait for is held meanwhile.

use arc_swap::ArcSwap;
use canon::Micros;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acme::AcmeSettings;
use crate::certificate::ListenerCertificate;
use crate::error::FieldError;
use crate::file_version::FileVersion;
use crate::raw::RawTls;
use crate::tls_files::{self, CallerCertificates};

/// Time after which a look at the files that has not ended is a trouble.
const MAX_LOOK_TIME: Duration = Duration::from_secs(10);

/// Origin of the listener's certificate.
#[derive(Clone, Debug)]
enum CertificateSource {
    Files { cert: PathBuf, key: PathBuf },
    Acme(Arc<AcmeSettings>),
}

/// State of the orders of certificates, as the store has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcmeState {
    /// Reason why the last order failed, or why the stored certificate cannot be used.
    pub trouble: Option<String>,
    /// Time of the next order.
    pub next_order: Option<Micros>,
    /// True if the store has a certificate that this node cannot use.
    pub is_unusable: bool,
}

/// Parts that connections use.
struct ServedTls {
    server: Arc<ServerConfig>,
    key: Option<Arc<CertifiedKey>>,
    certificate: Option<ListenerCertificate>,
    callers: Option<Arc<dyn ClientCertVerifier>>,
}

/// A certificate of the listener with its key.
type CertifiedPair = (Arc<CertifiedKey>, ListenerCertificate);

/// Files that are used together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileSet {
    /// The certificate of the listener and its key.
    Pair,
    /// Authorities of callers, and lists of revoked certificates.
    Callers,
}

impl FileSet {
    const ALL: [Self; 2] = [Self::Pair, Self::Callers];
}

/// Versions of the files of a set.
#[derive(Debug)]
struct FileWatch {
    set: FileSet,
    /// Versions that are used.
    loaded: [Option<FileVersion>; 2],
    /// Versions of the last look.
    seen: [Option<FileVersion>; 2],
}

/// State of the files, as the last look found them.
#[derive(Debug, Default)]
struct FileState {
    /// Reason why the present certificate and key are not used.
    pair_trouble: Option<String>,
    /// Reason why the present files about callers are not used.
    caller_trouble: Option<String>,
    /// Begin of the look that runs.
    look_begun: Option<Instant>,
}

impl FileState {
    fn trouble_of(&mut self, set: FileSet) -> &mut Option<String> {
        match set {
            FileSet::Pair => &mut self.pair_trouble,
            FileSet::Callers => &mut self.caller_trouble,
        }
    }
}

/// Notes the end of a look when it is dropped.
struct RunningLook<'a>(&'a Mutex<FileState>);

impl Drop for RunningLook<'_> {
    fn drop(&mut self) {
        self.0.lock().look_begun = None;
    }
}

/// Result of a look at a set of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsLook {
    /// Changed files are used from now on.
    Reloaded,
    /// Changed files cannot be used, for a reason that was not told before.
    Refused(String),
}

/// TLS of the listener.
pub struct ListenerTls {
    source: CertificateSource,
    callers: Option<CallerCertificates>,
    served: ArcSwap<ServedTls>,
    /// Held during a look at the files, which a disk may delay.
    watch: Mutex<[FileWatch; 2]>,
    /// Held for moments, and during each exchange of `served`.
    state: Mutex<FileState>,
    acme: Mutex<AcmeState>,
}

/// Prints no key.
impl std::fmt::Debug for ListenerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let callers = &self.callers;
        f.debug_struct("ListenerTls").field("callers", callers).finish_non_exhaustive()
    }
}

impl ListenerTls {
    /// Checks `[server.tls]` and reads its files. Returns `None` if the listener serves plain HTTP.
    pub(crate) fn check(
        raw: Option<RawTls>,
        acme: Option<AcmeSettings>,
    ) -> Result<Option<Self>, FieldError> {
        let is_named = raw.is_some();
        let RawTls { cert, key, client_ca, client_certificates, client_crl } =
            raw.unwrap_or_default();
        let source = match (cert, key, acme) {
            (None, None, None) if !is_named => return Ok(None),
            (None, None, None) => {
                let why = "name `cert` and `key`, or write a section `[server.acme]`";
                return Err(FieldError::new("server.tls", why));
            }
            (Some(_), None, None) => return Err(FieldError::new("server.tls.key", "is missing")),
            (None, Some(_), None) => return Err(FieldError::new("server.tls.cert", "is missing")),
            (Some(cert), Some(key), None) => CertificateSource::Files { cert, key },
            (None, None, Some(acme)) => CertificateSource::Acme(Arc::new(acme)),
            (_, _, Some(_)) => {
                let why = "the certificate comes from a file or from `[server.acme]`; remove one of \
                           them";
                return Err(FieldError::new("server.tls.cert", why));
            }
        };
        let callers = check_callers(client_ca, client_certificates.as_deref(), client_crl)?;
        Self::load(source, callers).map(Some)
    }

    fn load(
        source: CertificateSource,
        callers: Option<CallerCertificates>,
    ) -> Result<Self, FieldError> {
        let watch = FileSet::ALL.map(|set| {
            let loaded = versions(set, &source, callers.as_ref());
            FileWatch { set, loaded, seen: loaded }
        });
        let pair = match &source {
            CertificateSource::Files { cert, key } => {
                Some(tls_files::certificate_files(cert, key)?)
            }
            CertificateSource::Acme(_) => None,
        };
        let verifier = callers.as_ref().map(tls_files::caller_verifier).transpose()?;
        let served = ServedTls::new(pair, verifier)?;
        Ok(Self {
            source,
            callers,
            served: ArcSwap::from_pointee(served),
            watch: Mutex::new(watch),
            state: Mutex::default(),
            acme: Mutex::default(),
        })
    }

    /// Returns the settings of new connections.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.served.load().server)
    }

    /// Returns the certificate that new connections get; `None` before the first one is issued.
    pub fn certificate(&self) -> Option<ListenerCertificate> {
        self.served.load().certificate.clone()
    }

    /// Returns the settings of ACME, if the certificate comes from there.
    pub fn acme(&self) -> Option<&Arc<AcmeSettings>> {
        match &self.source {
            CertificateSource::Files { .. } => None,
            CertificateSource::Acme(settings) => Some(settings),
        }
    }

    /// Returns the reason why the present files are not used.
    pub fn trouble(&self) -> Option<String> {
        let state = self.state.lock();
        let late = state.look_begun.map(|begun| begun.elapsed()).filter(|it| *it > MAX_LOOK_TIME);
        match late {
            Some(time) => {
                Some(format!("their disk has not answered for {} seconds", time.as_secs()))
            }
            None => match (&state.pair_trouble, &state.caller_trouble) {
                (Some(pair), Some(callers)) => Some(format!("{pair}; {callers}")),
                (trouble, None) | (None, trouble) => trouble.clone(),
            },
        }
    }

    /// Returns true while the files are looked at.
    pub fn is_looking(&self) -> bool {
        self.state.lock().look_begun.is_some()
    }

    /// Returns the state of the orders of certificates.
    pub fn acme_state(&self) -> AcmeState {
        self.acme.lock().clone()
    }

    /// Notes the state of the orders of certificates.
    pub fn set_acme_state(&self, state: AcmeState) {
        *self.acme.lock() = state;
    }

    /// Looks at the files, and reads a set of them if it has changed and rests. A set with trouble is read
    /// again each time, because the trouble may be one of the moment. Returns what there is to tell. A second
    /// look does nothing while one runs.
    pub fn look(&self, now: Micros) -> Vec<TlsLook> {
        let Some(mut watches) = self.watch.try_lock() else { return Vec::new() };
        self.state.lock().look_begun = Some(Instant::now());
        let _running = RunningLook(&self.state);
        watches.iter_mut().filter_map(|watch| self.look_at_set(watch, now)).collect()
    }

    fn look_at_set(&self, watch: &mut FileWatch, now: Micros) -> Option<TlsLook> {
        let found = versions(watch.set, &self.source, self.callers.as_ref());
        if found != watch.seen {
            watch.seen = found;
            return None;
        }
        if found == watch.loaded && self.state.lock().trouble_of(watch.set).is_none() {
            return None;
        }
        let used = match watch.set {
            FileSet::Pair => self.take_pair(now),
            FileSet::Callers => self.take_callers(),
        };
        let mut state = self.state.lock();
        let trouble = state.trouble_of(watch.set);
        match used {
            Ok(()) => {
                *trouble = None;
                watch.loaded = found;
                Some(TlsLook::Reloaded)
            }
            Err(why) => {
                let known = trouble.replace(why.clone());
                (known.as_ref() != Some(&why)).then_some(TlsLook::Refused(why))
            }
        }
    }

    /// Uses the certificate and key in the files. Returns why it does not.
    fn take_pair(&self, now: Micros) -> Result<(), String> {
        let (cert, key) = match &self.source {
            CertificateSource::Files { cert, key } => (cert, key),
            CertificateSource::Acme(_) => return Ok(()),
        };
        let pair = tls_files::certificate_files(cert, key).map_err(|why| why.to_string())?;
        let _state = self.state.lock();
        let last = self.served.load_full();
        match last.certificate.as_ref().and_then(|last| pair.1.worse_than(last, now)) {
            Some(why) => Err(why),
            None => self.serve(Some(pair), last.callers.clone()),
        }
    }

    /// Checks callers with what is in the files. Returns why it does not.
    fn take_callers(&self) -> Result<(), String> {
        let Some(callers) = &self.callers else { return Ok(()) };
        let verifier = tls_files::caller_verifier(callers).map_err(|why| why.to_string())?;
        let _state = self.state.lock();
        let pair = self.served.load().pair();
        self.serve(pair, Some(verifier))
    }

    /// Uses these parts for new connections. The caller holds `state`.
    fn serve(
        &self,
        pair: Option<CertifiedPair>,
        callers: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<(), String> {
        let served = ServedTls::new(pair, callers).map_err(|why| why.to_string())?;
        self.served.store(Arc::new(served));
        Ok(())
    }

    /// Serves an issued certificate from now on.
    pub fn install(
        &self,
        key: Arc<CertifiedKey>,
        certificate: ListenerCertificate,
    ) -> Result<(), FieldError> {
        // Held, so that a look at the same time does not lose it.
        let _state = self.state.lock();
        let callers = self.served.load().callers.clone();
        self.served.store(Arc::new(ServedTls::new(Some((key, certificate)), callers)?));
        Ok(())
    }

    /// Takes over the certificate of an earlier configuration: an issued one, and one of files if that in the
    /// present files is not valid.
    pub(crate) fn adopt(&self, earlier: &Arc<Self>, now: Micros) {
        if std::ptr::eq(self, Arc::as_ptr(earlier)) {
            return;
        }
        let Some((key, certificate)) = earlier.served.load().pair() else { return };
        let trouble = match (&self.source, &earlier.source) {
            (CertificateSource::Files { .. }, CertificateSource::Files { .. }) => {
                let own = self.certificate();
                match own.and_then(|own| own.worse_than(&certificate, now)) {
                    None => return,
                    trouble => trouble,
                }
            }
            (CertificateSource::Acme(_), CertificateSource::Acme(_)) => {
                if self.certificate().is_some() {
                    return;
                }
                None
            }
            (CertificateSource::Acme(_), CertificateSource::Files { .. })
            | (CertificateSource::Files { .. }, CertificateSource::Acme(_)) => return,
        };
        // The certificate was served before, so that it can be served again.
        if self.install(key, certificate).is_ok() {
            self.state.lock().pair_trouble = trouble;
        }
    }
}

impl ServedTls {
    fn new(
        pair: Option<CertifiedPair>,
        callers: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<Self, FieldError> {
        let (key, certificate) = pair.unzip();
        let server = Arc::new(tls_files::server_config(key.clone(), callers.clone())?);
        Ok(Self { server, key, certificate, callers })
    }

    /// Returns the certificate with its key.
    fn pair(&self) -> Option<CertifiedPair> {
        self.key.clone().zip(self.certificate.clone())
    }
}

/// Checks the settings of callers' certificates.
fn check_callers(
    ca: Option<PathBuf>,
    word: Option<&str>,
    crl: Option<PathBuf>,
) -> Result<Option<CallerCertificates>, FieldError> {
    const WORD: &str = "server.tls.client_certificates";
    let is_required = match (word, &ca) {
        (None | Some("off"), None) => None,
        (Some("off"), Some(_)) => None,
        (None | Some("required"), Some(_)) => Some(true),
        (Some("optional"), Some(_)) => Some(false),
        (Some("required" | "optional"), None) => {
            let why = "names no authority; set `client_ca` to its certificates";
            return Err(FieldError::new("server.tls.client_ca", why));
        }
        (Some(other), _) => {
            return Err(FieldError::new(
                WORD,
                format_args!("`{other}` is not known; write \"off\", \"optional\" or \"required\""),
            ));
        }
    };
    match (ca, is_required) {
        (Some(ca), Some(is_required)) => Ok(Some(CallerCertificates { ca, crl, is_required })),
        (_, _) if crl.is_some() && word != Some("off") => {
            let why = "is of no use without `client_ca`";
            Err(FieldError::new("server.tls.client_crl", why))
        }
        (_, _) => Ok(None),
    }
}

/// Returns the versions of the files of a set.
fn versions(
    set: FileSet,
    source: &CertificateSource,
    callers: Option<&CallerCertificates>,
) -> [Option<FileVersion>; 2] {
    let paths: [Option<&Path>; 2] = match (set, source) {
        (FileSet::Pair, CertificateSource::Files { cert, key }) => [Some(cert), Some(key)],
        (FileSet::Pair, CertificateSource::Acme(_)) => [None, None],
        (FileSet::Callers, _) => {
            [callers.map(|one| one.ca.as_path()), callers.and_then(|one| one.crl.as_deref())]
        }
    };
    paths.map(|path| path.and_then(FileVersion::of))
}

#[cfg(test)]
mod tests;
