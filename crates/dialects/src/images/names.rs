//! Constants that the readers and the writers of image requests share.

use canon::WireFormat;

/// This format, as other formats name it.
pub(super) const ORIGIN: WireFormat = WireFormat::Images;

/// Path for new images, <https://platform.openai.com/docs/api-reference/images/create>.
pub(super) const GENERATIONS_PATH: &str = "/v1/images/generations";

/// Ending of the path for new images at providers with a prefix of their own.
pub const PATH_ENDING: &str = "/images/generations";

/// Path for edits, <https://platform.openai.com/docs/api-reference/images/createEdit>.
pub(super) const EDITS_PATH: &str = "/v1/images/edits";

/// Loss text for a field that a family does not have.
pub(super) const NO_SUCH_FIELD: &str = "this family of models has no such field";
