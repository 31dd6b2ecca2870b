//! Detects the type and size of an image from its first bytes. Pixels are never decoded.

use crate::array;
use crate::base64_text::decode_base64;

/// Properties found in the header of an image file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    /// File format in the API's words: `png`, `jpeg`, `webp` or `gif`.
    pub format: &'static str,
    /// Width and height, if the header has them.
    pub size: Option<(u32, u32)>,
    /// True if the image may have transparent pixels.
    pub alpha: bool,
}

impl ImageInfo {
    /// Returns the media type.
    pub fn mime(&self) -> String {
        format!("image/{}", self.format)
    }
}

/// Number of bytes examined. A JPEG may have large metadata before its size.
const MAX_HEADER_BYTES: usize = 256 << 10;

/// Reads the header of an image. `None` for an unsupported format.
pub fn image_info(bytes: &[u8]) -> Option<ImageInfo> {
    let bytes = bytes.get(..MAX_HEADER_BYTES.min(bytes.len()))?;
    Some(match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => png(bytes),
        [0xff, 0xd8, 0xff, ..] => ImageInfo { format: "jpeg", size: jpeg(bytes), alpha: false },
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => webp(bytes),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => {
            ImageInfo { format: "gif", size: gif(bytes), alpha: false }
        }
        _ => return None,
    })
}

/// Reads the header of a base64-encoded image.
pub fn base64_image_info(data: &str) -> Option<ImageInfo> {
    // Four characters encode three bytes, and only whole groups can be decoded (RFC 4648).
    let most = (MAX_HEADER_BYTES / 3 * 4).min(data.len()) / 4 * 4;
    let head = data.get(..most)?;
    image_info(&decode_base64(head)?)
}

/// Returns the size of the screen, or of the first frame if that is larger: some readers grow the
/// screen (<https://www.w3.org/Graphics/GIF/spec-gif89a.txt>, sections 18 and 20).
fn gif(bytes: &[u8]) -> Option<(u32, u32)> {
    let side = |at: usize| Some(u32::from(u16::from_le_bytes(array(bytes, at)?)));
    let colours = |at: usize| {
        let flags = bytes.get(at).filter(|flags| **flags & 0x80 != 0);
        flags.map_or(0, |flags| 6_usize << (flags & 7))
    };
    let (mut width, mut height) = side(6).zip(side(8))?;
    let mut at = 13 + colours(10);
    // Extensions: a mark, a label, and blocks up to an empty one.
    while bytes.get(at) == Some(&0x21) {
        at += 2;
        while let Some(length) = bytes.get(at).filter(|length| **length > 0) {
            at += 1 + usize::from(*length);
        }
        at += 1;
    }
    if bytes.get(at) == Some(&0x2c) {
        width = width.max(side(at + 1)? + side(at + 5)?);
        height = height.max(side(at + 3)? + side(at + 7)?);
    }
    Some((width, height))
}

fn png(bytes: &[u8]) -> ImageInfo {
    let side = |at| Some(u32::from_be_bytes(array(bytes, at)?));
    let kind = bytes.get(25).copied().unwrap_or_default();
    // A `tRNS` chunk makes palette and RGB images transparent. See
    // <https://www.w3.org/TR/png-3/#11tRNS>.
    let chunk = memchr::memmem::find(bytes, b"tRNS").is_some();
    ImageInfo { format: "png", size: side(16).zip(side(20)), alpha: matches!(kind, 4 | 6) || chunk }
}

/// Returns the size from the first frame header, after segments that each state their length.
fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2_usize;
    loop {
        let [mark, kind] = array(bytes, at)?;
        if mark != 0xff {
            return None;
        }
        match kind {
            0xff => at += 1,
            0xd8 | 0x01 | 0xd0..=0xd7 => at += 2,
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                let height = u16::from_be_bytes(array(bytes, at + 5)?);
                let width = u16::from_be_bytes(array(bytes, at + 7)?);
                // A height of zero stands behind the first scan.
                return (width > 0 && height > 0).then(|| (width.into(), height.into()));
            }
            _ => at += 2 + usize::from(u16::from_be_bytes(array(bytes, at + 2)?)),
        }
    }
}

fn webp(bytes: &[u8]) -> ImageInfo {
    let wide = |at| Some(u32::from(u16::from_le_bytes(array(bytes, at)?)) & 0x3fff);
    let long = |at| {
        let [a, b, c] = array(bytes, at)?;
        Some(u32::from_le_bytes([a, b, c, 0]) + 1)
    };
    let (size, alpha) = match bytes.get(12..16) {
        Some(b"VP8 ") => (wide(26).zip(wide(28)), false),
        Some(b"VP8L") => {
            let bits = array(bytes, 21).map(u32::from_le_bytes);
            let size = bits.map(|bits| ((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1));
            (size, bits.is_some_and(|bits| bits >> 28 & 1 == 1))
        }
        Some(b"VP8X") => {
            let flags = bytes.get(20).copied().unwrap_or_default();
            (long(24).zip(long(27)), flags & 0x10 != 0)
        }
        _ => (None, false),
    };
    ImageInfo { format: "webp", size, alpha }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode_base64;
    use proptest::prelude::*;

    #[test]
    fn reads_format_and_size() {
        let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x04\0\0\0\x03\0\x08\x06".to_vec();
        let expected = ImageInfo { format: "png", size: Some((1_024, 768)), alpha: true };
        assert_eq!(image_info(&png), Some(expected));
        assert_eq!(base64_image_info(&encode_base64(&png)), Some(expected));
        png[25] = 2;
        assert!(!image_info(&png).unwrap().alpha);
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x11\x08\x01\0\x02\0";
        assert_eq!(image_info(jpeg).unwrap().size, Some((512, 256)));
        let webp = b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\x10\0\0\0\x3f\0\0\x1f\0\0";
        let expected = ImageInfo { format: "webp", size: Some((64, 32)), alpha: true };
        assert_eq!(image_info(webp), Some(expected));
        assert_eq!(image_info(b"GIF89a\x02\0\x01\0").unwrap().size, Some((2, 1)));
        let gif = b"GIF89a\x02\0\x01\0\x80\0\0......!\xf9\x04....\0,\0\0\x01\0\x09\0\x08\0";
        assert_eq!(image_info(gif).unwrap().size, Some((9, 9)));
        let jpeg = b"\xff\xd8\xff\xc2\0\x11\x08\0\0\x02\0";
        assert_eq!(image_info(jpeg).unwrap().size, None);
        assert_eq!(image_info(b"<svg/>"), None);
        assert_eq!(image_info(b"MM\0*"), None);
    }

    proptest! {
        #[test]
        fn never_panics_on_arbitrary_bytes(front in 0_usize..4, rest in prop::collection::vec(any::<u8>(), 0..64)) {
            let fronts: [&[u8]; 4] =
                [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF\0\0\0\0WEBPVP8L", b"GIF89a"];
            image_info(&[fronts[front], &rest].concat());
        }
    }
}
