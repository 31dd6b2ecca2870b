//! Certificates of files: read again, mismatched, of callers, revoked.

use super::*;
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConnection};
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicU32, Ordering};

struct TestFolder(PathBuf);

impl TestFolder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("portunus-tls-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// Writes a pair of `gateway.test`, and returns its certificate.
    fn write_pair(&self, at: &str) -> String {
        let (cert, key) = pair();
        fs::create_dir_all(self.path(at)).unwrap();
        self.write(&format!("{at}/cert.pem"), &cert);
        self.write(&format!("{at}/key.pem"), key);
        cert
    }

    fn tls(&self) -> RawTls {
        let (cert, key) = (self.path("cert.pem"), self.path("key.pem"));
        RawTls { cert: Some(cert), key: Some(key), ..RawTls::default() }
    }

    fn load(&self, raw: RawTls) -> ListenerTls {
        ListenerTls::check(Some(raw), None).unwrap().unwrap()
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn pair() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["gateway.test".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// Looks often enough for a change to be used.
fn looks(tls: &ListenerTls) -> Vec<TlsLook> {
    (0..4).flat_map(|_| tls.look(now())).collect()
}

fn served(tls: &ListenerTls) -> Vec<u8> {
    let key = tls.served.load().key.clone().unwrap();
    key.end_entity_cert().unwrap().to_vec()
}

fn der(pem: &str) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

#[test]
fn changed_files_are_used_once_they_rest() {
    let folder = TestFolder::new();
    let first = folder.write_pair(".");
    let tls = folder.load(folder.tls());
    assert_eq!((served(&tls), looks(&tls)), (der(&first), vec![]));
    let second = folder.write_pair(".");
    assert_eq!(tls.look(now()), [], "they may still be written");
    assert_eq!(looks(&tls), [TlsLook::Reloaded]);
    assert_eq!(served(&tls), der(&second));
    assert!(tls.certificate().unwrap().validity.is_some());
}

#[test]
fn a_link_that_is_exchanged_brings_both_files() {
    let folder = TestFolder::new();
    folder.write_pair("..1");
    let second = folder.write_pair("..2");
    symlink("..1", folder.path("..data")).unwrap();
    symlink("..data/cert.pem", folder.path("cert.pem")).unwrap();
    symlink("..data/key.pem", folder.path("key.pem")).unwrap();
    let tls = folder.load(folder.tls());
    symlink("..2", folder.path("..tmp")).unwrap();
    fs::rename(folder.path("..tmp"), folder.path("..data")).unwrap();
    assert_eq!(looks(&tls), [TlsLook::Reloaded]);
    assert_eq!(served(&tls), der(&second));
}

#[test]
fn files_that_cannot_be_used_change_nothing_and_are_told_once() {
    let folder = TestFolder::new();
    let first = folder.write_pair(".");
    let key = fs::read(folder.path("key.pem")).unwrap();
    let tls = folder.load(folder.tls());
    let refused = |told: Vec<TlsLook>, word: &str| match told.as_slice() {
        [TlsLook::Refused(why)] => {
            assert!(why.contains(word), "{why}");
            assert_eq!(tls.trouble().as_ref(), Some(why));
            assert_eq!(served(&tls), der(&first));
        }
        other => panic!("{word}: {other:?}"),
    };
    let (other, other_key) = pair();
    folder.write("cert.pem", &other);
    refused(looks(&tls), "do not match");
    folder.write("cert.pem", other.get(..other.len() / 2).unwrap());
    refused(looks(&tls), "server.tls.cert");
    folder.write("cert.pem", vec![b'a'; 10 << 20]);
    refused(looks(&tls), "larger than");
    folder.write("cert.pem", first.repeat(30));
    refused(looks(&tls), "more than 20");
    folder.write("cert.pem", &first);
    fs::remove_file(folder.path("key.pem")).unwrap();
    refused(looks(&tls), "server.tls.key");
    fs::create_dir(folder.path("key.pem")).unwrap();
    refused(looks(&tls), "server.tls.key");
    fs::remove_dir(folder.path("key.pem")).unwrap();
    folder.write("key.pem", "");
    refused(looks(&tls), "server.tls.key");
    folder.write("key.pem", key);
    assert_eq!(looks(&tls), [TlsLook::Reloaded]);
    assert_eq!(tls.trouble(), None);
    folder.write("cert.pem", &other);
    folder.write("key.pem", other_key);
    assert_eq!(looks(&tls), [TlsLook::Reloaded]);
    assert_eq!(served(&tls), der(&other));
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
    params
}

/// An authority of callers, with the means to issue.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let params = authority_params("root");
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn issue(&self, serial: u64) -> CallerPair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["caller.test".to_owned()]).unwrap();
        params.serial_number = Some(serial.into());
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        CallerPair { chain: vec![cert.der().clone()], key }
    }

    /// Returns an authority that this one has issued.
    fn issue_authority(&self, serial: u64) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = authority_params("between");
        params.serial_number = Some(serial.into());
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Returns a list in which one certificate is revoked.
    fn revoke(&self, serial: u64) -> String {
        self.revoke_on(1, serial)
    }

    fn revoke_on(&self, day: u8, serial: u64) -> String {
        let now = rcgen::date_time_ymd(2026, 1, day);
        let revoked = rcgen::RevokedCertParams {
            serial_number: serial.into(),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        };
        let list = rcgen::CertificateRevocationListParams {
            this_update: now,
            next_update: rcgen::date_time_ymd(2126, 1, 1),
            crl_number: 1_u64.into(),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

struct CallerPair {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

fn client_config(
    trusted: &str,
    caller: Option<&CallerPair>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    match caller {
        None => builder.with_no_client_auth(),
        Some(CallerPair { chain, key }) => {
            builder.with_client_auth_cert(chain.clone(), key.clone_key()).unwrap()
        }
    }
}

/// Shakes hands in memory. Returns true if both sides agree.
fn shakes_hands(tls: &ListenerTls, trusted: &str, caller: Option<&CallerPair>) -> bool {
    let config = Arc::new(client_config(trusted, caller, rustls::ALL_VERSIONS));
    let ends = handshake(tls, &config);
    ends.is_some_and(|(client, server)| !client.is_handshaking() && !server.is_handshaking())
}

/// Shakes hands in memory. Returns both ends, unless one of them refuses.
fn handshake(
    tls: &ListenerTls,
    config: &Arc<ClientConfig>,
) -> Option<(ClientConnection, ServerConnection)> {
    let name = ServerName::try_from("gateway.test").unwrap();
    let mut client = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut server = ServerConnection::new(tls.server_config()).unwrap();
    for _ in 0..10 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut bytes = bytes.as_slice();
        while !bytes.is_empty() {
            server.read_tls(&mut bytes).unwrap();
            server.process_new_packets().ok()?;
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut bytes = bytes.as_slice();
        while !bytes.is_empty() {
            client.read_tls(&mut bytes).unwrap();
            client.process_new_packets().ok()?;
        }
    }
    Some((client, server))
}

#[test]
fn callers_need_a_certificate_where_it_is_required() {
    let folder = TestFolder::new();
    let own = folder.write_pair(".");
    let (ours, theirs) = (Authority::new(), Authority::new());
    let ca = folder.write("ca.pem", &ours.pem);
    let (good, foreign) = (ours.issue(7), theirs.issue(7));
    let load = |word: Option<&str>| {
        let client_certificates = word.map(str::to_owned);
        folder.load(RawTls { client_ca: Some(ca.clone()), client_certificates, ..folder.tls() })
    };
    for (word, without) in [(None, false), (Some("required"), false), (Some("optional"), true)] {
        let tls = load(word);
        assert!(shakes_hands(&tls, &own, Some(&good)), "{word:?}");
        assert!(!shakes_hands(&tls, &own, Some(&foreign)), "{word:?}");
        assert_eq!(shakes_hands(&tls, &own, None), without, "{word:?}");
    }
    assert!(shakes_hands(&load(Some("off")), &own, None));
    // The authorities are watched too.
    let tls = load(Some("required"));
    folder.write("ca.pem", &theirs.pem);
    assert_eq!(looks(&tls), [TlsLook::Reloaded]);
    assert!(!shakes_hands(&tls, &own, Some(&good)));
    assert!(shakes_hands(&tls, &own, Some(&foreign)));
    folder.write("ca.pem", "");
    assert!(matches!(looks(&tls).as_slice(), [TlsLook::Refused(why)] if why.contains("client_ca")));
    assert!(!shakes_hands(&tls, &own, None), "callers are not let in without authorities");
}

#[test]
fn a_broken_pair_does_not_keep_a_new_list_from_being_used() {
    let folder = TestFolder::new();
    let own = folder.write_pair(".");
    let ours = Authority::new();
    let (first, second) = (ours.issue(1), ours.issue(2));
    let client_ca = Some(folder.write("ca.pem", &ours.pem));
    let client_crl = Some(folder.write("crl.pem", ours.revoke(1)));
    let tls = folder.load(RawTls { client_ca, client_crl, ..folder.tls() });
    let key = fs::read(folder.path("key.pem")).unwrap();
    folder.write("key.pem", "");
    assert!(matches!(looks(&tls).as_slice(), [TlsLook::Refused(why)] if why.contains("tls.key")));
    folder.write("crl.pem", ours.revoke(2));
    assert_eq!(looks(&tls), [TlsLook::Reloaded], "told once, although the key is still broken");
    assert!(shakes_hands(&tls, &own, Some(&first)));
    assert!(!shakes_hands(&tls, &own, Some(&second)));
    assert!(tls.trouble().unwrap().contains("tls.key"));

    // The other way round.
    folder.write("crl.pem", "");
    assert!(
        matches!(looks(&tls).as_slice(), [TlsLook::Refused(why)] if why.contains("client_crl"))
    );
    let both = tls.trouble().unwrap();
    assert!(both.contains("tls.key") && both.contains("client_crl"), "{both}");
    let renewed = folder.write_pair(".");
    assert_eq!(looks(&tls), [TlsLook::Reloaded]);
    assert_eq!(served(&tls), der(&renewed));
    assert!(!shakes_hands(&tls, &renewed, Some(&second)), "the list before stays in use");
    assert!(tls.trouble().unwrap().contains("client_crl"));
    folder.write("crl.pem", ours.revoke(1));
    folder.write("cert.pem", &own);
    folder.write("key.pem", key);
    assert_eq!(looks(&tls), [TlsLook::Reloaded, TlsLook::Reloaded]);
    assert_eq!((served(&tls), tls.trouble()), (der(&own), None));
}

#[test]
fn revoked_certificates_of_callers_are_refused() {
    let folder = TestFolder::new();
    let own = folder.write_pair(".");
    let ours = Authority::new();
    let (first, second) = (ours.issue(1), ours.issue(2));
    let client_ca = Some(folder.write("ca.pem", &ours.pem));
    let client_crl = Some(folder.write("crl.pem", ours.revoke(1)));
    let tls = folder.load(RawTls { client_ca, client_crl, ..folder.tls() });
    assert!(!shakes_hands(&tls, &own, Some(&first)));
    assert!(shakes_hands(&tls, &own, Some(&second)));
    folder.write("crl.pem", ours.revoke(2));
    assert_eq!(looks(&tls), [TlsLook::Reloaded]);
    assert!(shakes_hands(&tls, &own, Some(&first)));
    assert!(!shakes_hands(&tls, &own, Some(&second)));
}

#[test]
fn wrong_settings_name_their_field() {
    let folder = TestFolder::new();
    folder.write_pair(".");
    let some = || Some(folder.path("ca.pem"));
    let word = |text: &str| Some(text.to_owned());
    for (raw, field) in [
        (RawTls::default(), "server.tls"),
        (RawTls { key: None, ..folder.tls() }, "server.tls.key"),
        (RawTls { cert: None, ..folder.tls() }, "server.tls.cert"),
        (RawTls { client_ca: some(), ..folder.tls() }, "server.tls.client_ca"),
        (RawTls { client_crl: some(), ..folder.tls() }, "server.tls.client_crl"),
        (RawTls { client_certificates: word("required"), ..folder.tls() }, "server.tls.client_ca"),
        (
            RawTls { client_certificates: word("maybe"), ..folder.tls() },
            "server.tls.client_certificates",
        ),
    ] {
        let refused = ListenerTls::check(Some(raw), None).unwrap_err();
        assert_eq!(refused.field, field, "{refused}");
    }
    assert!(ListenerTls::check(None, None).unwrap().is_none());
}

fn now() -> Micros {
    Micros::new(jiff::Timestamp::now().as_microsecond())
}

/// Writes a pair that is valid for these years.
fn write_pair_of(folder: &TestFolder, begin: i32, end: i32) -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["gateway.test".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(begin, 1, 1);
    params.not_after = rcgen::date_time_ymd(end, 1, 1);
    let cert = params.self_signed(&key).unwrap().pem();
    folder.write("cert.pem", &cert);
    folder.write("key.pem", key.serialize_pem());
    cert
}

#[test]
fn a_pair_that_is_not_valid_does_not_take_the_place_of_a_good_one() {
    let folder = TestFolder::new();
    let good = folder.write_pair(".");
    let tls = Arc::new(folder.load(folder.tls()));
    for (begin, end, word) in [(2000, 2001, "not valid after"), (2100, 2101, "not valid before")] {
        write_pair_of(&folder, begin, end);
        let told = looks(&tls);
        assert!(
            matches!(told.as_slice(), [TlsLook::Refused(why)] if why.contains(word)),
            "{told:?}"
        );
        assert_eq!(served(&tls), der(&good));
        // A reload of the configuration reads the files too.
        let reloaded = folder.load(folder.tls());
        reloaded.adopt(&tls, now());
        assert_eq!(served(&reloaded), der(&good));
        assert!(reloaded.trouble().unwrap().contains(word));
        assert_eq!(looks(&reloaded), [], "it is told already");
        assert_eq!(served(&reloaded), der(&good));
        // At the start there is no better one, and a later one may take its place.
        let started = folder.load(folder.tls());
        assert!(!started.certificate().unwrap().is_valid(now()));
        let expired = write_pair_of(&folder, 1999, 2000);
        assert_eq!(looks(&started), [TlsLook::Reloaded]);
        assert_eq!(served(&started), der(&expired));
    }
    let second = folder.write_pair(".");
    assert_eq!(looks(&tls), [TlsLook::Reloaded]);
    assert_eq!((served(&tls), tls.trouble()), (der(&second), None));
}

#[test]
fn the_end_of_an_issuer_does_not_count() {
    let (own, key) = pair();
    let issuer_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["ca.test".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let issuer = params.self_signed(&issuer_key).unwrap().pem();
    let names = ["gateway.test".to_owned()];
    let (_, alone) = tls_files::certified_key(&own, &key, &names).unwrap();
    let chain = format!("{own}{issuer}");
    assert_eq!(tls_files::certified_key(&chain, &key, &names).unwrap().1, alone);
}

#[test]
fn a_named_pipe_is_refused_and_not_opened() {
    let folder = TestFolder::new();
    let first = folder.write_pair(".");
    let tls = folder.load(folder.tls());
    fs::remove_file(folder.path("cert.pem")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(folder.path("cert.pem")).status();
    assert!(made.unwrap().success());
    let told = looks(&tls);
    assert!(
        matches!(told.as_slice(), [TlsLook::Refused(why)] if why.contains("no regular file")),
        "{told:?}"
    );
    assert_eq!(served(&tls), der(&first));
    let refused = ListenerTls::check(Some(folder.tls()), None).unwrap_err();
    assert!(refused.reason.contains("no regular file"), "{refused}");
}

#[test]
fn a_look_that_hangs_delays_nobody_and_is_a_trouble() {
    let folder = TestFolder::new();
    folder.write_pair(".");
    let tls = folder.load(folder.tls());
    // The state of a look that waits for a disk.
    let _watch = tls.watch.lock();
    tls.state.lock().look_begun = Some(Instant::now());
    assert_eq!((tls.trouble(), tls.is_looking()), (None, true));
    assert_eq!(tls.look(now()), [], "a second one does not wait");
    let (key, certificate) = tls.served.load().pair().unwrap();
    tls.install(key, certificate).unwrap();
    tls.state.lock().look_begun = Instant::now().checked_sub(MAX_LOOK_TIME * 2);
    assert!(tls.trouble().unwrap().contains("has not answered"));
    drop(RunningLook(&tls.state));
    assert_eq!((tls.trouble(), tls.is_looking()), (None, false));
}

#[test]
fn sessions_of_callers_with_certificates_are_not_resumed() {
    let folder = TestFolder::new();
    let own = folder.write_pair(".");
    let ours = Authority::new();
    let client_ca = Some(folder.write("ca.pem", &ours.pem));
    let caller = ours.issue(1);
    let with_callers = RawTls { client_ca, ..folder.tls() };
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        for (raw, is_resumed) in [(folder.tls(), true), (with_callers.clone(), false)] {
            let tls = folder.load(raw);
            let config = Arc::new(client_config(&own, Some(&caller), &[version]));
            let mut kinds = Vec::new();
            for _ in 0..2 {
                let (client, _) = handshake(&tls, &config).unwrap();
                kinds.push(client.handshake_kind().unwrap());
            }
            let second = if is_resumed { HandshakeKind::Resumed } else { HandshakeKind::Full };
            assert_eq!(kinds, [HandshakeKind::Full, second], "{version:?}");
        }
    }
}

#[test]
fn callers_of_a_revoked_issuer_are_refused() {
    let folder = TestFolder::new();
    let own = folder.write_pair(".");
    let root = Authority::new();
    let between = root.issue_authority(77);
    let mut caller = between.issue(1);
    caller.chain.push(CertificateDer::from_pem_slice(between.pem.as_bytes()).unwrap());
    let client_ca = Some(folder.write("ca.pem", &root.pem));
    let client_crl = Some(folder.write("crl.pem", root.revoke(78)));
    let tls = folder.load(RawTls { client_ca, client_crl, ..folder.tls() });
    assert!(shakes_hands(&tls, &own, Some(&caller)), "an issuer without a list revokes nothing");
    folder.write("crl.pem", root.revoke(77));
    assert_eq!(looks(&tls), [TlsLook::Reloaded]);
    assert!(!shakes_hands(&tls, &own, Some(&caller)));
}

#[test]
fn of_two_lists_of_an_issuer_the_later_one_counts() {
    let folder = TestFolder::new();
    let own = folder.write_pair(".");
    let ours = Authority::new();
    let (first, second) = (ours.issue(1), ours.issue(2));
    let client_ca = Some(folder.write("ca.pem", &ours.pem));
    let (old, new) = (ours.revoke_on(1, 1), ours.revoke_on(2, 2));
    for lists in [format!("{old}{new}"), format!("{new}{old}")] {
        let client_crl = Some(folder.write("crl.pem", lists));
        let client_ca = client_ca.clone();
        let tls = folder.load(RawTls { client_ca, client_crl, ..folder.tls() });
        assert!(shakes_hands(&tls, &own, Some(&first)));
        assert!(!shakes_hands(&tls, &own, Some(&second)));
    }
}

#[test]
fn a_list_of_another_key_leaves_the_one_before_in_use() {
    let folder = TestFolder::new();
    let own = folder.write_pair(".");
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (first, second) = (ours.issue(1), ours.issue(2));
    let client_ca = Some(folder.write("ca.pem", &ours.pem));
    let client_crl = Some(folder.write("crl.pem", ours.revoke(1)));
    let tls = folder.load(RawTls { client_ca, client_crl, ..folder.tls() });
    folder.write("crl.pem", theirs.revoke(2));
    assert!(
        matches!(looks(&tls).as_slice(), [TlsLook::Refused(why)] if why.contains("another key"))
    );
    assert!(!shakes_hands(&tls, &own, Some(&first)));
    assert!(shakes_hands(&tls, &own, Some(&second)), "callers are not locked out");
}
