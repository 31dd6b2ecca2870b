//! Files in the texts of a request: base64, or URLs of the scheme `data` (RFC 2397).
//!
//! Readers are lenient: some skip characters that base64 does not have, and some take a file for what
//! its declared type says, whatever it begins with. The size is that of the most lenient one.

use memchr::memmem;

use crate::base64_text::decode_any_base64;
use crate::{MediaSize, base64_image_info, media_size};

/// A text of fewer characters may be a word. A file that short is recognised by its begin.
const MIN_DATA_CHARS: u64 = 64;
/// The begin of a document, `%PDF-`, in base64 at each of the three positions.
const PDF_NEEDLES: [&[u8]; 3] = [b"JVBERi", b"UERGL", b"QREYt"];
/// A shorter run of letters is no text: it occurs in any file.
const MIN_TEXT_RUN: u64 = 8;

/// A file in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineFile {
    /// Its size; `None` if it cannot be measured.
    pub size: Option<MediaSize>,
    /// Bytes that a reader takes for text if the type of the file is declared to be one.
    pub text: u64,
    /// Characters of the data.
    pub chars: u64,
}

/// Measures the file in a text; `None` if the text is none. `may_be_text` tells that the type of a file
/// without a type of its own may be declared to be a text.
pub fn inline_file(text: &str, may_be_text: impl FnOnce() -> bool) -> Option<InlineFile> {
    let (head, data) = split_data_url(text);
    let chars = data.len() as u64;
    if head.is_some_and(|head| !contains_word(head, "base64")) {
        let size = media_size(&percent_decoded(data));
        let is_text = matches!(size, Some(MediaSize::Text(_)));
        let is_file = !is_text && (size.is_some() || chars >= MIN_DATA_CHARS);
        return is_file.then_some(InlineFile { size, text: chars, chars });
    }
    let may_be_text = head.map_or_else(may_be_text, declares_text);
    // A picture is measured by its header, unless a document may be behind it.
    if !may_be_text
        && let Some(info) = base64_image_info(data)
        && !PDF_NEEDLES.iter().any(|needle| memmem::find(data.as_bytes(), needle).is_some())
    {
        return Some(InlineFile { size: Some(MediaSize::Image(info.size)), text: 0, chars });
    }
    let is_own = |byte: u8| is_letter(byte) || byte == b'=' || byte.is_ascii_whitespace();
    let is_clean = data.bytes().all(is_own);
    let file = decoded(data);
    let mut size = media_size(&file);
    let mut is_file = match size {
        None => chars >= MIN_DATA_CHARS && (is_clean || head.is_some()),
        Some(MediaSize::Text(bytes)) => is_clean && bytes > 0,
        Some(_) => true,
    };
    // Readers end at padding, or skip it.
    if let Some((before, behind)) = data.split_once('=')
        && behind.bytes().any(is_letter)
    {
        let is_other = |size: MediaSize| !matches!(size, MediaSize::Text(_));
        is_file |= media_size(&decoded(before)).is_some_and(is_other);
        size = None;
    }
    let text = if may_be_text { text_bytes(&file) } else { 0 };
    is_file.then_some(InlineFile { size, text, chars })
}

/// Returns the head and the data of a URL of the scheme `data`; no head for any other text. The head may
/// have commas in quotes.
fn split_data_url(text: &str) -> (Option<&str>, &str) {
    let url = match text.split_at_checked(5) {
        Some((scheme, url)) if scheme.eq_ignore_ascii_case("data:") => url,
        _ => return (None, text),
    };
    let (head, data) = url.split_once(',').unwrap_or((url, ""));
    let mark = if contains_word(head, "base64") { None } else { find_word(data, "base64,") };
    let whole = mark.and_then(|at| url.split_at_checked(head.len() + 1 + at + "base64,".len()));
    let (head, data) = whole.unwrap_or((head, data));
    (Some(head), data)
}

fn find_word(text: &str, word: &str) -> Option<usize> {
    text.as_bytes().windows(word.len()).position(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

fn contains_word(text: &str, word: &str) -> bool {
    find_word(text, word).is_some()
}

/// Returns true if the type of a file may be one that is read as text.
fn declares_text(head: &str) -> bool {
    let kinds = ["image/", "audio/", "video/", "application/pdf"];
    let is_kind =
        |kind: &&str| head.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind));
    !kinds.iter().any(is_kind)
}

const fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

/// Decodes letters of both alphabets, and skips everything else.
fn decoded(letters: &str) -> Vec<u8> {
    if let Some(file) = decode_any_base64(letters) {
        return file;
    }
    let standard = |byte: u8| match byte {
        b'-' => '+',
        b'_' => '/',
        byte => char::from(byte),
    };
    let mut clean: String = letters.bytes().filter(|byte| is_letter(*byte)).map(standard).collect();
    // The last letter alone is no byte, and the bits behind the last byte are of no use.
    clean.truncate(clean.len() / 4 * 4);
    decode_any_base64(&clean).unwrap_or_default()
}

fn percent_decoded(data: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(data.len());
    let mut rest = data.as_bytes();
    while let [byte, tail @ ..] = rest {
        let code = tail.get(..2).filter(|_| *byte == b'%');
        let code =
            code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*byte));
        rest = if code.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    bytes
}

/// Bytes in runs of letters. Files of another kind have hardly any.
fn text_bytes(file: &[u8]) -> u64 {
    let is_control = |byte: &u8| *byte < b' ' && !byte.is_ascii_whitespace();
    let runs = file.utf8_chunks().flat_map(|chunk| chunk.valid().as_bytes().split(is_control));
    runs.map(|run| run.len() as u64).filter(|length| *length >= MIN_TEXT_RUN).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode_base64;

    fn size_of(text: &str) -> Option<MediaSize> {
        inline_file(text, || false).and_then(|file| file.size)
    }

    fn pdf() -> Vec<u8> {
        b"%PDF-1.7\n1 0 obj << /Pages 2 0 R >> endobj 2 0 obj << /Kids [3 0 R 3 0 R] >> endobj \
          3 0 obj << /Type /Page >> endobj trailer << /Root 1 0 R >>"
            .to_vec()
    }

    #[test]
    fn needles_are_found_at_every_position() {
        for before in ["", "x", "xy", "xyz", "wxyz"] {
            let text = encode_base64(format!("{before}%PDF-1.7"));
            let is_found = |needle: &&[u8]| memmem::find(text.as_bytes(), needle).is_some();
            assert!(PDF_NEEDLES.iter().any(is_found), "{text}");
        }
    }

    #[test]
    fn texts_are_no_files() {
        let words = "A plain text of a document, with as many words as it likes to have in it.";
        for text in [words, "short", "data:text/plain,with%20words%20and%20words", ""] {
            assert_eq!(inline_file(text, || true), None, "{text}");
        }
    }

    /// Readers skip blanks and other characters, take both alphabets, and know heads of any form.
    #[test]
    fn a_file_is_measured_however_it_is_written() {
        let data = encode_base64(pdf());
        let want = Some(MediaSize::Pages { pages: 2, text: 0 });
        let percent: String = pdf().iter().map(|byte| format!("%{byte:02X}")).collect();
        let broken: String = data
            .as_bytes()
            .chunks(7)
            .flat_map(|part| [part, b" \t!\n"].concat())
            .map(char::from)
            .collect();
        for text in [
            data.clone(),
            data.trim_end_matches('=').to_owned(),
            data.replace('+', "-").replace('/', "_"),
            format!("{data}="),
            data.replace("Pag", "P a g").replace('A', "A\r\n"),
            broken,
            format!("data:application/pdf;base64,{data}"),
            format!("DATA:application/pdf;x=\"y\";BASE64,{data}"),
            format!("data:application/pdf;x=\"a,b\";base64,{data}"),
            format!("data:;base64,{data}"),
            format!("data:application/pdf,{percent}"),
        ] {
            assert_eq!(size_of(&text), want, "{text}");
        }
        let inside = data.replace('J', "J=");
        for text in [format!("AAAA=={data}"), format!("{data}=AAAA!"), inside.clone(), inside + "!"]
        {
            let file = inline_file(&text, || false).unwrap();
            assert_eq!(file.size, None, "{text}");
        }
        let packed = format!("data:application/zip,PK%03%04{}", "%00".repeat(40));
        assert_eq!(inline_file(&packed, || false).unwrap().size, None);
        let unknown = inline_file(&encode_base64([0_u8; 100]), || false).unwrap();
        assert_eq!((unknown.size, unknown.chars), (None, 136));
        // A picture of few bytes and many pixels.
        let gif = encode_base64(b"GIF89a\xff\xff\xff\xff\0\0\0;");
        assert_eq!(size_of(&gif), Some(MediaSize::Image(Some((65_535, 65_535)))));
    }

    /// The begin of a picture before a text that is declared as one.
    #[test]
    fn a_text_behind_another_begin_counts_as_text() {
        let file = [b"GIF89a\x01\0\x01\0\0\0\0".to_vec(), b"A long text. ".repeat(100)].concat();
        let data = encode_base64(&file);
        let of = |text: &str, may_be_text| inline_file(text, || may_be_text).unwrap().text;
        assert!(of(&data, true) >= 1_300);
        assert!(of(&format!("data:text/plain;base64,{data}"), false) >= 1_300);
        assert_eq!(of(&format!("data:image/gif;base64,{data}"), true), 0);
        let noise: Vec<u8> =
            (0..9_999_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let noise = [b"GIF89a\x01\0\x01\0".to_vec(), noise].concat();
        let text = of(&encode_base64(&noise), true);
        assert!(text < 1_000, "{text}");
    }
}
