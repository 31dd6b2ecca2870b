//! Errors of identity providers as the log has them. A provider may repeat what it was sent, in any encoding, so
//! its words are shown without everything that looks like a secret.

use std::error::Error;

use crate::IdentityProvider;
use crate::host::HostError;

/// Longest run of letters and digits that is shown. Words are shorter, and secrets in hexadecimal, base32 or base64
/// are longer.
const MAX_RUN_CHARS: usize = 16;
/// Rounds of decoding. Escapes may be escaped again.
const MAX_ROUNDS: usize = 4;
/// Longest text that is decoded.
const MAX_TEXT_CHARS: usize = 4_000;

/// Entities of HTML that errors have.
const ENTITIES: [(&str, char); 6] =
    [("amp", '&'), ("lt", '<'), ("gt", '>'), ("quot", '"'), ("apos", '\''), ("nbsp", ' ')];

/// Logs an error of a request that carried secrets.
pub(crate) fn log_provider_error(
    provider: &IdentityProvider,
    error: &(dyn Error + 'static),
    secrets: &[&str],
) {
    let why = shown_error(error, &[secrets, &[provider.client_secret.as_str()]].concat());
    log(provider, &why);
}

/// Logs an error of the discovery, a request without secrets. Its text may have addresses: often the issuer is
/// misspelt.
pub(crate) fn log_discovery_error(provider: &IdentityProvider, error: &(dyn Error + 'static)) {
    log(provider, &hide(&text_of(error), &[provider.client_secret.as_str()]));
}

fn log(provider: &IdentityProvider, why: &str) {
    tracing::error!(
        identity = provider.name,
        "cannot reach the identity provider `{}`: {why}",
        provider.name
    );
}

/// Returns an error without the secrets of its request.
pub(crate) fn shown_error(error: &(dyn Error + 'static), secrets: &[&str]) -> String {
    let shown = hide(&text_of(error), secrets);
    // Words of this gateway about the network name hosts, which the operator has to know.
    let is_own = error.source().is_some_and(<dyn Error>::is::<HostError>);
    if is_own { shown } else { canon::scrub_for_log(&shown) }
}

fn text_of(error: &dyn Error) -> String {
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    let text = format!("{error} {cause}");
    text.trim_end().chars().take(MAX_TEXT_CHARS).collect()
}

/// Returns a text without secrets, their reversals, and long runs of letters and digits.
fn hide(text: &str, secrets: &[&str]) -> String {
    let reversed: Vec<String> =
        secrets.iter().map(|secret| secret.chars().rev().collect()).collect();
    let mut forms: Vec<String> = Vec::new();
    for secret in secrets.iter().copied().chain(reversed.iter().map(String::as_str)) {
        forms.extend([secret.to_owned(), secret.to_lowercase(), secret.to_uppercase()]);
    }
    let forms: Vec<&str> = forms.iter().map(String::as_str).collect();
    let text = upstream::hide_sent(&decoded(&upstream::hide_sent(text, &forms)), &forms);
    without_long_runs(&text)
}

/// Returns a text without escapes of JSON, URLs and HTML, on one line.
fn decoded(text: &str) -> String {
    let mut text = text.to_owned();
    for _ in 0..MAX_ROUNDS {
        let next = decoded_once(&text);
        if next == text {
            break;
        }
        text = next;
    }
    text.chars().map(|c| if is_plain(c) { c } else { ' ' }).collect()
}

/// Returns false for controls, and for marks that change the direction of a text or have no width.
fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn decoded_once(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let behind = rest.get(first.len_utf8()..).unwrap_or_default();
        let found = match first {
            '\\' => json_escape(behind),
            '%' => hex_digits(behind, 2),
            '&' => entity(behind),
            _ => None,
        };
        let (c, after) = found.unwrap_or((first, behind));
        out.push(c);
        rest = after;
    }
    out
}

/// Reads an escape behind its backslash.
fn json_escape(text: &str) -> Option<(char, &str)> {
    let (kind, behind) = text.split_at_checked(1)?;
    match kind {
        "u" | "U" => hex_digits(behind.strip_prefix('{').unwrap_or(behind), 4)
            .map(|(c, after)| (c, after.strip_prefix('}').unwrap_or(after))),
        "x" => hex_digits(behind, 2),
        "/" | "\\" | "\"" | "'" => Some((kind.chars().next()?, behind)),
        _ => None,
    }
}

/// Reads a character of ASCII in so many hexadecimal digits.
fn hex_digits(text: &str, count: usize) -> Option<(char, &str)> {
    let (digits, behind) = text.split_at_checked(count)?;
    let code = u32::from_str_radix(digits, 16).ok()?;
    Some((char::from_u32(code).filter(char::is_ascii)?, behind))
}

/// Reads an entity behind its `&`.
fn entity(text: &str) -> Option<(char, &str)> {
    let (name, behind) = text.split_once(';')?;
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16).ok()?,
            None => number.parse().ok()?,
        };
        return Some((char::from_u32(code)?, behind));
    }
    let (_, c) = ENTITIES.iter().find(|(known, _)| *known == name)?;
    Some((*c, behind))
}

fn without_long_runs(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        let (run, behind) = rest.split_at(end);
        out.push_str(if run.chars().count() > MAX_RUN_CHARS { canon::HIDDEN } else { run });
        let end = behind.find(char::is_alphanumeric).unwrap_or(behind.len());
        let (marks, behind) = behind.split_at(end);
        out.push_str(marks);
        rest = behind;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    const SECRETS: [&str; 2] = ["the-client-secret", "Xq7_fR2-mZ9.kT4~wB"];

    fn shown(text: &str) -> String {
        shown_error(&std::io::Error::other(text.to_owned()), &SECRETS)
    }

    #[test]
    fn a_logged_error_has_no_secret_of_the_request() {
        let why = "invalid_client: Basic aWQ6dGhlLWNsaWVudC1zZWNyZXQ=, code=the%2Dcode%2Dof%2Done";
        let secrets = ["the-client-secret", "the-code-of-one"];
        let shown = shown_error(&std::io::Error::other(why), &secrets);
        assert!(shown.starts_with("invalid_client: Basic aWQ6"), "{shown}");
        assert!(shown.contains("code=[hidden]"), "{shown}");
        assert!(!shown.contains("dGhlLWNsaWVudC1zZWNyZXQ"), "{shown}");
    }

    #[test]
    fn secrets_are_hidden_in_each_encoding() {
        for secret in SECRETS {
            let each = |write: &dyn Fn(&mut String, char)| {
                let mut text = String::new();
                secret.chars().for_each(|c| write(&mut text, c));
                text
            };
            let forms = [
                secret.to_owned(),
                secret.to_uppercase(),
                secret.chars().rev().collect(),
                each(&|text, c| write!(text, "{:02x}", c as u32).unwrap()),
                each(&|text, c| write!(text, "{:02X}", c as u32).unwrap()),
                each(&|text, c| write!(text, "\\u{:04x}", c as u32).unwrap()),
                each(&|text, c| write!(text, "\\\\u{:04X}", c as u32).unwrap()),
                each(&|text, c| write!(text, "\\x{:02x}", c as u32).unwrap()),
                each(&|text, c| write!(text, "%{:02x}", c as u32).unwrap()),
                each(&|text, c| write!(text, "%25{:02x}", c as u32).unwrap()),
                each(&|text, c| write!(text, "&#{};", c as u32).unwrap()),
                each(&|text, c| write!(text, "&#x{:x};", c as u32).unwrap()),
                each(&|text, c| write!(text, "&amp;#{};", c as u32).unwrap()),
                each(&|text, c| write!(text, "{c}\u{200b}").unwrap()).replace('\u{200b}', ""),
            ];
            for form in forms {
                let shown = shown(&format!("invalid_client: the secret {form} is wrong"));
                assert_eq!(shown, "invalid_client: the secret [hidden] is wrong", "{form}");
            }
        }
        // RFC 4648, section 6.
        let shown = shown("invalid_client: ORUGKLLDNRUWK3TUFVZWKY3SMV2A==== is wrong");
        assert_eq!(shown, "invalid_client: [hidden]==== is wrong");
    }

    #[test]
    fn explanations_stay() {
        for text in [
            "Server returned error response: unsupported_grant_type: AADSTS7000215: Invalid client secret provided.",
            "Failed to parse server response missing field `access_token` at line 1 column 20",
        ] {
            assert_eq!(shown(text), text);
        }
        let own = Wrapped(HostError("no route to id.inner.example.internal".to_owned()));
        assert_eq!(
            shown_error(&own, &SECRETS),
            "Request failed no route to id.inner.example.internal"
        );
    }

    #[derive(Debug)]
    struct Wrapped(HostError);

    impl std::fmt::Display for Wrapped {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Request failed")
        }
    }

    impl Error for Wrapped {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }
}
