//! Paths of the upstream: their format and their operation.

use canon::Origin;
use dialects::Target;
use dialects::embeddings::Form;

/// Operation of a path, and the format of its errors.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PathTarget {
    pub(super) origin: Origin,
    pub(super) operation: Operation,
}

/// Operation of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// A chat answer.
    Answer(Target),
    /// A token count.
    Count(Target),
    /// Embeddings.
    Embeddings(Form, Target),
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
    let plain = Target::default;
    let place = |origin, operation| PathTarget { origin, operation };
    match path {
        "/v1/chat/completions" => place(Origin::Chat, Operation::Answer(plain())),
        "/v1/responses" => place(Origin::Responses, Operation::Answer(plain())),
        "/v1/responses/input_tokens" => place(Origin::Responses, Operation::Count(plain())),
        "/v1/messages" => place(Origin::Messages, Operation::Answer(plain())),
        "/v1/messages/count_tokens" => place(Origin::Messages, Operation::Count(plain())),
        "/v1/embeddings" => place(Origin::Chat, Operation::Embeddings(Form::List, plain())),
        "/v1/images/generations" => place(Origin::Images, Operation::Pictures(false)),
        "/v1/images/edits" => place(Origin::Images, Operation::Pictures(true)),
        "/v1/models" => place(Origin::Chat, Operation::Models),
        "/meter" => place(Origin::Chat, Operation::Meter),
        "/faults" => place(Origin::Chat, Operation::Faults),
        _ => kept(path).unwrap_or_else(|| below_models(path, query)),
    }
}

/// Returns the place of a stored image or task.
fn kept(path: &str) -> Option<PathTarget> {
    let task = path.strip_prefix("/v1/images/generations/").map(str::to_owned).map(Operation::Task);
    let file = || path.strip_prefix("/pictures/").map(str::to_owned).map(Operation::File);
    Some(PathTarget { origin: Origin::Images, operation: task.or_else(file)? })
}

/// Returns the format of a path, and the model in it.
pub(crate) fn model_of(path: &str, query: Option<&str>) -> (Origin, Option<String>) {
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
    let target = |model: &str, stream: bool| Target {
        model: Some(decoded(model)),
        stream,
        array: stream && !is_sse(query),
        ..Target::default()
    };
    let operation = match (named, rest) {
        (Some((model, "generateContent")), _) => Operation::Answer(target(model, false)),
        (Some((model, "streamGenerateContent")), _) => Operation::Answer(target(model, true)),
        (Some((model, "countTokens")), _) => Operation::Count(target(model, false)),
        (Some((model, "embedContent")), _) => {
            Operation::Embeddings(Form::One, target(model, false))
        }
        (Some((model, "batchEmbedContents")), _) => {
            Operation::Embeddings(Form::Batch, target(model, false))
        }
        (_, Some(model)) if !native && !model.is_empty() => {
            return PathTarget {
                origin: Origin::Chat,
                operation: Operation::Model(decoded(model)),
            };
        }
        (_, _) => {
            let origin = if native {
                Origin::Native
            } else if path.starts_with("/v1/messages") {
                Origin::Messages
            } else {
                Origin::Chat
            };
            return PathTarget { origin, operation: Operation::Nothing };
        }
    };
    PathTarget { origin: Origin::Native, operation }
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
        let target = Target { model: Some("a/b:c".to_owned()), stream: true, ..Target::default() };
        assert_eq!(
            place,
            PathTarget { origin: Origin::Native, operation: Operation::Answer(target) }
        );
        let place = find("/v1/models/x:generateContent", None);
        assert_eq!(place.origin, Origin::Native);
        let place = find("/v1/models/org/x", None);
        assert_eq!(place.operation, Operation::Model("org/x".to_owned()));
    }

    #[test]
    fn an_unknown_path_is_refused_in_the_format_it_resembles() {
        assert_eq!(find("/v1beta/nothing", None).origin, Origin::Native);
        assert_eq!(find("/v1/messages/batches", None).origin, Origin::Messages);
        assert_eq!(find("/", None).origin, Origin::Chat);
        assert_eq!(find("/", None).operation, Operation::Nothing);
    }
}
