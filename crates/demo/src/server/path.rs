//! Which format and what a path asks for.

use canon::Origin;
use dialects::Target;
use dialects::embeddings::Form;

/// What a path asks for, and the format in which its errors are told.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) origin: Origin,
    pub(super) wanted: Wanted,
}

/// What a path asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// An answer of the model.
    Answer(Target),
    /// The input tokens of a request.
    Count(Target),
    /// Vectors.
    Embeddings(Form, Target),
    /// Pictures; whether as an edit.
    Pictures(bool),
    /// What became of an order for pictures.
    Task(String),
    /// A picture behind a link.
    File(String),
    /// The list of models.
    Models,
    /// One model of the list.
    Model(String),
    /// What was served.
    Meter,
    /// The faults there are.
    Faults,
    /// Nothing that is here.
    Nothing,
}

/// Looks a path up.
pub(super) fn find(path: &str, query: Option<&str>) -> Place {
    let plain = Target::default;
    let place = |origin, wanted| Place { origin, wanted };
    match path {
        "/v1/chat/completions" => place(Origin::Chat, Wanted::Answer(plain())),
        "/v1/responses" => place(Origin::Responses, Wanted::Answer(plain())),
        "/v1/responses/input_tokens" => place(Origin::Responses, Wanted::Count(plain())),
        "/v1/messages" => place(Origin::Messages, Wanted::Answer(plain())),
        "/v1/messages/count_tokens" => place(Origin::Messages, Wanted::Count(plain())),
        "/v1/embeddings" => place(Origin::Chat, Wanted::Embeddings(Form::List, plain())),
        "/v1/images/generations" => place(Origin::Images, Wanted::Pictures(false)),
        "/v1/images/edits" => place(Origin::Images, Wanted::Pictures(true)),
        "/v1/models" => place(Origin::Chat, Wanted::Models),
        "/meter" => place(Origin::Chat, Wanted::Meter),
        "/faults" => place(Origin::Chat, Wanted::Faults),
        _ => kept(path).unwrap_or_else(|| below_models(path, query)),
    }
}

/// What was kept of an order for pictures.
fn kept(path: &str) -> Option<Place> {
    let task = path.strip_prefix("/v1/images/generations/").map(str::to_owned).map(Wanted::Task);
    let file = || path.strip_prefix("/pictures/").map(str::to_owned).map(Wanted::File);
    Some(Place { origin: Origin::Images, wanted: task.or_else(file)? })
}

/// The format of a path, and the model it names.
pub(crate) fn model_of(path: &str, query: Option<&str>) -> (Origin, Option<String>) {
    let Place { origin, wanted } = find(path, query);
    let model = match wanted {
        Wanted::Answer(target) | Wanted::Count(target) | Wanted::Embeddings(_, target) => {
            target.model
        }
        Wanted::Pictures(_)
        | Wanted::Task(_)
        | Wanted::File(_)
        | Wanted::Models
        | Wanted::Model(_)
        | Wanted::Meter
        | Wanted::Faults
        | Wanted::Nothing => None,
    };
    (origin, model)
}

/// `/v1beta/models/{model}:{operator}`, the same under `/v1`, or one model of the list.
fn below_models(path: &str, query: Option<&str>) -> Place {
    let native = path.starts_with("/v1beta/");
    let rest = path.strip_prefix("/v1beta/models/").or_else(|| path.strip_prefix("/v1/models/"));
    // The operator is what follows the last colon: a model id may have colons of its own.
    let named = rest.and_then(|rest| rest.rsplit_once(':'));
    let target = |model: &str, stream: bool| Target {
        model: Some(decoded(model)),
        stream,
        array: stream && !is_sse(query),
        ..Target::default()
    };
    let wanted = match (named, rest) {
        (Some((model, "generateContent")), _) => Wanted::Answer(target(model, false)),
        (Some((model, "streamGenerateContent")), _) => Wanted::Answer(target(model, true)),
        (Some((model, "countTokens")), _) => Wanted::Count(target(model, false)),
        (Some((model, "embedContent")), _) => Wanted::Embeddings(Form::One, target(model, false)),
        (Some((model, "batchEmbedContents")), _) => {
            Wanted::Embeddings(Form::Batch, target(model, false))
        }
        (_, Some(model)) if !native && !model.is_empty() => {
            return Place { origin: Origin::Chat, wanted: Wanted::Model(decoded(model)) };
        }
        (_, _) => {
            let origin = if native {
                Origin::Native
            } else if path.starts_with("/v1/messages") {
                Origin::Messages
            } else {
                Origin::Chat
            };
            return Place { origin, wanted: Wanted::Nothing };
        }
    };
    Place { origin: Origin::Native, wanted }
}

fn is_sse(query: Option<&str>) -> bool {
    query.unwrap_or_default().split('&').any(|pair| pair == "alt=sse")
}

/// A path segment with its percent signs undone; a broken one stays as it is.
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
        assert_eq!(place, Place { origin: Origin::Native, wanted: Wanted::Answer(target) });
        let place = find("/v1/models/x:generateContent", None);
        assert_eq!(place.origin, Origin::Native);
        let place = find("/v1/models/org/x", None);
        assert_eq!(place.wanted, Wanted::Model("org/x".to_owned()));
    }

    #[test]
    fn an_unknown_path_is_refused_in_the_format_it_resembles() {
        assert_eq!(find("/v1beta/nothing", None).origin, Origin::Native);
        assert_eq!(find("/v1/messages/batches", None).origin, Origin::Messages);
        assert_eq!(find("/", None).origin, Origin::Chat);
        assert_eq!(find("/", None).wanted, Wanted::Nothing);
    }
}
