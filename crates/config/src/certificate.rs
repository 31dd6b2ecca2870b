//! Validity of the listener's certificate.

use canon::Micros;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rustls::pki_types::CertificateDer;

/// Tags of DER (<https://www.itu.int/rec/T-REC-X.690>): a sequence, two kinds of time, and the version
/// of a certificate.
pub(crate) const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;

/// Certificate of the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerCertificate {
    /// Its origin, as a sentence names it: `in FILE`, `of DOMAIN`.
    pub origin: String,
    /// The time of its validity; `None` if it cannot be read.
    pub validity: Option<CertificateValidity>,
}

/// Time in which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateValidity {
    /// Its begin.
    pub begins: Micros,
    /// Its end.
    pub ends: Micros,
}

impl CertificateValidity {
    /// Reads the validity of the certificate itself. The end of an issuer in the chain does not count,
    /// because a renewal would not change it.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        validity(certificate)
    }

    /// Returns true within the validity.
    pub fn contains(&self, now: Micros) -> bool {
        self.begins <= now && now < self.ends
    }
}

impl ListenerCertificate {
    /// Returns true if the certificate is valid at this time, as far as that is known.
    pub fn is_valid(&self, now: Micros) -> bool {
        self.validity.is_none_or(|validity| validity.contains(now))
    }

    /// Returns the reason why the certificate must not take the place of this one: it is not valid yet or
    /// any more, and this one is.
    pub(super) fn worse_than(&self, other: &Self, now: Micros) -> Option<String> {
        let validity = self.validity.filter(|_| !self.is_valid(now) && other.is_valid(now))?;
        let (word, at) = if validity.begins > now {
            ("before", validity.begins)
        } else {
            ("after", validity.ends)
        };
        let at = Timestamp::from_microsecond(at.get()).map(|at| at.to_string());
        let at = at.unwrap_or_else(|_| "an unknown time".to_owned());
        Some(format!("the certificate {} is not valid {word} {at}", self.origin))
    }
}

/// Returns the validity of a certificate (<https://www.rfc-editor.org/rfc/rfc5280#section-4.1>).
fn validity(certificate: &[u8]) -> Option<CertificateValidity> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut body, _) = element(certificate)?;
    let (tag, _, behind) = element(body)?;
    if tag == VERSION {
        body = behind;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        body = element(body)?.2;
    }
    let (tag, validity, _) = element(body)?;
    if tag != SEQUENCE {
        return None;
    }
    let (tag, begins, behind) = element(validity)?;
    let begins = time(tag, begins)?;
    let (tag, ends, _) = element(behind)?;
    Some(CertificateValidity { begins, ends: time(tag, ends)? })
}

/// Reads a time of DER.
pub(crate) fn time(tag: u8, text: &[u8]) -> Option<Micros> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let year: i16 = text.get(..2)?.parse().ok()?;
            (if year < 50 { 2_000 + year } else { 1_900 + year }, text.get(2..)?)
        }
        GENERALIZED_TIME => (text.get(..4)?.parse().ok()?, text.get(4..)?),
        _ => return None,
    };
    let part = |at: usize| -> Option<i8> { rest.get(at..at + 2)?.parse().ok() };
    let time = DateTime::new(year, part(0)?, part(2)?, part(4)?, part(6)?, part(8)?, 0).ok()?;
    let time = time.to_zoned(TimeZone::UTC).ok()?;
    Some(Micros::new(time.timestamp().as_microsecond()))
}

/// Splits the first element off: its tag, its content and the rest.
pub(crate) fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, mut rest) = rest.split_first()?;
    let length = match first {
        0..0x80 => usize::from(*first),
        _ => {
            let count = usize::from(first & 0x7f);
            let (digits, behind) = rest.split_at_checked(count)?;
            rest = behind;
            if count > 4 {
                return None;
            }
            digits.iter().fold(0, |sum, digit| (sum << 8) | usize::from(*digit))
        }
    };
    let (content, behind) = rest.split_at_checked(length)?;
    Some((*tag, content, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag, 0x82, (content.len() >> 8) as u8, content.len() as u8];
        bytes.extend_from_slice(content);
        bytes
    }

    fn certificate(version: &[u8], tag: u8, ends: &str) -> Vec<u8> {
        let validity = [der(UTC_TIME, b"250101000000Z"), der(tag, ends.as_bytes())].concat();
        let parts = [
            version.to_vec(),
            der(2, &[1]),
            der(SEQUENCE, &[]),
            der(SEQUENCE, &[5; 300]),
            der(SEQUENCE, &validity),
        ];
        der(SEQUENCE, &der(SEQUENCE, &parts.concat()))
    }

    fn expiry(certificate: &[u8]) -> Option<Micros> {
        validity(certificate).map(|found| found.ends)
    }

    #[test]
    fn the_end_of_a_certificate_is_read() {
        let second = |time: Option<Micros>| time.map(Micros::as_secs);
        let version = der(VERSION, &der(2, &[2]));
        for version in [&version[..], &[]] {
            let utc = certificate(version, UTC_TIME, "270131235958Z");
            assert_eq!(second(expiry(&utc)), Some(1_801_439_998));
            let general = certificate(version, GENERALIZED_TIME, "20700131235958Z");
            assert_eq!(second(expiry(&general)), Some(3_158_438_398));
            let begins = validity(&general).map(|found| found.begins);
            assert_eq!(second(begins), Some(1_735_689_600));
        }
    }

    #[test]
    fn a_broken_certificate_has_no_end() {
        let whole = certificate(&[], UTC_TIME, "270131235958Z");
        for end in 0..whole.len() {
            assert_eq!(expiry(&whole[..end]), None, "{end}");
        }
        for text in ["2701", "279931235958Z", "270131235958+0100", ""] {
            assert_eq!(expiry(&certificate(&[], UTC_TIME, text)), None, "{text}");
        }
        assert_eq!(expiry(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0]), None);
        assert_eq!(expiry(&[0x30, 0xff]), None);
    }
}
