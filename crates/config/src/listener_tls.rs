//! TLS of the listener: its certificate, and those that it asks callers for.
//!
//! Files are looked at by their paths every few seconds, as the configuration file is (`watch.rs`). New
//! connections use what was read last. A set of files that cannot be used changes nothing: the certificate
//! before stays, and [`ListenerTls::trouble`] tells why. A disk may hang while it is looked at, so no lock
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

/// Contents of the files.
struct TlsFiles {
    /// `None` if the certificate is not in a file.
    pair: Option<CertifiedPair>,
    callers: Option<Arc<dyn ClientCertVerifier>>,
}

/// Versions of the watched files.
#[derive(Debug)]
struct FileWatch {
    /// Versions that are used.
    loaded: Vec<Option<FileVersion>>,
    /// Versions of the last look.
    seen: Vec<Option<FileVersion>>,
}

/// State of the files, as the last look found them.
#[derive(Debug, Default)]
struct FileState {
    /// Reason why the present files are not used.
    trouble: Option<String>,
    /// Begin of the look that runs.
    look_begun: Option<Instant>,
}

/// Notes the end of a look when it is dropped.
struct RunningLook<'a>(&'a Mutex<FileState>);

impl Drop for RunningLook<'_> {
    fn drop(&mut self) {
        self.0.lock().look_begun = None;
    }
}

/// Result of a look at the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsLook {
    /// Nothing to tell.
    Same,
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
    watch: Mutex<FileWatch>,
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
        let loaded = versions(&source, callers.as_ref());
        let TlsFiles { pair, callers: verifier } = read_files(&source, callers.as_ref())?;
        let served = ServedTls::new(pair, verifier)?;
        let watch = FileWatch { seen: loaded.clone(), loaded };
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
            None => state.trouble.clone(),
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

    /// Looks at the files, and reads them if they have changed and rest. Files with trouble are read
    /// again each time, because the trouble may be one of the moment. A second look does nothing while one
    /// runs.
    pub fn look(&self, now: Micros) -> TlsLook {
        let Some(mut watch) = self.watch.try_lock() else { return TlsLook::Same };
        self.state.lock().look_begun = Some(Instant::now());
        let _running = RunningLook(&self.state);
        self.look_with(&mut watch, now)
    }

    fn look_with(&self, watch: &mut FileWatch, now: Micros) -> TlsLook {
        let found = versions(&self.source, self.callers.as_ref());
        if found != watch.seen {
            watch.seen = found;
            return TlsLook::Same;
        }
        if found == watch.loaded && self.state.lock().trouble.is_none() {
            return TlsLook::Same;
        }
        let files = read_files(&self.source, self.callers.as_ref());
        let used = files.map_err(|why| why.to_string()).and_then(|files| self.take(files, now));
        match used {
            Ok(()) => {
                watch.loaded = found;
                TlsLook::Reloaded
            }
            Err(why) => {
                let known = self.state.lock().trouble.replace(why.clone());
                if known.as_ref() == Some(&why) { TlsLook::Same } else { TlsLook::Refused(why) }
            }
        }
    }

    /// Uses the contents of files. Returns why it does not.
    fn take(&self, files: TlsFiles, now: Micros) -> Result<(), String> {
        let mut state = self.state.lock();
        let last = self.served.load_full();
        let TlsFiles { pair, callers } = files;
        let refused = match (&pair, &last.certificate) {
            (Some((_, new)), Some(last)) => new.worse_than(last, now),
            (_, None) | (None, _) => None,
        };
        let pair = if refused.is_some() { None } else { pair };
        // Authorities of callers are used in any case. Without them all would stay as it is.
        if refused.is_none() || self.callers.is_some() {
            let served = ServedTls::new(pair.or_else(|| last.pair()), callers);
            self.served.store(Arc::new(served.map_err(|why| why.to_string())?));
        }
        if let Some(why) = refused {
            return Err(why);
        }
        state.trouble = None;
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
            self.state.lock().trouble = trouble;
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

/// Returns the versions of all files.
fn versions(
    source: &CertificateSource,
    callers: Option<&CallerCertificates>,
) -> Vec<Option<FileVersion>> {
    let own: [Option<&Path>; 2] = match source {
        CertificateSource::Files { cert, key } => [Some(cert), Some(key)],
        CertificateSource::Acme(_) => [None, None],
    };
    let of_callers = callers.map(|one| one.ca.as_path());
    let revoked = callers.and_then(|one| one.crl.as_deref());
    let all = own.into_iter().chain([of_callers, revoked]);
    all.map(|path| path.and_then(FileVersion::of)).collect()
}

/// Reads all files.
fn read_files(
    source: &CertificateSource,
    callers: Option<&CallerCertificates>,
) -> Result<TlsFiles, FieldError> {
    let pair = match source {
        CertificateSource::Files { cert, key } => Some(tls_files::certificate_files(cert, key)?),
        CertificateSource::Acme(_) => None,
    };
    Ok(TlsFiles { pair, callers: callers.map(tls_files::caller_verifier).transpose()? })
}

#[cfg(test)]
mod tests;
