//! Removes what belongs to the operator from a provider's text: credentials, ids of accounts, and
//! addresses of the inner network. The rest of the text explains the error to the caller.

use serde_json::Value;
use std::net::IpAddr;

/// The text in place of a removed word.
pub const HIDDEN: &str = "[hidden]";

/// Maximum length of a provider's text.
const MAX_CHARS: usize = 400;

/// First characters of credentials and ids of accounts.
const PREFIXES: [&str; 22] = [
    "sk-", "sk_", "pk-", "pk_", "rk_", "xai-", "gsk_", "hf_", "nvapi-", "AIza", "ya29.", "ghp_",
    "gho_", "AKIA", "ASIA", "org-", "org_", "proj_", "proj-", "acct_", "arn:aws", "AQ.",
];

/// Last labels of names inside of a network, <https://www.iana.org/assignments/special-use-domain-names>.
const INNER_NAMES: [&str; 10] = [
    ".internal",
    ".local",
    ".lan",
    ".corp",
    ".intra",
    ".intranet",
    ".private",
    ".svc",
    ".home.arpa",
    "localhost",
];

/// Returns a provider's text without the operator's secrets, and not longer than is useful.
pub fn scrub(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        scrub_word(word, &mut out);
    }
    match out.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => out.get(..end).unwrap_or_default().to_owned() + "…",
        None => out,
    }
}

/// Returns a value that a provider reports about a call, without the operator's secrets. Other texts
/// stay as they are.
pub fn scrub_value(mut value: Value) -> Value {
    fn scrub_texts(value: &mut Value) {
        match value {
            Value::String(text) => {
                *text = Some(scrub(text))
                    .filter(|clean| clean.contains(HIDDEN))
                    .unwrap_or_else(|| std::mem::take(text));
            }
            Value::Array(list) => list.iter_mut().for_each(scrub_texts),
            Value::Object(map) => map.values_mut().for_each(scrub_texts),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    scrub_texts(&mut value);
    value
}

/// Returns true if a character can stand in a credential, an id or an address.
fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.:/+=@%~".contains(c)
}

fn scrub_word(word: &str, out: &mut String) {
    let mut rest = word;
    while let Some(start) = rest.find(is_token_char) {
        let (marks, from) = rest.split_at(start);
        let end = from.find(|c| !is_token_char(c)).unwrap_or(from.len());
        let (token, after) = from.split_at(end);
        // Marks at the end belong to the sentence.
        let bare = token.trim_end_matches(['.', ':', '/', '=']);
        out.push_str(marks);
        out.push_str(if is_secret(bare) { HIDDEN } else { bare });
        out.push_str(token.get(bare.len()..).unwrap_or_default());
        rest = after;
    }
    out.push_str(rest);
}

fn is_secret(token: &str) -> bool {
    // A value may stand behind its name: `key=…`, `Bearer:…`, `host/…`. An address has colons itself.
    let values = token.split(['=', '@', '/', '%']);
    let pieces = token.split(['=', '@', '/', '%', ':']);
    // A range or an arrow is behind an address.
    let addresses = token.split('-').filter(|piece| piece.contains('.'));
    // Two digits of an escape come before a value in a URL: `key%3D…`.
    let escaped = token.split('%').skip(1).filter_map(|piece| piece.get(2..));
    let texts = std::iter::once(token).chain(values).chain(pieces).chain(addresses).chain(escaped);
    texts.into_iter().any(|text| {
        PREFIXES.iter().any(|prefix| text.starts_with(prefix) && text.len() > prefix.len())
            || text.contains("://")
            || is_inner_host(text)
            || is_signed_token(text)
            || is_random(text)
            || is_account(text)
    })
}

/// Returns true for an address or a name that only exists inside of a network.
fn is_inner_host(text: &str) -> bool {
    let host = text.split('/').next().unwrap_or_default();
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let host =
        host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(name, _)| name);
    let lower = host.to_ascii_lowercase();
    match text.parse().or_else(|_| host.parse()) {
        Ok(IpAddr::V4(ip)) => {
            let [a, b, ..] = ip.octets();
            ip.is_private()
                || ip.is_loopback()
                || ip.is_link_local()
                || ip.is_unspecified()
                || (a == 100 && (64..128).contains(&b))
        }
        Ok(IpAddr::V6(ip)) => match ip.to_ipv4_mapped() {
            Some(ip) => is_inner_host(&ip.to_string()),
            None => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
        },
        Err(_) => {
            INNER_NAMES.iter().any(|name| lower.ends_with(name)) || is_named_by_address(&lower)
        }
    }
}

/// Returns true for the name of a machine at AWS, `ip-10-1-2-3`.
fn is_named_by_address(host: &str) -> bool {
    let label = host.split('.').next().and_then(|label| label.strip_prefix("ip-"));
    label.is_some_and(|label| is_inner_host(&label.replace('-', ".")))
}

/// Returns true for three parts of base64 with dots between, the first of which is a JSON object
/// (RFC 7519).
fn is_signed_token(text: &str) -> bool {
    text.starts_with("ey") && text.split('.').count() >= 3 && text.len() >= 24
}

/// Returns true for a long run of letters and digits that no one wrote by hand. Names of models and
/// fields have their digits in short groups.
fn is_random(text: &str) -> bool {
    const MIN_LENGTH: usize = 24;
    const MIN_RUN: usize = 16;
    let mut runs = text.split(['-', '_', '.', ':', '/']);
    let is_mixed = |run: &str| {
        let has_digit = run.bytes().any(|b| b.is_ascii_digit());
        let has_letter = run.bytes().any(|b| b.is_ascii_alphabetic());
        run.len() >= MIN_RUN && has_letter && (has_digit || has_random_case(run))
    };
    (text.len() >= MIN_LENGTH && runs.any(is_mixed)) || uuid_like(text)
}

/// Returns true if capitals and small letters alternate more often than in words.
fn has_random_case(run: &str) -> bool {
    let is_capital = run.bytes().map(|b| b.is_ascii_uppercase());
    let changes = is_capital.clone().zip(is_capital.skip(1)).filter(|(a, b)| a != b).count();
    changes * 3 > run.len()
}

/// Returns true for the groups of a UUID, which accounts and projects are named by.
fn uuid_like(text: &str) -> bool {
    let groups = text.split('-').map(str::len);
    groups.eq([8, 4, 4, 4, 12]) && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// Returns true for the number of an account at AWS, the path of a project or organisation, or a
/// service account of Google.
fn is_account(text: &str) -> bool {
    let is_number = text.len() == 12 && text.bytes().all(|b| b.is_ascii_digit());
    let is_path = ["projects/", "organizations/", "accounts/", "folders/"];
    let is_service = text.ends_with("gserviceaccount.com");
    is_number || is_service || is_path.iter().any(|path| text.contains(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_the_operator_are_hidden() {
        for secret in [
            "sk-abc123",
            "sk-ant-api03-x",
            "AIzaSyD-1",
            "ya29.a0AfH6SMBx.y",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
            "AKIAIOSFODNN7EXAMPLE",
            "arn:aws:iam::123456789012:role/x",
            "123456789012",
            "org-77",
            "proj_9",
            "projects/77/locations/global",
            "https://x.example/keys?key=1",
            "10.1.2.3",
            "192.168.0.7:8080",
            "169.254.169.254/latest",
            "100.100.1.1",
            "fd00::1",
            "db.prod.internal:5432",
            "vllm.models.svc",
            "localhost",
            "c2VjcmV0IHRva2VuIG9mIHRoZSBvcGVyYXRvcg4",
            "7f3c2a1b9d8e4f60a1b2c3d4e5f60718",
            "123e4567-e89b-12d3-a456-426614174000",
            "10.1.2.3:54321->10.9.9.9:443",
            "db7/10.1.2.4:8080",
            "/10.1.2.5:8080",
            "host:10.1.2.7",
            "upstream:10.1.2.6:8080",
            "account:123456789012",
            "Bearer:sk-abc",
            "a/sk-abc",
            "::ffff:10.1.2.8",
            "fe80::1%eth0",
            "10.1.2.10-10.1.2.11",
            "q%3Dsk-abc123",
            "q%3D10.1.2.12",
            "ip-10-1-2-13",
            "ip-10-1-2-13.eu-west-1.compute.amazonaws.com:8080",
            "gateway@shop-1.iam.gserviceaccount.com",
            "qWeRtYuIoPaSdFgHjKlZxCvBnMqWeRtYuIoP",
        ] {
            for (before, after) in [("", ""), ("'", "',"), ("(", ")."), ("key=", ""), ("\"", "\":")]
            {
                let text = format!("The key {before}{secret}{after} is wrong");
                let shown = scrub(&text);
                assert!(shown.contains(HIDDEN) && !shown.contains(secret), "{text} → {shown}");
                assert!(shown.starts_with("The key ") && shown.ends_with(" is wrong"), "{shown}");
            }
        }
    }

    #[test]
    fn explanations_stay() {
        for text in [
            "messages[0].content[1].image_url.url must be a public URL (got 3)",
            "claude-3-5-sonnet-20241022 does not support tool_choice='any'",
            "gpt-4o-mini-realtime-preview-2024-12-17: max_tokens 128000 > 16384",
            "Invalid value: 'inline_data.mime_type'. Supported: 'image/png', 'image/jpeg'.",
            "The address 8.8.8.8 is public, and example.com:443 too; 12:30, 50%.",
            "Unknown name \"generation_config.response_mime_type\" at 'request'",
            "generateContentStreamRequestParameters and ip-based routing: ip-8-8-8-8",
            "prompt_cache_retention is not supported for gemini-2.5-flash-preview-05-20",
        ] {
            assert_eq!(scrub(text), text);
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let shown = scrub(&"ü ".repeat(1_000));
        assert_eq!(shown.chars().count(), MAX_CHARS + 1);
        assert!(shown.ends_with('…'));
    }
}
