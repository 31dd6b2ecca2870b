//! Embeddings in every requested encoding: vectors from the words of a text, so that texts with
//! common words are near each other.

use canon::{ApiError, Usage};
use dialects::RequestTarget;
use dialects::embeddings::{EmbeddingEndpoint, EmbeddingInput, EmbeddingReply};

use crate::seeded_random::{self, SeededRandom};
use crate::tokens;

const DIMENSIONS: usize = 256;
const MAX_DIMENSIONS: usize = 4_096;
/// Maximum number of words in a vector; more would only cost time.
const MAX_WORDS: usize = 2_000;

/// An answer: the body, the requested model and the usage.
pub(super) struct EmbeddingAnswer {
    pub(super) body: Vec<u8>,
    pub(super) model: String,
    pub(super) usage: Usage,
}

/// Answers a request for embeddings.
pub(super) fn serve(
    form: EmbeddingEndpoint,
    target: &RequestTarget,
    body: &[u8],
) -> Result<EmbeddingAnswer, ApiError> {
    form.read_facts(target, body)?;
    let embed = form.read_request(target, body)?;
    let dimensions = match embed.dimensions {
        None => DIMENSIONS,
        Some(number) => usize::try_from(number)
            .ok()
            .filter(|number| (1..=MAX_DIMENSIONS).contains(number))
            .ok_or_else(|| {
                let most = format!("`dimensions` must be between 1 and {MAX_DIMENSIONS}");
                ApiError::invalid("dimensions", most)
            })?,
    };
    let usage = Usage { input: embed.inputs.iter().map(count).sum(), ..Usage::default() };
    let embedded = EmbeddingReply {
        vectors: embed.inputs.iter().map(|input| vector(input, dimensions)).collect(),
        usage: Some(usage),
        ..EmbeddingReply::default()
    };
    let (body, _) = form.write_reply(&embedded, &embed);
    Ok(EmbeddingAnswer { body, model: embed.model, usage })
}

fn count(input: &EmbeddingInput) -> u64 {
    match input {
        EmbeddingInput::Text(text) => tokens::count(text),
        EmbeddingInput::Tokens(list) => list.len() as u64,
    }
}

fn vector(input: &EmbeddingInput, dimensions: usize) -> Vec<f32> {
    let mut sum = vec![0.0_f32; dimensions];
    let mut add = |seed: u64| {
        let mut random = SeededRandom::new(seed);
        for value in &mut sum {
            *value += (random.next_number() >> 40) as f32 / (1_u32 << 23) as f32 - 1.0;
        }
    };
    match input {
        EmbeddingInput::Text(text) => {
            let lower = text.to_lowercase();
            let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty());
            words.take(MAX_WORDS).for_each(|word| add(seeded_random::hash(word.as_bytes())));
        }
        EmbeddingInput::Tokens(list) => {
            list.iter()
                .take(MAX_WORDS)
                .for_each(|token| add(seeded_random::hash(&token.to_le_bytes())));
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn answer(form: EmbeddingEndpoint, body: &Value) -> Vec<Vec<f32>> {
        let target = RequestTarget { model: Some("m".to_owned()), ..RequestTarget::default() };
        let answer = serve(form, &target, body.to_string().as_bytes()).unwrap();
        form.read_reply(&answer.body).unwrap().vectors
    }

    fn vectors(body: &Value) -> Vec<Vec<f32>> {
        answer(EmbeddingEndpoint::OpenAi, body)
    }

    fn dot(one: &[f32], two: &[f32]) -> f32 {
        one.iter().zip(two).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn vectors_are_units_and_near_for_common_words() {
        let input = ["the red harbour", "a red harbour", "quantum flux", "..."];
        let all = vectors(&json!({ "model": "demo-embed", "input": input }));
        for vector in &all {
            assert_eq!(vector.len(), DIMENSIONS);
            assert!((dot(vector, vector) - 1.0).abs() < 1e-4);
        }
        assert!(dot(&all[0], &all[1]) > dot(&all[0], &all[2]) + 0.2);
    }

    #[test]
    fn every_shape_and_encoding_gives_the_same_numbers() {
        let mut plain = json!({ "model": "m", "input": "x y", "dimensions": 8 });
        let expected = vectors(&plain);
        assert_eq!(expected[0].len(), 8);
        plain["encoding_format"] = json!("base64");
        assert_eq!(vectors(&plain), expected);
        let one = json!({ "content": { "parts": [{ "text": "x y" }] }, "outputDimensionality": 8 });
        assert_eq!(answer(EmbeddingEndpoint::EmbedContent, &one), expected);
        assert_eq!(
            answer(EmbeddingEndpoint::BatchEmbedContents, &json!({ "requests": [one] })),
            expected
        );
    }

    #[test]
    fn token_lists_are_taken() {
        assert_eq!(vectors(&json!({ "model": "m", "input": [1, 2, 3] })).len(), 1);
        assert_eq!(vectors(&json!({ "model": "m", "input": [[1, 2], [3]] })).len(), 2);
    }

    #[test]
    fn a_vector_has_bounds() {
        let body = json!({ "model": "m", "input": "x", "dimensions": MAX_DIMENSIONS + 1 });
        let fault = serve(
            EmbeddingEndpoint::OpenAi,
            &RequestTarget::default(),
            body.to_string().as_bytes(),
        )
        .err();
        assert_eq!(fault.unwrap().param(), Some("dimensions"));
    }
}
