//! Files as base64 (RFC 4648).

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::engine::{DecodePaddingMode, Engine as _};

/// Base64 with or without padding.
const OPTIONAL_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// Standard alphabet, with optional padding.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, OPTIONAL_PADDING);

/// Decodes base64. `None` if it is invalid.
pub fn decode_base64(data: &str) -> Option<Vec<u8>> {
    LENIENT_BASE64.decode(data).ok()
}

/// Decodes base64 in either alphabet, padded or not; `None` for anything else.
pub fn decode_any_base64(data: &str) -> Option<Vec<u8>> {
    let is_url_safe = data.contains(['-', '_']);
    let alphabet = if is_url_safe { &alphabet::URL_SAFE } else { &alphabet::STANDARD };
    GeneralPurpose::new(alphabet, OPTIONAL_PADDING).decode(data).ok()
}

/// Encodes bytes as base64.
pub fn encode_base64(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}
