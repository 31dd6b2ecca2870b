//! The functions by which a wire format is translated through `canon`.

use canon::{ApiError, ChatReply, ChatRequest, Lossy, Media, Part, Role};

use crate::media_problem::MediaProblem;
use crate::{
    LaneSettings, ParsedRequest, ProviderRequest, ReplyStamp, RequestTarget, RequestUse,
    StreamReader, StreamWriter,
};

/// Writes a request for a lane.
type RequestWriter =
    fn(&ChatRequest, &LaneSettings<'_>) -> Result<Lossy<ProviderRequest>, ApiError>;

/// The functions of a wire format. [`crate::Dialect`] documents them.
#[derive(Debug)]
pub struct FormatFunctions {
    pub(crate) parse: fn(&RequestTarget, &[u8], RequestUse<'_>) -> Result<ParsedRequest, ApiError>,
    pub(crate) write_request: RequestWriter,
    pub(crate) media_problem: fn(&Part, &Media, Role) -> Option<MediaProblem>,
    pub(crate) read_reply: fn(&[u8]) -> Result<ChatReply, ApiError>,
    pub(crate) write_reply: fn(ChatReply, &ChatRequest, &ReplyStamp) -> Lossy<Vec<u8>>,
    pub(crate) stream_reader: fn() -> Box<dyn StreamReader>,
    pub(crate) stream_writer: fn(&ChatRequest, &ReplyStamp) -> Box<dyn StreamWriter>,
    pub(crate) read_error: fn(u16, &[u8]) -> ApiError,
    pub(crate) write_error: fn(&ApiError, &str) -> (u16, Vec<u8>),
}
