//! Removes what belongs to the operator from a provider's text: credentials, ids of accounts, and
//! addresses of the inner network. The rest of the text explains the error to the caller.

use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr};

use crate::text_owners::{self, TextOwners};

/// The text in place of a removed word.
pub const HIDDEN: &str = "[hidden]";

/// Maximum length of a provider's text.
const MAX_CHARS: usize = 400;

/// Digits of the number of a project at Google.
const MIN_PROJECT_DIGITS: usize = 6;

/// First characters of credentials and ids of accounts.
const PREFIXES: [&str; 18] = [
    "sk-", "pk-", "xai-", "gsk_", "nvapi-", "AIza", "ya29.", "ghp_", "gho_", "AKIA", "ASIA",
    "AIDA", "arn:aws", "AQ.", "pplx-", "csk-", "wrkspc_", "xoxb-",
];

/// First characters of ids that are also words, as in `org_name`. An id has a digit or a capital.
const WORD_PREFIXES: [&str; 11] =
    ["org-", "org_", "proj_", "proj-", "pk_", "sk_", "rk_", "hf_", "fw_", "tgp_", "acct_"];

/// Hosts of public documentation, which errors of providers refer to.
const DOCUMENTATION_HOSTS: [&str; 16] = [
    "ai.google.dev",
    "aka.ms",
    "cloud.google.com",
    "console.groq.com",
    "docs.anthropic.com",
    "docs.aws.amazon.com",
    "docs.claude.com",
    "docs.fireworks.ai",
    "docs.mistral.ai",
    "docs.together.ai",
    "docs.x.ai",
    "help.openai.com",
    "huggingface.co",
    "learn.microsoft.com",
    "openrouter.ai",
    "platform.openai.com",
];

/// Marks in place of the middle of a credential: `sk-abc***7890`.
const MASK_MARKS: [char; 3] = ['*', '•', '…'];

/// Marks inside of a name, behind which a credential may begin.
const INNER_MARKS: [char; 4] = ['_', '.', '+', '~'];

/// Last labels of names inside of a network, <https://www.iana.org/assignments/special-use-domain-names>.
const INNER_NAMES: [&str; 14] = [
    ".internal",
    ".local",
    ".localdomain",
    ".localhost",
    ".lan",
    ".corp",
    ".intra",
    ".intranet",
    ".private",
    ".svc",
    ".pod",
    ".consul",
    ".home",
    ".home.arpa",
];

/// Returns a provider's text without the operator's secrets, and not longer than is useful. Words that
/// the caller wrote itself stay.
pub fn scrub(text: &str) -> String {
    // No character has more than four bytes.
    let out = without_secrets(text, 4 * MAX_CHARS);
    match out.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => out.get(..end).unwrap_or_default().to_owned() + "…",
        None => out,
    }
}

/// Returns a provider's text for the log: without the operator's secrets, and without what it repeats of
/// the request, because no prompt is logged.
pub fn scrub_for_log(text: &str) -> String {
    let clean = scrub(text);
    text_owners::current().and_then(|owners| owners.hide_echo(&clean)).unwrap_or(clean)
}

/// Returns a text without secrets. It ends with the word that exceeds so many bytes.
fn without_secrets(text: &str, max_bytes: usize) -> String {
    let owners = text_owners::current();
    let clean = owners.as_ref().and_then(|owners| owners.hide_credentials(text));
    let owners = owners.as_deref();
    let mut pass = ScrubPass { owners, follows_project: false, follows_version: false };
    let mut out = String::new();
    for word in clean.as_deref().unwrap_or(text).split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        pass.scrub_word(word, &mut out);
        if out.len() > max_bytes {
            break;
        }
    }
    out
}

/// Returns a value that a provider reports about a call, without the operator's secrets. Other texts
/// stay as they are.
pub fn scrub_value(mut value: Value) -> Value {
    fn scrub_texts(value: &mut Value) {
        match value {
            Value::String(text) => {
                *text = Some(without_secrets(text, usize::MAX))
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

/// One pass over a text.
struct ScrubPass<'a> {
    owners: Option<&'a dyn TextOwners>,
    /// True if the word before was the name of a project.
    follows_project: bool,
    /// True if the word before announces a version, which may look like an address.
    follows_version: bool,
}

impl ScrubPass<'_> {
    fn scrub_word(&mut self, word: &str, out: &mut String) {
        let (mut rest, mut is_masked) = (word, false);
        while let Some(start) = rest.find(is_token_char) {
            let (marks, from) = rest.split_at(start);
            let end = from.find(|c| !is_token_char(c)).unwrap_or(from.len());
            let (token, after) = from.split_at(end);
            // Marks at the end belong to the sentence.
            let bare = token.trim_end_matches(['.', ':', '/', '=']);
            rest = after;
            // The end of a credential whose middle is masked.
            let is_mask = !marks.is_empty() && marks.chars().all(|c| MASK_MARKS.contains(&c));
            is_masked = if is_masked && is_mask {
                true
            } else {
                out.push_str(marks);
                let is_cut = after.starts_with(MASK_MARKS) && PREFIXES.contains(&bare);
                let is_hidden = self.is_hidden(bare) || is_cut;
                out.push_str(if is_hidden { HIDDEN } else { bare });
                is_hidden
            };
            out.push_str(token.get(bare.len()..).unwrap_or_default());
        }
        out.push_str(rest);
    }

    fn is_hidden(&mut self, token: &str) -> bool {
        let is_number =
            token.len() >= MIN_PROJECT_DIGITS && token.bytes().all(|b| b.is_ascii_digit());
        let is_project = self.follows_project && (is_number || is_project_name(token));
        let is_version = self.follows_version && token.parse::<Ipv4Addr>().is_ok();
        self.follows_project = names_project(token);
        self.follows_version =
            ["version", "versions"].iter().any(|w| token.eq_ignore_ascii_case(w));
        // A caller could try all addresses in one request, so that one is hidden also if it was sent.
        (is_inner_address(token, self.owners) && !is_version)
            || ((is_project || is_secret(token)) && !self.is_in_request(token))
    }

    fn is_in_request(&self, token: &str) -> bool {
        self.owners.is_some_and(|own| own.is_in_request(token))
    }
}

/// Returns true for `project`, `project_number` and the like.
fn names_project(token: &str) -> bool {
    token.get(..7).is_some_and(|word| word.eq_ignore_ascii_case("project"))
}

/// Returns true for an id of a project that Google made of a name: `my-project-77`.
fn is_project_name(token: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    token.len() >= MIN_PROJECT_DIGITS
        && token.bytes().all(is_letter)
        && token.contains('-')
        && token.bytes().any(|b| b.is_ascii_digit())
}

/// Returns true for a link to public documentation.
fn is_documentation(url: &str) -> bool {
    let rest = url.strip_prefix("https://").unwrap_or_default();
    let host = rest.split('/').next().unwrap_or_default();
    DOCUMENTATION_HOSTS.contains(&host) && !rest.contains(['@', '%', ':'])
}

/// Returns a token and its parts. A value may stand behind its name: `key=…`, `Bearer:…`, `host/…`. An
/// address has colons itself.
fn token_parts(token: &str) -> impl Iterator<Item = &str> {
    let values = token.split(['=', '@', '/', '%']);
    let pieces = token.split(['=', '@', '/', '%', ':']);
    // Two digits of an escape come before a value in a URL: `key%3D…`.
    let escaped = token.split('%').skip(1).filter_map(|piece| piece.get(2..));
    std::iter::once(token).chain(values).chain(pieces).chain(escaped)
}

fn is_secret(token: &str) -> bool {
    let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).count();
    let mut runs = token.split(|c: char| !c.is_ascii_alphanumeric() && c != '+' && c != '/');
    runs.any(is_long_base64)
        || token_parts(token).any(|text| {
            has_prefix(text)
                || (text.contains("://") && !is_documentation(text))
                || is_signed_token(text)
                || is_random(text)
                || is_account(text)
                || (names_project(text) && digits(text) >= MIN_PROJECT_DIGITS)
        })
}

/// Returns true for a credential or an id by its first characters. Behind a mark inside of a name it
/// has a digit, because words may stand there: `risk_sk_score`.
fn has_prefix(text: &str) -> bool {
    let begins = |text: &str, prefixes: &[&str]| {
        prefixes.iter().any(|prefix| text.starts_with(prefix) && text.len() > prefix.len())
    };
    let has_digit = |text: &str| text.bytes().any(|b| b.is_ascii_digit());
    let has_capital = text.bytes().any(|b| b.is_ascii_uppercase());
    begins(text, &PREFIXES)
        || (begins(text, &WORD_PREFIXES) && (has_digit(text) || has_capital))
        || text.match_indices(INNER_MARKS).any(|(at, mark)| {
            let inner = text.get(at + mark.len()..).unwrap_or_default();
            has_digit(inner) && (begins(inner, &PREFIXES) || begins(inner, &WORD_PREFIXES))
        })
}

/// Returns true for an address or a name that only exists inside of a network.
fn is_inner_address(token: &str, owners: Option<&dyn TextOwners>) -> bool {
    token_parts(token).any(|text| is_inner_host(text, owners))
        || has_inner_ipv4(token, '.')
        // Names of machines at AWS and of pods: `ip-10-1-2-3`, `10-1-2-3.name.pod`.
        || has_inner_ipv4(token, '-')
}

fn is_inner_host(text: &str, owners: Option<&dyn TextOwners>) -> bool {
    let host = text.split('/').next().unwrap_or_default();
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let host =
        host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(name, _)| name);
    match text.parse().or_else(|_| host.parse()) {
        Ok(IpAddr::V4(ip)) => is_inner_ipv4(ip),
        Ok(IpAddr::V6(ip)) => match ip.to_ipv4_mapped() {
            Some(ip) => is_inner_ipv4(ip),
            None => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
        },
        Err(_) => {
            let name = host.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost"
                || INNER_NAMES.iter().any(|inner| name.ends_with(inner))
                || is_company_host(&name)
                || owners.is_some_and(|own| own.is_providers_host(&name))
        }
    }
}

/// Returns true for a host of a company's own network below its public name: `db.corp.example.com`.
fn is_company_host(name: &str) -> bool {
    let has_label =
        [".corp.", ".internal.", ".intranet.", ".svc."].iter().any(|l| name.contains(l));
    let ends = [".com", ".net", ".org", ".io", ".dev", ".cloud", ".ai"];
    has_label && ends.iter().any(|end| name.ends_with(end))
}

const fn is_inner_ipv4(ip: Ipv4Addr) -> bool {
    let [a, b, ..] = ip.octets();
    ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_unspecified()
        || (a == 100 && b >= 64 && b < 128)
}

/// Returns true if four numbers with this mark between them are an inner address.
fn has_inner_ipv4(token: &str, mark: char) -> bool {
    token.split(|c: char| !c.is_ascii_digit() && c != mark).any(|run| {
        let run = run.trim_matches(mark).replace(mark, ".");
        run.parse().is_ok_and(is_inner_ipv4)
    })
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

/// Returns true for base64 with slashes, such as a secret key of AWS. In a path capitals, small letters
/// and digits alternate less.
fn is_long_base64(run: &str) -> bool {
    const MIN_LENGTH: usize = 32;
    let kinds = || {
        run.bytes().filter(u8::is_ascii_alphanumeric).map(|b| match b {
            b'0'..=b'9' => 0,
            b'A'..=b'Z' => 1,
            _ => 2,
        })
    };
    let changes = kinds().zip(kinds().skip(1)).filter(|(a, b)| a != b).count();
    run.len() >= MIN_LENGTH && changes * 4 > run.len()
}

/// Returns true for the groups of a UUID, which accounts and projects are named by.
fn uuid_like(text: &str) -> bool {
    let groups = text.split('-').map(str::len);
    groups.eq([8, 4, 4, 4, 12]) && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// Returns true for the number of an account at AWS, the path of a project, organisation or
/// subscription, or a service account of Google.
fn is_account(text: &str) -> bool {
    const PATHS: [&str; 6] = [
        "projects/",
        "organizations/",
        "accounts/",
        "folders/",
        "subscriptions/",
        "resourcegroups/",
    ];
    let is_number = text.len() == 12 && text.bytes().all(|b| b.is_ascii_digit());
    let is_service = text.ends_with("gserviceaccount.com");
    // Models of Fireworks for everybody are called so.
    let lower = text.to_ascii_lowercase().replace("accounts/fireworks/models/", "");
    is_number || is_service || PATHS.iter().any(|path| lower.contains(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text_owners::scrub_for;
    use crate::{RawReason, WireFormat};
    use std::sync::Arc;

    #[test]
    fn secrets_are_hidden_anywhere_in_a_long_value() {
        let long = format!("{}sk-abc123 at 10.1.2.3", "many  words ".repeat(100));
        let clean = scrub_value(serde_json::json!({ "why": [long], "kept": "two  blanks" }));
        assert_eq!(clean["kept"], "two  blanks");
        let text = clean["why"][0].as_str().unwrap();
        assert!(text.ends_with("words [hidden] at [hidden]") && text.len() > 1_000, "{text}");
    }

    #[test]
    fn a_reason_is_a_word_or_loses_secrets() {
        let shown = |word: &str| RawReason::new(WireFormat::Chat, word).to_string();
        assert_eq!(shown("tool_calls"), "chat:tool_calls");
        assert_eq!(shown("bad sk-abc123"), "chat:bad [hidden]");
    }

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
            // The example of AWS, <https://docs.aws.amazon.com/IAM/latest/UserGuide/id_credentials_access-keys.html>.
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "pplx-a1",
            "csk-a1",
            "fw_a1",
            "tgp_v1_a",
            "config.sk-abc123def",
            "user_sk-abc123def",
            "a+sk-abc123def",
            "a~sk-abc123def",
            "wrkspc_01AbC",
            "AIDAJQABLZS4A3QDU576Q",
            "project_number:83712345678",
            "/subscriptions/0b1f6471/resourceGroups/prod-rg",
            "ip_10.1.2.3",
            "10.1.2.3_8080",
            "10.1.2.3+10.1.2.4",
            "10-1-2-3.ns.pod",
            "db.localdomain",
            "db.service.consul:8500",
            "nas.home",
            "vllm.ns.svc.:8000",
            "xoxb-123456789012-abcdefgh",
            "db01.corp.example.com:5432",
            "sk_live_a1",
            "accounts/acme/models/llama-v3p3",
            "https://platform.openai.com/settings/organization/org-A1b2/limits",
            "https://docs.x.ai.example/x",
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
            "the tool get_localhost has no org_name, pk_column, proj_id or risk_sk_score",
            "see v1/chat/completions/Messages/Content and src/Components/ListView2/Index",
            "meta-llama/Llama-3.3-70B-Instruct-Turbo/LoRA2 of 2024-12-17 and 1.2.3.4_5",
            "the project has 3 members",
            "accounts/fireworks/models/llama-v3p3-70b-instruct does not support tools",
            "org_id, project_id and acct_name are reserved; use sk_test, hf_token or risk-sk-score",
            "version 10.0.0.1 is too old, API version: 127.0.0.2 of 2024-12-17",
            "the field response.internal.code must be HH:MM:SS, e.g. 10:00:00",
            "retry or see https://ai.google.dev/gemini-api/docs/troubleshooting",
            "read https://platform.openai.com/docs/guides/error-codes/api-errors.",
        ] {
            assert_eq!(scrub(text), text);
        }
    }

    #[test]
    fn numbers_of_projects_are_hidden() {
        let text = "not used in project 83712345678 before, project_number: 83712345679.";
        let expected = "not used in project [hidden] before, project_number: [hidden].";
        assert_eq!(scrub(text), expected);
        assert_eq!(scrub("denied on project my-proj-77."), "denied on project [hidden].");
        assert_eq!(scrub("at most 83712345678 bytes"), "at most 83712345678 bytes");
    }

    #[test]
    fn a_masked_credential_is_hidden_whole() {
        for key in
            ["sk-proj-********wxyz", "sk-****wxyz", "sk-...wxyz", "sk-ab…wxyz", "xai-••••wxyz"]
        {
            let text = format!("Incorrect API key provided: {key}. See the page");
            assert_eq!(scrub(&text), "Incorrect API key provided: [hidden]. See the page");
        }
        assert_eq!(scrub("**sk-abc1** and **bold**"), "**[hidden]** and **bold**");
    }

    struct TestOwners;

    impl TextOwners for TestOwners {
        fn hide_credentials(&self, text: &str) -> Option<String> {
            text.contains("Zq7vLx2p").then(|| text.replace("Zq7vLx2p", HIDDEN))
        }

        fn is_providers_host(&self, host: &str) -> bool {
            host == "vllm-0"
        }

        fn is_in_request(&self, word: &str) -> bool {
            "call_7f3c2a1b9d8e4f60a1b2 org_X9 10.1.2.3 vllm-0 Zq7vLx2p".contains(word)
        }

        fn hide_echo(&self, text: &str) -> Option<String> {
            text.contains("call_7f3c2a1b").then(|| text.replace("call_7f3c2a1b", HIDDEN))
        }
    }

    #[test]
    fn words_of_the_caller_stay_and_those_of_the_provider_go() {
        let owners: Arc<dyn TextOwners> = Arc::new(TestOwners);
        for (text, expected) in [
            (
                "no output for call_7f3c2a1b9d8e4f60a1b2.",
                "no output for call_7f3c2a1b9d8e4f60a1b2.",
            ),
            ("no output for call_7f3c2a1b9d8e4f60a1b3.", "no output for [hidden]."),
            ("org_X9, org_X8", "org_X9, [hidden]"),
            ("connect vllm-0:8000 refused", "connect [hidden] refused"),
            ("VLLM-0/v1 by key=Zq7vLx2p!", "[hidden] by key=[hidden]!"),
            ("10.1.2.3 is asked", "[hidden] is asked"),
        ] {
            assert_eq!(scrub_for(&owners, || scrub(text)), expected);
        }
        assert_eq!(scrub("org_X9 of vllm-0"), "[hidden] of vllm-0");
        let logged = scrub_for_log("no output\nfor call_7f3c2a1b");
        assert_eq!(logged, "no output for call_7f3c2a1b");
        let logged = scrub_for(&owners, || scrub_for_log("no output for call_7f3c2a1b"));
        assert_eq!(logged, "no output for [hidden]");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let shown = scrub(&"ü ".repeat(1_000));
        assert_eq!(shown.chars().count(), MAX_CHARS + 1);
        assert!(shown.ends_with('…'));
    }
}
