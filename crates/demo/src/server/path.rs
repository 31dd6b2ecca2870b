//! Paths of the upstream: their format and their operation.

use canon::WireFormat;
use dialects::RequestTarget;
use dialects::embeddings::EmbeddingEndpoint;

/// Operation of a path, and the format of its errors.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PathTarget {
    pub(super) origin: WireFormat,
    pub(super) operation: Operation,
}

/// Operation of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// A chat answer.
    Answer(RequestTarget),
    /// A token count.
    Count(RequestTarget),
    /// Embeddings.
    Embeddings(EmbeddingEndpoint, RequestTarget),
    /// Images; true for an edit.
    Pictures(bool),
    /// State of an image task.
    Task(String),
    /// An image behind a URL.
    File(String),
    /// The list of models.
    Models,
    /// One model of the list.
    Model(String),
    /// The meter.
    Meter,
    /// The list of faults.
    Faults,
    /// Unknown path.
    Nothing,
}

/// Looks up a path.
pub(super) fn find(path: &str, query: Option<&str>) -> PathTarget {
    let plain = RequestTarget::default;
    let place = |origin, operation| PathTarget { origin, operation };
    match path {
        "/v1/chat/completions" => place(WireFormat::Chat, Operation::Answer(plain())),
        "/v1/responses" => place(WireFormat::Responses, Operation::Answer(plain())),
        "/v1/responses/input_tokens" => place(WireFormat::Responses, Operation::Count(plain())),
        "/v1/messages" => place(WireFormat::Messages, Operation::Answer(plain())),
        "/v1/messages/count_tokens" => place(WireFormat::Messages, Operation::Count(plain())),
        "/v1/embeddings" => {
            place(WireFormat::Chat, Operation::Embeddings(EmbeddingEndpoint::OpenAi, plain()))
        }
        "/v1/images/generations" => place(WireFormat::Images, Operation::Pictures(false)),
        "/v1/images/edits" => place(WireFormat::Images, Operation::Pictures(true)),
        "/v1/models" => place(WireFormat::Chat, Operation::Models),
        "/meter" => place(WireFormat::Chat, Operation::Meter),
        "/faults" => place(WireFormat::Chat, Operation::Faults),
        _ => kept(path).unwrap_or_else(|| below_models(path, query)),
    }
}

/// Returns the place of a stored image or task.
fn kept(path: &str) -> Option<PathTarget> {
    let task = path.strip_prefix("/v1/images/generations/").map(str::to_owned).map(Operation::Task);
    let file = || path.strip_prefix("/pictures/").map(str::to_owned).map(Operation::File);
    Some(PathTarget { origin: WireFormat::Images, operation: task.or_else(file)? })
}

/// Returns the format of a path, and the model in it.
pub(crate) fn model_of(path: &str, query: Option<&str>) -> (WireFormat, Option<String>) {
    let PathTarget { origin, operation } = find(path, query);
    let model = match operation {
        Operation::Answer(target) | Operation::Count(target) | Operation::Embeddings(_, target) => {
            target.model
        }
        Operation::Pictures(_)
        | Operation::Task(_)
        | Operation::File(_)
        | Operation::Models
        | Operation::Model(_)
        | Operation::Meter
        | Operation::Faults
        | Operation::Nothing => None,
    };
    (origin, model)
}

/// `/v1beta/models/{model}:{operator}`, the same under `/v1`, or one model of the list.
fn below_models(path: &str, query: Option<&str>) -> PathTarget {
    let native = path.starts_with("/v1beta/");
    let rest = path.strip_prefix("/v1beta/models/").or_else(|| path.strip_prefix("/v1/models/"));
    // The operator follows the last colon: a model id may contain colons.
    let named = rest.and_then(|rest| rest.rsplit_once(':'));
    let target = |model: &str, stream: bool| RequestTarget {
        model: Some(decoded(model)),
        stream,
        json_array: stream && !is_sse(query),
        ..RequestTarget::default()
    };
    let operation = match (named, rest) {
        (Some((model, "generateContent")), _) => Operation::Answer(target(model, false)),
        (Some((model, "streamGenerateContent")), _) => Operation::Answer(target(model, true)),
        (Some((model, "countTokens")), _) => Operation::Count(target(model, false)),
        (Some((model, "embedContent")), _) => {
            Operation::Embeddings(EmbeddingEndpoint::EmbedContent, target(model, false))
        }
        (Some((model, "batchEmbedContents")), _) => {
            Operation::Embeddings(EmbeddingEndpoint::BatchEmbedContents, target(model, false))
        }
        (_, Some(model)) if !native && !model.is_empty() => {
            return PathTarget {
                origin: WireFormat::Chat,
                operation: Operation::Model(decoded(model)),
            };
        }
        (_, _) => {
            let origin = if native {
                WireFormat::Native
            } else if path.starts_with("/v1/messages") {
                WireFormat::Messages
            } else {
                WireFormat::Chat
            };
            return PathTarget { origin, operation: Operation::Nothing };
        }
    };
    PathTarget { origin: WireFormat::Native, operation }
}

fn is_sse(query: Option<&str>) -> bool {
    query.unwrap_or_default().split('&').any(|pair| pair == "alt=sse")
}

/// Decodes a percent-encoded path segment; an invalid one stays unchanged.
fn decoded(segment: &str) -> String {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [first, after @ ..] = rest {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
        rest = match (first, after) {
            (b'%', [high, low, behind @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => {
                    bytes.push(high * 16 + low);
                    behind
                }
                _ => {
                    bytes.push(*first);
                    after
                }
            },
            _ => {
                bytes.push(*first);
                after
            }
        };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| segment.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_is_what_follows_the_last_colon() {
        let place = find("/v1beta/models/a%2Fb:c:streamGenerateContent", Some("key=1&alt=sse"));
        let target = RequestTarget {
            model: Some("a/b:c".to_owned()),
            stream: true,
            ..RequestTarget::default()
        };
        assert_eq!(
            place,
            PathTarget { origin: WireFormat::Native, operation: Operation::Answer(target) }
        );
        let place = find("/v1/models/x:generateContent", None);
        assert_eq!(place.origin, WireFormat::Native);
        let place = find("/v1/models/org/x", None);
        assert_eq!(place.operation, Operation::Model("org/x".to_owned()));
    }

    #[test]
    fn an_unknown_path_is_refused_in_the_format_it_resembles() {
        assert_eq!(find("/v1beta/nothing", None).origin, WireFormat::Native);
        assert_eq!(find("/v1/messages/batches", None).origin, WireFormat::Messages);
        assert_eq!(find("/", None).origin, WireFormat::Chat);
        assert_eq!(find("/", None).operation, Operation::Nothing);
    }
}
