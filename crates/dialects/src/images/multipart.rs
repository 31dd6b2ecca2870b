//! Reader and writer for `multipart/form-data` (RFC 7578). The reader does not copy.
//!
//! A library would not return the byte ranges of the parts. Pass-through needs them to send the
//! caller's form on with one value replaced.

use bytes::Bytes;
use canon::ApiError;
use memchr::memmem::Finder;
use std::ops::Range;

/// Maximum number of parts.
const MAX_PARTS: usize = 128;
/// Maximum size of the headers of a part.
const MAX_PART_HEADER_BYTES: usize = 8 << 10;
/// Maximum length of a boundary (RFC 2046, section 5.1.1).
const MAX_BOUNDARY_CHARS: usize = 70;

/// One part of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FormPart {
    /// Name of the field.
    pub(super) name: String,
    /// True for a file.
    pub(super) file: bool,
    pub(super) value: Bytes,
    /// Byte range of the value.
    pub(super) value_range: Range<usize>,
    /// Byte range of the part with the boundary before it.
    pub(super) part_range: Range<usize>,
}

fn malformed(why: &str) -> ApiError {
    ApiError::invalid("", format!("the form cannot be read: {why}"))
}

/// Returns the boundary from a `multipart/form-data` content type. `None` for other content types.
pub fn boundary(content_type: &str) -> Option<Result<String, ApiError>> {
    let mut parts = content_type.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let named = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"'))
    });
    Some(match named {
        None | Some("") => Err(malformed("the content type names no boundary")),
        Some(word) if word.len() > MAX_BOUNDARY_CHARS => {
            Err(malformed(&format!("the boundary has more than {MAX_BOUNDARY_CHARS} characters")))
        }
        Some(word) => Ok(word.to_owned()),
    })
}

/// Returns the parts of a form in order.
pub(super) fn read(body: &Bytes, boundary: &str) -> Result<Vec<FormPart>, ApiError> {
    read_parts(body, boundary).map_err(|why| malformed(&why))
}

/// Returns the parts of a form, or the reason why it cannot be read.
fn read_parts(body: &Bytes, boundary: &str) -> Result<Vec<FormPart>, String> {
    let mark = format!("--{boundary}");
    let between = format!("\r\n{mark}");
    let finder = Finder::new(between.as_bytes());
    let head_end = Finder::new(b"\r\n\r\n");
    let mut parts = Vec::new();
    // Text before the first boundary is ignored (RFC 2046, section 5.1.1).
    let mut at = match body.starts_with(mark.as_bytes()) {
        true => 0,
        false => finder.find(body).ok_or("there is no boundary in it")? + 2,
    };
    loop {
        let part_start = at;
        at += mark.len();
        let rest = body.get(at..).unwrap_or_default();
        if rest.starts_with(b"--") {
            return Ok(parts);
        }
        let rest = rest.strip_prefix(b"\r\n").ok_or("a boundary is not followed by a line end")?;
        at += 2;
        let window = rest.get(..MAX_PART_HEADER_BYTES.min(rest.len())).unwrap_or_default();
        if window.starts_with(b"\r\n") {
            return Err("a part has no name".to_owned());
        }
        let head = head_end.find(window).ok_or("the header of a part is too long")?;
        let (name, file) = read_part_header(window.get(..head).unwrap_or_default())?;
        let from = at + head + 4;
        let remainder = body.get(from..).unwrap_or_default();
        let length = finder.find(remainder).ok_or("its last boundary is missing")?;
        let value_range = from..from + length;
        at = value_range.end + 2;
        if parts.len() == MAX_PARTS {
            return Err(format!("it has more than {MAX_PARTS} parts"));
        }
        let part_range = part_start..at;
        let value = body.slice(value_range.clone());
        parts.push(FormPart { name, file, value, value_range, part_range });
    }
}

/// Returns the name of a part, and true if it is a file.
fn read_part_header(head: &[u8]) -> Result<(String, bool), &'static str> {
    let head = std::str::from_utf8(head).map_err(|_| "the header of a part is not text")?;
    let (mut name, mut file) = (None, false);
    for line in head.split("\r\n") {
        let (header, value) =
            line.split_once(':').ok_or("the header of a part has an invalid line")?;
        let value = value.trim();
        match header.trim().to_ascii_lowercase().as_str() {
            "content-type" if value.to_ascii_lowercase().starts_with("multipart/") => {
                return Err("nested multipart bodies are not supported");
            }
            "content-disposition" => (name, file) = read_disposition(value),
            _ => {}
        }
    }
    let name = name.filter(|name: &String| !name.is_empty() && name.len() <= 256);
    Ok((name.ok_or("a part has no name")?, file))
}

/// Returns the name in a content disposition, and true if there is a file name.
fn read_disposition(value: &str) -> (Option<String>, bool) {
    let (mut name, mut file, mut rest) = (None, false, value);
    while let Some((_, more)) = rest.split_once(';') {
        let Some((key, value)) = more.split_once('=') else { break };
        let (word, remainder) = match value.trim_start().strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => (value.split(';').next().unwrap_or_default(), value),
        };
        match key.trim().to_ascii_lowercase().as_str() {
            "name" => name = Some(word.trim().to_owned()),
            // The file name is ignored: it is never used as a path.
            "filename" | "filename*" => file = true,
            _ => {}
        }
        rest = remainder;
    }
    (name, file)
}

/// Writes a form.
#[derive(Debug)]
pub(super) struct FormWriter {
    boundary: String,
    pieces: Vec<u8>,
}

impl FormWriter {
    /// Creates a form with a boundary made from `word`, which must not occur in any part.
    pub(super) fn new(word: &str) -> Self {
        Self { boundary: format!("portunus-{word}"), pieces: Vec::new() }
    }

    /// Returns the content type.
    pub(super) fn content_type(&self) -> String {
        format!("multipart/form-data; boundary={}", self.boundary)
    }

    /// Adds a field.
    pub(super) fn text(&mut self, name: &str, value: &str) {
        self.part(&format!("name=\"{name}\""), "", value.as_bytes());
    }

    /// Adds a file.
    pub(super) fn file(&mut self, name: &str, filename: &str, mime: &str, bytes: &[u8]) {
        let head = format!("name=\"{name}\"; filename=\"{filename}\"");
        self.part(&head, &format!("Content-Type: {mime}\r\n"), bytes);
    }

    fn part(&mut self, disposition: &str, kind: &str, bytes: &[u8]) {
        let head = format!(
            "--{}\r\nContent-Disposition: form-data; {disposition}\r\n{kind}\r\n",
            self.boundary
        );
        self.pieces.extend_from_slice(head.as_bytes());
        self.pieces.extend_from_slice(bytes);
        self.pieces.extend_from_slice(b"\r\n");
    }

    /// Returns the finished form.
    pub(super) fn finish(mut self) -> Bytes {
        self.pieces.extend_from_slice(format!("--{}--\r\n", self.boundary).as_bytes());
        Bytes::from(self.pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORM: &str = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b\r\n\
        content-disposition: form-data; filename=\"../../x\"; name=\"image[]\"\r\n\
        Content-Type: image/png\r\n\r\n\x01\r\n\x02\r\n--b--\r\n";

    #[test]
    fn finds_parts_and_their_ranges() {
        let body = Bytes::from_static(FORM.as_bytes());
        let parts = read(&body, "b").unwrap();
        let seen: Vec<_> =
            parts.iter().map(|part| (part.name.as_str(), part.file, &part.value[..])).collect();
        assert_eq!(seen, [("model", false, &b"m"[..]), ("image[]", true, b"\x01\r\n\x02")]);
        assert_eq!(&body[parts[0].value_range.clone()], b"m");
        let mut without = body.to_vec();
        without.drain(parts[0].part_range.clone());
        assert_eq!(read(&Bytes::from(without), "b").unwrap().len(), 1);
    }

    #[test]
    fn reads_what_it_wrote() {
        let mut form = FormWriter::new("x");
        form.text("prompt", "a\r\nb");
        form.file("image", "1.png", "image/png", b"\0--portunus\r\n");
        assert_eq!(boundary(&form.content_type()).unwrap().unwrap(), "portunus-x");
        let parts = read(&form.finish(), "portunus-x").unwrap();
        assert_eq!(&parts[0].value[..], b"a\r\nb");
        assert_eq!(&parts[1].value[..], b"\0--portunus\r\n");
    }

    #[test]
    fn rejects_malformed_forms() {
        let long = format!("--b\r\nX: {}\r\n\r\n\r\n--b--", "a".repeat(MAX_PART_HEADER_BYTES));
        let many = format!(
            "{}--b--",
            "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n".repeat(MAX_PARTS + 1)
        );
        let cut: String = FORM.chars().take(60).collect();
        let nested = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\
            Content-Type: multipart/mixed; boundary=c\r\n\r\n\r\n--b--";
        for body in ["", "no", "--b", "--b\r\n\r\nx\r\n--b--", &long, &many, nested, &cut] {
            assert!(read(&Bytes::from(body.to_owned()), "b").is_err(), "{body:.60}");
        }
        assert!(boundary("application/json").is_none());
        assert!(boundary("multipart/form-data").unwrap().is_err());
        let long = format!("multipart/form-data; boundary={}", "b".repeat(MAX_BOUNDARY_CHARS + 1));
        assert!(boundary(&long).unwrap().is_err());
    }

    proptest! {
        #[test]
        fn never_panics_on_arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0_usize..200) {
            let mut body = FORM.as_bytes().to_vec();
            let at = at.min(body.len());
            body.splice(at..at, bytes);
            let _ = read(&Bytes::from(body), "b");
        }
    }
}
