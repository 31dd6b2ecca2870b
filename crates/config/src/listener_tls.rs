//! TLS of the listener: its certificate, and those that it asks callers for.
//!
//! Files are looked at by their paths every few seconds, as the configuration file is (`watch.rs`). New
//! connections use what was read last. A set of files that cannot be used changes nothing: the certificate
//! before stays, and [`ListenerTls::trouble`] tells why.

use arc_swap::ArcSwap;
use canon::Micros;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::acme::AcmeSettings;
use crate::certificate::ListenerCertificate;
use crate::error::FieldError;
use crate::file_version::FileVersion;
use crate::raw::RawTls;
use crate::tls_files::{self, CallerCertificates};

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

/// Versions of the watched files.
#[derive(Debug)]
struct FileWatch {
    /// Versions that are used.
    loaded: Vec<Option<FileVersion>>,
    /// Versions of the last look.
    seen: Vec<Option<FileVersion>>,
    /// Reason why the present files are not used.
    trouble: Option<String>,
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
    watch: Mutex<FileWatch>,
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
        let served = read_files(&source, callers.as_ref(), None)?;
        let watch = FileWatch { seen: loaded.clone(), loaded, trouble: None };
        Ok(Self {
            source,
            callers,
            served: ArcSwap::from_pointee(served),
            watch: Mutex::new(watch),
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
        self.watch.lock().trouble.clone()
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
    /// again each time, because the trouble may be one of the moment.
    pub fn look(&self) -> TlsLook {
        let mut watch = self.watch.lock();
        let found = versions(&self.source, self.callers.as_ref());
        if found != watch.seen {
            watch.seen = found;
            return TlsLook::Same;
        }
        if found == watch.loaded && watch.trouble.is_none() {
            return TlsLook::Same;
        }
        let last = self.served.load_full();
        match read_files(&self.source, self.callers.as_ref(), Some(&last)) {
            Ok(served) => {
                self.served.store(Arc::new(served));
                watch.loaded = found;
                watch.trouble = None;
                TlsLook::Reloaded
            }
            Err(why) => {
                let why = why.to_string();
                let is_known = watch.trouble.as_ref() == Some(&why);
                watch.trouble = Some(why.clone());
                if is_known { TlsLook::Same } else { TlsLook::Refused(why) }
            }
        }
    }

    /// Serves an issued certificate from now on.
    pub fn install(
        &self,
        key: Arc<CertifiedKey>,
        certificate: ListenerCertificate,
    ) -> Result<(), FieldError> {
        // Held, so that a look at the same time does not lose it.
        let _watch = self.watch.lock();
        let callers = self.served.load().callers.clone();
        let server = tls_files::server_config(Some(Arc::clone(&key)), callers.clone())?;
        let (server, certificate) = (Arc::new(server), Some(certificate));
        self.served.store(Arc::new(ServedTls { server, key: Some(key), certificate, callers }));
        Ok(())
    }

    /// Takes over the issued certificate of an earlier configuration.
    pub(crate) fn adopt(&self, earlier: &Arc<Self>) {
        if std::ptr::eq(self, Arc::as_ptr(earlier)) || self.acme().is_none() {
            return;
        }
        let served = earlier.served.load();
        if earlier.acme().is_none() || self.certificate().is_some() {
            return;
        }
        let (Some(key), Some(certificate)) = (&served.key, &served.certificate) else { return };
        // The certificate was served before, so that it can be served again.
        let _ = self.install(Arc::clone(key), certificate.clone());
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

/// Reads all files. An issued certificate is kept.
fn read_files(
    source: &CertificateSource,
    callers: Option<&CallerCertificates>,
    last: Option<&ServedTls>,
) -> Result<ServedTls, FieldError> {
    let (key, certificate) = match source {
        CertificateSource::Files { cert, key } => {
            let (key, certificate) = tls_files::certificate_files(cert, key)?;
            (Some(key), Some(certificate))
        }
        CertificateSource::Acme(_) => {
            last.map(|last| (last.key.clone(), last.certificate.clone())).unwrap_or_default()
        }
    };
    let callers = callers.map(tls_files::caller_verifier).transpose()?;
    let server = Arc::new(tls_files::server_config(key.clone(), callers.clone())?);
    Ok(ServedTls { server, key, certificate, callers })
}

#[cfg(test)]
mod tests;
