//! Lists of revoked certificates (<https://www.rfc-editor.org/rfc/rfc5280#section-5>): their signatures, and the one
//! that counts of several of one issuer.
//!
//! rustls takes the first list of an issuer, and looks at its signature in a handshake only: a list of another key
//! with the same name would refuse every caller.

use std::collections::BTreeMap;

use canon::Micros;
use rustls::RootCertStore;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateRevocationListDer, TrustAnchor};

use crate::certificate::{SEQUENCE, element, time};

/// Tags of DER: an integer, bits, bytes, an object identifier, and the extensions of a list.
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const EXTENSIONS: u8 = 0xa0;

/// Object identifiers of the number of a list (2.5.29.20) and of its scope, the issuing distribution point (2.5.29.28).
const CRL_NUMBER: [u8; 3] = [0x55, 0x1d, 0x14];
const DISTRIBUTION_POINT: [u8; 3] = [0x55, 0x1d, 0x1c];

/// A list in a file.
type ListDer = CertificateRevocationListDer<'static>;

/// Parts of a list that decide whether it counts.
struct RevocationList<'a> {
    /// Signed bytes.
    signed: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
    issuer: &'a [u8],
    /// Distribution point. Lists for parts of an issuer's certificates exist beside each other.
    scope: &'a [u8],
    age: ListAge<'a>,
}

/// Time and number of a list. A later list of the same issuer and scope has higher ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ListAge<'a> {
    this_update: Micros,
    number_length: usize,
    number: &'a [u8],
}

/// A list that counts so far.
struct CurrentList<'a> {
    index: usize,
    age: ListAge<'a>,
    /// Public key that signed it; `None` if its issuer is not among the authorities.
    signer: Option<&'a [u8]>,
}

/// Returns the latest list of each issuer and scope. Returns the reason if one of them cannot be used.
pub(crate) fn current_lists(
    lists: &[ListDer],
    authorities: &RootCertStore,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<Vec<ListDer>, String> {
    let mut current: BTreeMap<(&[u8], &[u8]), CurrentList<'_>> = BTreeMap::new();
    for (index, der) in lists.iter().enumerate() {
        let number = index + 1;
        let list = RevocationList::read(der);
        let list = list.ok_or_else(|| format!("list {number} of the file cannot be read"))?;
        let mut named = authorities.roots.iter().filter(|one| *one.subject == *list.issuer);
        let signer = if named.clone().next().is_none() {
            // The issuer may be an authority that callers send along. Handshakes check its signature.
            None
        } else {
            let signer = named.find(|authority| list.is_signed_by(authority, algorithms));
            let why = || {
                format!(
                    "list {number} of the file is signed by another key than that of its authority"
                )
            };
            Some(signer.ok_or_else(why)?.subject_public_key_info.as_ref())
        };
        let next = CurrentList { index, age: list.age, signer };
        let Some(known) = current.get_mut(&(list.issuer, list.scope)) else {
            current.insert((list.issuer, list.scope), next);
            continue;
        };
        let pair = format!("lists {} and {number} of the file", known.index + 1);
        if known.signer != next.signer {
            return Err(format!(
                "{pair} have one issuer and are signed by two keys; keep one of them"
            ));
        }
        if known.age == next.age && lists.get(known.index) != Some(der) {
            return Err(format!("{pair} have one issuer, number and time; keep one of them"));
        }
        if next.age > known.age {
            *known = next;
        }
    }
    let mut kept: Vec<usize> = current.values().map(|one| one.index).collect();
    kept.sort_unstable();
    for ((issuer, scope), list) in &current {
        if !scope.is_empty() && current.contains_key(&(*issuer, [].as_slice())) {
            let number = list.index + 1;
            return Err(format!(
                "list {number} of the file is for a part of an issuer's certificates, and another one for all of them; \
                 keep one of them"
            ));
        }
    }
    Ok(kept.into_iter().filter_map(|index| lists.get(index).cloned()).collect())
}

impl<'a> RevocationList<'a> {
    fn read(der: &'a [u8]) -> Option<Self> {
        let (whole, _) = content_of(SEQUENCE, der)?;
        let (body, behind) = content_of(SEQUENCE, whole)?;
        let signed = whole.get(..whole.len() - behind.len())?;
        let (algorithm, behind) = content_of(SEQUENCE, behind)?;
        let signature = bits(content_of(BIT_STRING, behind)?.0)?;

        let (tag, _, behind) = element(body)?;
        let body = if tag == INTEGER { behind } else { body };
        let (_, body) = content_of(SEQUENCE, body)?;
        let (issuer, body) = content_of(SEQUENCE, body)?;
        let (tag, this_update, mut body) = element(body)?;
        let this_update = time(tag, this_update)?;
        let (mut number, mut scope): (&[u8], &[u8]) = (&[], &[]);
        // The time of the next list and the revoked certificates are optional.
        while !body.is_empty() {
            let (tag, content, behind) = element(body)?;
            body = behind;
            if tag != EXTENSIONS {
                continue;
            }
            let (mut extensions, _) = content_of(SEQUENCE, content)?;
            while !extensions.is_empty() {
                let (extension, behind) = content_of(SEQUENCE, extensions)?;
                extensions = behind;
                let (id, extension) = content_of(OBJECT_ID, extension)?;
                let value = last_element(extension)?;
                if id == CRL_NUMBER {
                    number = without_zeros(content_of(INTEGER, value)?.0);
                } else if id == DISTRIBUTION_POINT {
                    scope = value;
                }
            }
        }
        let age = ListAge { this_update, number_length: number.len(), number };
        Some(Self { signed, algorithm, signature, issuer, scope, age })
    }

    /// Returns true if the key of an authority made the signature.
    fn is_signed_by(
        &self,
        authority: &TrustAnchor<'_>,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> bool {
        let key = content_of(SEQUENCE, &authority.subject_public_key_info);
        let parts =
            key.and_then(|(kind, rest)| Some((kind, bits(content_of(BIT_STRING, rest)?.0)?)));
        let Some((key_kind, key)) = parts else { return false };
        algorithms.all.iter().any(|one| {
            one.public_key_alg_id().as_ref() == key_kind
                && one.signature_alg_id().as_ref() == self.algorithm
                && one.verify_signature(key, self.signed, self.signature).is_ok()
        })
    }
}

/// Splits the first element off, if it has that tag: its content and the rest.
fn content_of(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(bytes)?;
    (found == tag).then_some((content, rest))
}

/// Returns the content of the bytes of an extension, behind the mark of a critical one.
fn last_element(extension: &[u8]) -> Option<&[u8]> {
    let (tag, content, rest) = element(extension)?;
    if tag == OCTET_STRING { Some(content) } else { Some(content_of(OCTET_STRING, rest)?.0) }
}

/// Returns the bytes of a bit string, of which no bit is unused.
fn bits(content: &[u8]) -> Option<&[u8]> {
    content.split_first().filter(|(unused, _)| **unused == 0).map(|(_, bytes)| bytes)
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, CertificateRevocationListParams, Issuer, KeyPair};

    /// An authority with the name `root` and a key of its own.
    struct Authority {
        der: rustls::pki_types::CertificateDer<'static>,
        issuer: Issuer<'static, KeyPair>,
    }

    impl Authority {
        fn new(key: KeyPair) -> Self {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(rcgen::DnType::CommonName, "root");
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            params.key_usages =
                vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
            let der = params.self_signed(&key).unwrap().der().clone();
            Self { der, issuer: Issuer::new(params, key) }
        }

        fn elliptic() -> Self {
            Self::new(KeyPair::generate().unwrap())
        }

        /// Returns a list of that day and number.
        fn list(&self, day: u8, number: u64, part: Option<&str>) -> ListDer {
            let point = part.map(|part| rcgen::CrlIssuingDistributionPoint {
                distribution_point: rcgen::CrlDistributionPoint { uris: vec![part.to_owned()] },
                scope: None,
            });
            let list = CertificateRevocationListParams {
                this_update: rcgen::date_time_ymd(2026, 1, day),
                next_update: rcgen::date_time_ymd(2126, 1, 1),
                crl_number: number.into(),
                issuing_distribution_point: point,
                revoked_certs: vec![rcgen::RevokedCertParams {
                    serial_number: u64::from(day).into(),
                    revocation_time: rcgen::date_time_ymd(2026, 1, day),
                    reason_code: None,
                    invalidity_date: None,
                }],
                key_identifier_method: rcgen::KeyIdMethod::Sha256,
            };
            list.signed_by(&self.issuer).unwrap().der().clone()
        }
    }

    fn current(lists: &[ListDer], authorities: &[&Authority]) -> Result<Vec<ListDer>, String> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority.der.clone()).unwrap();
        }
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        current_lists(lists, &roots, &provider.signature_verification_algorithms)
    }

    #[test]
    fn the_latest_list_of_an_issuer_counts() {
        let root = Authority::elliptic();
        let lists = [root.list(3, 9, None), root.list(5, 10, None), root.list(4, 11, None)];
        assert_eq!(current(&lists, &[&root]).unwrap(), [lists[1].clone()]);
        // Of two at one time the higher number, which is longer here.
        let lists = [root.list(3, 255, None), root.list(3, 256, None), root.list(3, 9, None)];
        assert_eq!(current(&lists, &[&root]).unwrap(), [lists[1].clone()]);
        let twice = [lists[0].clone(), lists[0].clone()];
        assert_eq!(current(&twice, &[&root]).unwrap(), [lists[0].clone()]);
    }

    #[test]
    fn lists_that_cannot_be_told_apart_are_refused() {
        let root = Authority::elliptic();
        let other = Authority::new(KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap());
        let (one, same_age) = (root.list(3, 1, None), root.list(3, 1, Some("http://a.test")));
        let why = current(&[one.clone(), same_age], &[&root]).unwrap_err();
        assert!(why.contains("for a part"), "{why}");
        let lists = [one, other.list(4, 2, None)];
        let why = current(&lists, &[&root, &other]).unwrap_err();
        assert!(why.contains("two keys"), "{why}");
    }

    #[test]
    fn lists_of_parts_count_beside_each_other() {
        let root = Authority::elliptic();
        let lists = [
            root.list(3, 1, Some("http://a.test/1")),
            root.list(3, 2, Some("http://a.test/2")),
            root.list(4, 3, Some("http://a.test/1")),
        ];
        assert_eq!(current(&lists, &[&root]).unwrap(), [lists[1].clone(), lists[2].clone()]);
    }

    #[test]
    fn a_list_of_another_key_with_the_same_name_is_refused() {
        let (root, other) = (Authority::elliptic(), Authority::elliptic());
        let lists = [other.list(3, 1, None)];
        let why = current(&lists, &[&root]).unwrap_err();
        assert!(why.contains("list 1") && why.contains("another key"), "{why}");
        assert_eq!(current(&lists, &[&root, &other]).unwrap(), lists);
        // A superseded list is looked at as well.
        let lists = [root.list(4, 2, None), other.list(3, 1, None)];
        assert!(current(&lists, &[&root]).is_err());
    }

    #[test]
    fn signatures_of_each_kind_of_key_are_checked() {
        for kind in [
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &rcgen::PKCS_ECDSA_P384_SHA384,
            &rcgen::PKCS_ED25519,
            &rcgen::PKCS_RSA_SHA256,
        ] {
            let root = Authority::new(KeyPair::generate_for(kind).unwrap());
            let lists = [root.list(3, 1, None)];
            assert_eq!(current(&lists, &[&root]).unwrap(), lists, "{kind:?}");
            let mut bytes = lists[0].to_vec();
            *bytes.last_mut().unwrap() ^= 1;
            assert!(current(&[bytes.into()], &[&root]).is_err(), "{kind:?}");
        }
    }

    #[test]
    fn a_broken_list_is_refused() {
        let root = Authority::elliptic();
        let whole = root.list(3, 1, Some("http://a.test"));
        for end in 0..whole.len() {
            assert!(current(&[whole[..end].to_vec().into()], &[&root]).is_err(), "{end}");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.to_vec();
            bytes[at] ^= 0xff;
            // Either the issuer is another one now, or the signature is wrong.
            if let Ok(lists) = current(&[bytes.clone().into()], &[&root]) {
                let list = RevocationList::read(&bytes).unwrap();
                assert!(lists.len() == 1 && *root_name(&root) != *list.issuer, "{at}");
            }
        }
    }

    fn root_name(root: &Authority) -> Vec<u8> {
        let mut roots = RootCertStore::empty();
        roots.add(root.der.clone()).unwrap();
        roots.roots[0].subject.to_vec()
    }
}
