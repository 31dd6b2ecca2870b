//! Media type of fetched bytes, compared with the `Content-Type` of the server.

use canon::MediaKind;

/// Media types without information.
const GENERIC_TYPES: [&str; 4] =
    ["", "application/octet-stream", "binary/octet-stream", "application/binary"];

/// Returns the media type of these bytes if it is of the wanted kind and does not contradict the
/// server. A document may be of any known type.
pub(crate) fn checked_media_type(
    wanted: MediaKind,
    content_type: Option<&str>,
    bytes: &[u8],
) -> Option<String> {
    let content_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default();
    let content_type = content_type.trim().to_ascii_lowercase();
    let is_generic = GENERIC_TYPES.contains(&content_type.as_str());
    let Some(detected) = detect_type(bytes) else {
        let text = wanted == MediaKind::Document && is_text_type(&content_type) && is_text(bytes);
        return text.then_some(content_type);
    };
    let family = |mime: &str| mime.split('/').next().unwrap_or_default().to_owned();
    // The same containers hold audio or video, and only the server knows which.
    let wrapped = matches!(detected, "video/mp4" | "video/webm" | "video/ogg" | "video/3gpp")
        && family(&content_type) == "audio";
    let mime = if wrapped { detected.replacen("video", "audio", 1) } else { detected.to_owned() };
    let agrees = is_generic
        || family(&content_type) == family(&mime)
        || (mime == "application/pdf" && content_type == "application/x-pdf");
    let is_wanted = wanted == MediaKind::Document || MediaKind::from_mime(&mime) == wanted;
    (agrees && is_wanted).then_some(mime)
}

/// Detects the media type by the first bytes.
fn detect_type(bytes: &[u8]) -> Option<&'static str> {
    let at = |from: usize, what: &[u8]| bytes.get(from..).is_some_and(|b| b.starts_with(what));
    let begins = |what: &[u8]| at(0, what);
    let mime = match () {
        () if begins(b"\x89PNG\r\n\x1a\n") => "image/png",
        () if begins(b"\xff\xd8\xff") => "image/jpeg",
        () if begins(b"GIF87a") || begins(b"GIF89a") => "image/gif",
        () if begins(b"RIFF") && at(8, b"WEBP") => "image/webp",
        () if begins(b"II*\0") || begins(b"MM\0*") => "image/tiff",
        () if begins(b"%PDF-") => "application/pdf",
        () if begins(b"RIFF") && at(8, b"WAVE") => "audio/wav",
        () if begins(b"RIFF") && at(8, b"AVI ") => "video/x-msvideo",
        () if begins(b"FORM") && at(8, b"AIF") => "audio/aiff",
        () if begins(b"fLaC") => "audio/flac",
        () if begins(b"ID3") => "audio/mpeg",
        () if begins(b"\xff\xf1") || begins(b"\xff\xf9") => "audio/aac",
        () if begins(b"\xff\xfb") || begins(b"\xff\xf3") || begins(b"\xff\xf2") => "audio/mpeg",
        () if begins(b"OggS") && at(28, b"\x80theora") => "video/ogg",
        () if begins(b"OggS") => "audio/ogg",
        () if begins(b"\x1a\x45\xdf\xa3") => "video/webm",
        () if begins(b"\0\0\x01\xba") || begins(b"\0\0\x01\xb3") => "video/mpeg",
        () if begins(b"FLV\x01") => "video/x-flv",
        () if at(4, b"ftyp") => iso_media_type(bytes.get(8..12)?),
        () => return None,
    };
    Some(mime)
}

/// Returns the media type of an ISO base media file by its brand.
fn iso_media_type(brand: &[u8]) -> &'static str {
    match brand {
        b"heic" | b"heix" | b"heim" | b"heis" => "image/heic",
        b"mif1" | b"msf1" => "image/heif",
        b"avif" | b"avis" => "image/avif",
        b"M4A " | b"M4B " => "audio/mp4",
        b"qt  " => "video/quicktime",
        [b'3', b'g', ..] => "video/3gpp",
        _ => "video/mp4",
    }
}

/// Returns true for text types, except those that can hold scripts.
fn is_text_type(mime: &str) -> bool {
    let scripted = matches!(mime, "text/html" | "text/javascript" | "text/ecmascript");
    let named = matches!(
        mime,
        "application/json" | "application/xml" | "application/yaml" | "application/x-yaml"
    );
    (mime.starts_with("text/") && !scripted) || named
}

fn is_text(bytes: &[u8]) -> bool {
    let odd = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\x0c');
    std::str::from_utf8(bytes).is_ok_and(|text| !text.is_empty() && !text.contains(odd))
}

#[cfg(test)]
mod tests {
    use super::*;
    use MediaKind::{Audio, Document, Image, Video};

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    const WEBM: &[u8] = b"\x1a\x45\xdf\xa3 and so on";

    #[test]
    fn detected_type_must_match_content_type() {
        type Case<'a> = (MediaKind, Option<&'a str>, &'a [u8], Option<&'a str>);
        let cases: [Case<'_>; 22] = [
            (Image, Some("image/png"), PNG, Some("image/png")),
            (Image, Some("IMAGE/PNG; x=y"), PNG, Some("image/png")),
            (Image, Some("image/jpg"), b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (Image, Some("image/jpeg"), PNG, Some("image/png")),
            (Image, None, PNG, Some("image/png")),
            (Image, Some("application/octet-stream"), PNG, Some("image/png")),
            (Image, Some("text/html"), PNG, None),
            (Image, Some("image/png"), b"<html></html>", None),
            (Image, Some("image/svg+xml"), b"<svg/>", None),
            (Image, Some("application/pdf"), b"%PDF-1.7", None),
            (Document, Some("application/pdf"), b"%PDF-1.7", Some("application/pdf")),
            (Document, Some("image/png"), PNG, Some("image/png")),
            (Document, Some("text/plain; charset=utf-8"), b"hello", Some("text/plain")),
            (Document, Some("text/html"), b"<p>hello", None),
            (Document, Some("text/plain"), b"\0\x01\x02", None),
            (Document, Some("text/plain"), b"\xff\xfe\xff", None),
            (Document, None, b"hello", None),
            (Audio, Some("audio/webm"), WEBM, Some("audio/webm")),
            (Audio, None, WEBM, None),
            (Audio, Some("audio/x-wav"), b"RIFF\0\0\0\0WAVE", Some("audio/wav")),
            (Video, Some("video/mp4"), b"\0\0\0\x18ftypisom", Some("video/mp4")),
            (Video, Some("video/mp4"), b"\x7fELF", None),
        ];
        for (wanted, content_type, bytes, mime) in cases {
            assert_eq!(
                checked_media_type(wanted, content_type, bytes).as_deref(),
                mime,
                "{wanted:?} {content_type:?} {bytes:?}"
            );
        }
    }
}
