//! Checks of media that all formats share: media types, base64 and data URIs.
//!
//! Only the form is checked. The bytes of a picture are the provider's business.

use canon::{MediaKind, RequestNeeds};

/// Returns the reason why a media type is refused.
pub(crate) fn mime_error(mime: &str) -> Option<&'static str> {
    let rule = "must be a media type such as `image/png`";
    let essence = mime.split(';').next().unwrap_or_default().trim();
    let token = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&b))
    };
    let Some((kind, name)) = essence.split_once('/') else { return Some(rule) };
    if mime.len() > 255 || mime.chars().any(char::is_control) || !token(kind) || !token(name) {
        return Some(rule);
    }
    if matches!(essence, "text/html" | "image/svg+xml") {
        return Some("is a media type that can hold scripts and is not accepted");
    }
    None
}

/// Returns the reason why base64 data is refused. Both alphabets of RFC 4648 are accepted, padded
/// or not.
pub(crate) fn base64_error(data: &str) -> Option<&'static str> {
    if data.is_empty() {
        return Some("must not be empty");
    }
    if data.starts_with("data:") {
        return Some("must be base64 without a `data:` prefix");
    }
    let bare = data.trim_end_matches('=');
    let padding = data.len() - bare.len();
    let fits = if padding == 0 {
        bare.len() % 4 != 1
    } else {
        data.len().is_multiple_of(4) && padding < 3
    };
    let known = bare
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_'));
    (!fits || !known).then_some("must be valid base64")
}

/// Returns true if a URI holds the data itself. Schemes are case-insensitive (RFC 3986, section 3.1).
pub(crate) fn is_data_uri(uri: &str) -> bool {
    uri.trim_start().get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
}

/// Splits a data URI (RFC 2397) into its media type and its data.
pub(crate) fn split_data_uri(url: &str) -> Option<(&str, &str)> {
    url.strip_prefix("data:")?.split_once(";base64,")
}

/// Returns the kind and the number of bytes of the media in a data URI.
pub(crate) fn data_uri_media(url: &str) -> Option<(MediaKind, u64)> {
    split_data_uri(url).map(|(mime, data)| (MediaKind::from_mime(mime), base64_bytes(data)))
}

/// Adds media that are a data URI or stand elsewhere. The data of a field may be of another kind than its name
/// says.
pub(crate) fn add_media_at(
    needs: &mut RequestNeeds,
    url: Option<&str>,
    named: MediaKind,
    path: impl Fn() -> String,
) {
    let inline = url.and_then(data_uri_media);
    needs.add_media(inline.map_or(named, |(kind, _)| kind), inline.map(|(_, bytes)| bytes), path);
}

/// Returns the number of bytes that valid base64 holds.
pub(crate) fn base64_bytes(data: &str) -> u64 {
    data.trim_end_matches('=').len() as u64 * 3 / 4
}

/// Returns the reason why the URL or data URI of a picture is refused. Some clients send documents
/// and videos in the same field.
pub(crate) fn picture_url_error(url: &str) -> Option<&'static str> {
    let is_picture = split_data_uri(url).is_none_or(|(mime, _)| {
        let kind = mime.split('/').next().unwrap_or_default();
        mime_error(mime).is_some()
            || matches!(kind, "image" | "video" | "audio")
            || mime.starts_with("application/pdf")
    });
    if is_picture {
        file_url_error(url)
    } else {
        Some("is a data URI that does not hold a picture")
    }
}

/// Returns the reason why the URL or data URI (RFC 2397) of a file is refused.
pub(crate) fn file_url_error(url: &str) -> Option<&'static str> {
    let Some(rest) = url.strip_prefix("data:") else {
        let is_web = url.starts_with("https://") || url.starts_with("http://");
        return (!is_web).then_some("is neither an https URL nor a data URI");
    };
    let Some((mime, data)) = rest.split_once(";base64,") else {
        return Some("is a data URI without `;base64,`");
    };
    match (mime_error(mime), base64_error(data)) {
        (Some(_), _) => Some("is a data URI of a media type that is not accepted"),
        (None, Some(_)) => Some("is a data URI whose data is not valid base64"),
        (None, None) => None,
    }
}

/// Returns the reason why the data of a file is refused: a URL, a data URI or bare base64.
pub(crate) fn file_data_error(data: &str) -> Option<&'static str> {
    if data.starts_with("data:") || data.contains("://") {
        file_url_error(data)
    } else {
        base64_error(data).map(|_| "is neither valid base64 nor a data URI")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_uris_hold_media_in_base64() {
        let picture = picture_url_error;
        for url in ["https://a/b", "data:image/png;base64,AAAA", "data:application/pdf;base64,AA"] {
            assert_eq!(picture(url), None, "{url}");
        }
        for url in [
            "ftp://a/b",
            "x",
            "data:,",
            "data:image/png,AAAA",
            "data:image/png;base64,",
            "data:image/png;base64,%%%",
            "data:text/html;base64,AAAA",
            "data:text/plain;base64,AAAA",
            "data:image/svg+xml;base64,AAAA",
            "data:;base64,AAAA",
        ] {
            assert!(picture(url).is_some(), "{url}");
        }
        assert_eq!(file_url_error("data:text/plain;base64,AAAA"), None);
        assert_eq!(file_data_error("AAAA"), None);
        assert!(file_data_error("not base64").is_some());
    }
}
