//! Paths of this gateway's own pages, and percent-encoding for them.

/// Name of the query parameter that holds the team id.
pub(crate) const TEAM_PARAMETER: &str = "for";

/// Path of a model's page.
pub(crate) fn model_page(id: &str) -> String {
    format!("/models/{}", escape_path(id))
}

/// Escapes a text for use in a path. Slashes and colons stay readable, because model pages take the
/// rest of the path as the id. All characters that could end or change the path are escaped.
pub(crate) fn escape_path(text: &str) -> String {
    percent_encode(text, b"-._~/:@")
}

/// Escapes a text for use as the value of a query parameter.
pub(crate) fn escape_value(text: &str) -> String {
    percent_encode(text, b"-._~")
}

/// Returns the path if it is a console page a browser may be sent to after a sign-in. Rejects every
/// text a browser could read as another site (open redirect).
pub(crate) fn console_path(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("/console")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~/?&=%+,:".contains(c);
    let goes_on = rest.is_empty() || rest.starts_with(['/', '?']);
    (goes_on && text.len() <= 512 && text.chars().all(plain) && !text.contains("//"))
        .then_some(text)
}

/// Appends a team to a path.
pub(crate) fn with_team(path: &str, team_id: &str) -> String {
    let mark = if path.contains('?') { '&' } else { '?' };
    format!("{path}{mark}{TEAM_PARAMETER}={}", escape_value(team_id))
}

fn percent_encode(text: &str, kept: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The origin of a URL as browsers write it (`https://example.com`), without the default port. See
/// <https://html.spec.whatwg.org/multipage/browsers.html#ascii-serialisation-of-an-origin>.
pub(crate) fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?.to_ascii_lowercase();
    let usual = if scheme == "https" { ":443" } else { ":80" };
    let authority = authority.strip_suffix(usual).unwrap_or(&authority);
    (!authority.is_empty()).then(|| format!("{scheme}://{authority}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_ids_are_escaped_in_paths() {
        assert_eq!(model_page("meta/llama-4:free"), "/models/meta/llama-4:free");
        assert_eq!(model_page("a b?c#d%\"'<é"), "/models/a%20b%3Fc%23d%25%22%27%3C%C3%A9");
        assert_eq!(escape_value("a&b=c/d"), "a%26b%3Dc%2Fd");
    }

    #[test]
    fn redirects_stay_on_the_site() {
        for good in
            ["/console", "/console/keys/abc/edit", "/console?page=2", "/console/activity?a=%2F"]
        {
            assert_eq!(console_path(good), Some(good));
        }
        for bad in [
            "",
            "/",
            "//evil.example",
            "/\\evil.example",
            "https:evil.example",
            "https://evil.example/console",
            "%2f%2fevil.example",
            "javascript:alert(1)",
            "/console\t/x",
            "/console\n",
            "/console@evil.example",
            "/consoles",
            "/console//evil.example",
            "/console/\\evil",
            "/login",
            "/models",
        ] {
            assert_eq!(console_path(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn origin_matches_browser_serialization() {
        assert_eq!(origin("https://Example.com:443/gw").as_deref(), Some("https://example.com"));
        assert_eq!(origin("http://127.0.0.1:8080").as_deref(), Some("http://127.0.0.1:8080"));
        assert_eq!(origin("nonsense"), None);
    }
}
