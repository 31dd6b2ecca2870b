//! `POST /v1/embeddings`: vectors from the words of a text, so that texts with common words are
//! near each other.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canon::Fault;
use serde_json::Value;

use crate::dice::{self, Dice};
use crate::tokens;

const DIMENSIONS: usize = 256;
const MOST_DIMENSIONS: usize = 4_096;
const MOST_INPUTS: usize = 2_048;
/// Words beyond this many add nothing to a vector but time.
const MOST_WORDS: usize = 2_000;

/// An answer: the body, the model asked for and the tokens it read.
pub(super) struct Embedded {
    pub(super) body: String,
    pub(super) model: String,
    pub(super) tokens: u64,
}

/// Answers a request for embeddings.
pub(super) fn serve(body: &[u8]) -> Result<Embedded, Fault> {
    let text = dialects::json::text(body)?;
    let request: Value =
        serde_json::from_str(text).map_err(|_| Fault::invalid("", "the body is not valid JSON"))?;
    let model = match request.get("model") {
        Some(Value::String(model)) if !model.is_empty() => model.clone(),
        _ => return Err(Fault::invalid("model", "`model` is required")),
    };
    let dimensions = match request.get("dimensions") {
        None | Some(Value::Null) => DIMENSIONS,
        Some(number) => number
            .as_u64()
            .and_then(|number| usize::try_from(number).ok())
            .filter(|number| (1..=MOST_DIMENSIONS).contains(number))
            .ok_or_else(|| {
                let most = format!("`dimensions` must be between 1 and {MOST_DIMENSIONS}");
                Fault::invalid("dimensions", most)
            })?,
    };
    let packed = match request.get("encoding_format").map(Value::as_str) {
        None | Some(Some("float")) => false,
        Some(Some("base64")) => true,
        Some(_) => {
            return Err(Fault::invalid(
                "encoding_format",
                "`encoding_format` must be `float` or `base64`",
            ));
        }
    };
    let inputs = inputs(request.get("input"))?;
    let mut total = 0;
    let mut data = Vec::with_capacity(inputs.len());
    for (index, input) in inputs.iter().enumerate() {
        total += input.tokens();
        let vector = input.vector(dimensions);
        let embedding = if packed {
            let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
            format!("\"{}\"", STANDARD.encode(bytes))
        } else {
            // Written as the short decimals they are, not as the long ones of a wider number.
            let numbers: Vec<String> = vector.iter().map(|value| format!("{value:?}")).collect();
            format!("[{}]", numbers.join(","))
        };
        data.push(format!(
            "{{\"object\":\"embedding\",\"index\":{index},\"embedding\":{embedding}}}"
        ));
    }
    let body = format!(
        "{{\"object\":\"list\",\"data\":[{}],\"model\":{},\"usage\":{{\"prompt_tokens\":{total},\
         \"total_tokens\":{total}}}}}",
        data.join(","),
        Value::from(model.as_str()),
    );
    Ok(Embedded { body, model, tokens: total })
}

enum Input {
    Text(String),
    Tokens(Vec<u64>),
}

impl Input {
    fn tokens(&self) -> u64 {
        match self {
            Self::Text(text) => tokens::count(text),
            Self::Tokens(list) => list.len() as u64,
        }
    }

    fn vector(&self, dimensions: usize) -> Vec<f32> {
        let mut sum = vec![0.0_f32; dimensions];
        let mut add = |seed: u64| {
            let mut dice = Dice::new(seed);
            for value in &mut sum {
                *value += (dice.roll() >> 40) as f32 / (1_u32 << 23) as f32 - 1.0;
            }
        };
        match self {
            Self::Text(text) => {
                let lower = text.to_lowercase();
                let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty());
                words.take(MOST_WORDS).for_each(|word| add(dice::hash(word.as_bytes())));
            }
            Self::Tokens(list) => {
                list.iter()
                    .take(MOST_WORDS)
                    .for_each(|token| add(dice::hash(&token.to_le_bytes())));
            }
        }
        let length = sum.iter().map(|value| value * value).sum::<f32>().sqrt();
        if length > 0.0 {
            sum.iter_mut().for_each(|value| *value /= length);
        } else if let Some(first) = sum.first_mut() {
            *first = 1.0;
        }
        sum
    }
}

fn inputs(input: Option<&Value>) -> Result<Vec<Input>, Fault> {
    let wrong = || {
        Fault::invalid("input", "`input` must be a text, a list of texts, or a list of token lists")
    };
    let list = match input {
        None | Some(Value::Null) => return Err(Fault::invalid("input", "`input` is required")),
        Some(Value::String(text)) => return Ok(vec![Input::Text(text.clone())]),
        Some(Value::Array(list)) => list,
        Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => return Err(wrong()),
    };
    if list.is_empty() {
        return Err(Fault::invalid("input", "`input` must not be empty"));
    }
    if let Some(tokens) = token_list(list) {
        return Ok(vec![Input::Tokens(tokens)]);
    }
    if list.len() > MOST_INPUTS {
        let most = format!("`input` must have at most {MOST_INPUTS} items");
        return Err(Fault::invalid("input", most));
    }
    list.iter()
        .map(|item| match item {
            Value::String(text) => Ok(Input::Text(text.clone())),
            Value::Array(list) => token_list(list).map(Input::Tokens).ok_or_else(wrong),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Err(wrong()),
        })
        .collect()
}

fn token_list(list: &[Value]) -> Option<Vec<u64>> {
    let tokens: Option<Vec<u64>> = list.iter().map(Value::as_u64).collect();
    tokens.filter(|tokens| !tokens.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors(body: &str) -> Vec<Vec<f32>> {
        let answer: Value = serde_json::from_str(&serve(body.as_bytes()).unwrap().body).unwrap();
        let read = |item: &Value| match &item["embedding"] {
            Value::String(packed) => STANDARD
                .decode(packed)
                .unwrap()
                .chunks(4)
                .map(|four| f32::from_le_bytes(four.try_into().unwrap()))
                .collect(),
            list => list.as_array().unwrap().iter().map(|n| n.as_f64().unwrap() as f32).collect(),
        };
        answer["data"].as_array().unwrap().iter().map(read).collect()
    }

    fn dot(one: &[f32], two: &[f32]) -> f32 {
        one.iter().zip(two).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn vectors_are_units_and_near_for_common_words() {
        let all = vectors(
            r#"{"model":"demo-embed","input":["the red harbour","a red harbour","quantum flux",""]}"#,
        );
        for vector in &all {
            assert_eq!(vector.len(), DIMENSIONS);
            assert!((dot(vector, vector) - 1.0).abs() < 1e-4);
        }
        assert!(dot(&all[0], &all[1]) > dot(&all[0], &all[2]) + 0.2);
    }

    #[test]
    fn both_encodings_give_the_same_numbers() {
        let plain = r#"{"model":"m","input":"x y","dimensions":8}"#;
        let packed = r#"{"model":"m","input":"x y","dimensions":8,"encoding_format":"base64"}"#;
        assert_eq!(vectors(plain), vectors(packed));
        assert_eq!(vectors(plain)[0].len(), 8);
    }

    #[test]
    fn token_lists_are_taken() {
        assert_eq!(vectors(r#"{"model":"m","input":[1,2,3]}"#).len(), 1);
        assert_eq!(vectors(r#"{"model":"m","input":[[1,2],[3]]}"#).len(), 2);
    }

    #[test]
    fn broken_requests_name_their_field() {
        let path =
            |body: &str| serve(body.as_bytes()).err().and_then(|f| f.path().map(str::to_owned));
        let cases = [
            (r#"{"input":"x"}"#, "model"),
            (r#"{"model":"m"}"#, "input"),
            (r#"{"model":"m","input":[]}"#, "input"),
            (r#"{"model":"m","input":{}}"#, "input"),
            (r#"{"model":"m","input":["x",1]}"#, "input"),
            (r#"{"model":"m","input":"x","dimensions":0}"#, "dimensions"),
            (r#"{"model":"m","input":"x","encoding_format":"hex"}"#, "encoding_format"),
        ];
        for (body, field) in cases {
            assert_eq!(path(body).as_deref(), Some(field), "{body}");
        }
    }
}
