//! Descriptions of media without understanding their content.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canon::{Media, MediaKind, MediaSource};

/// Maximum number of image bytes searched for the size.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// Describes a media part: `a PNG picture of 48 × 32 pixels`.
pub(crate) fn describe(media: &Media) -> String {
    let kind = match media.kind {
        MediaKind::Image => "picture",
        MediaKind::Audio => "sound",
        MediaKind::Video => "film",
        MediaKind::Document => "document",
    };
    let named = media.name.as_deref().map(|name| format!(" called “{name}”")).unwrap_or_default();
    match &media.source {
        MediaSource::Inline { mime, data } => {
            let article = article(mime);
            match size(data) {
                Some((width, height)) => {
                    format!("{article} {kind}{named} of {width} × {height} pixels")
                }
                None => format!("{article} {kind}{named} of about {} bytes", data.len() / 4 * 3),
            }
        }
        MediaSource::Url { url, .. } => {
            let host = url.split("//").nth(1).and_then(|rest| rest.split('/').next());
            format!("a {kind}{named} at {}", host.unwrap_or("some address"))
        }
        MediaSource::File { .. } => format!("a stored {kind}{named}"),
        MediaSource::Text(text) => {
            format!("a text document{named} of {} words", text.split_whitespace().count())
        }
    }
}

fn article(mime: &str) -> String {
    let name = mime.split('/').nth(1).unwrap_or(mime);
    let name = name.split(['+', ';']).next().unwrap_or(name).to_uppercase();
    let vowel = name.starts_with(['A', 'E', 'F', 'H', 'I', 'L', 'M', 'N', 'O', 'R', 'S', 'X']);
    format!("{} {name}", if vowel { "an" } else { "a" })
}

/// Returns width and height of a PNG or JPEG from its header.
fn size(data: &str) -> Option<(u32, u32)> {
    let front = data.get(..data.len().min(MAX_HEADER_BYTES) / 4 * 4)?;
    let bytes = STANDARD.decode(front).ok()?;
    png(&bytes).or_else(|| jpeg(&bytes))
}

fn png(bytes: &[u8]) -> Option<(u32, u32)> {
    let rest = bytes.strip_prefix(b"\x89PNG\r\n\x1a\n")?.get(8..)?;
    let number = |at: usize| {
        let four: [u8; 4] = rest.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_be_bytes(four))
    };
    Some((number(0)?, number(4)?))
}

/// Walks the JPEG markers up to the frame header, which holds the size.
fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut rest = bytes.strip_prefix(b"\xff\xd8")?;
    loop {
        let [0xff, marker, high, low, ..] = *rest else { return None };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc) {
            let [h1, h2, w1, w2] = *rest.get(5..9)? else { return None };
            let side = |high, low| u32::from(u16::from_be_bytes([high, low]));
            return Some((side(w1, w2), side(h1, h2)));
        }
        rest = rest.get(2 + length.max(2)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inline(mime: &str, bytes: &[u8]) -> Media {
        let source = MediaSource::Inline { mime: mime.to_owned(), data: STANDARD.encode(bytes) };
        Media { kind: MediaKind::from_mime(mime), source, name: None, detail: None, clip: None }
    }

    #[test]
    fn the_size_of_a_png_is_read() {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
        bytes.extend([0, 0, 0, 48, 0, 0, 0, 32, 8, 2, 0, 0, 0]);
        assert_eq!(describe(&inline("image/png", &bytes)), "a PNG picture of 48 × 32 pixels");
    }

    #[test]
    fn the_size_of_a_jpeg_is_read() {
        let mut bytes = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x11\x08".to_vec();
        bytes.extend([0, 100, 0, 200, 3, 1, 1, 1, 1, 1, 1]);
        assert_eq!(describe(&inline("image/jpeg", &bytes)), "a JPEG picture of 200 × 100 pixels");
    }

    #[test]
    fn broken_media_is_only_described() {
        assert!(describe(&inline("image/png", b"\x89PNG\r\n\x1a\n")).contains("bytes"));
        assert!(describe(&inline("image/jpeg", b"\xff\xd8\xff\xc0")).contains("bytes"));
        assert!(describe(&inline("application/pdf", b"%PDF-1.4")).starts_with("a PDF document"));
    }
}
