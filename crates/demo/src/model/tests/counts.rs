//! Tokens of media, of tools, and log probabilities.

use super::*;

#[test]
fn media_are_mentioned_and_counted() {
    let mut chat = ask("Tell me what you hear");
    let plain = reply(&chat, WireFormat::Chat).usage.unwrap();
    let source = MediaSource::Inline { mime: "audio/wav".to_owned(), data: "AAAA".to_owned() };
    let media = Media { kind: MediaKind::Audio, source, name: None, detail: None, clip: None };
    chat.turns[0].parts.push(Part::new(PartKind::Media(media)));
    assert!(text(&chat).contains("a WAV sound"), "{}", text(&chat));
    let usage = reply(&chat, WireFormat::Chat).usage.unwrap();
    assert_eq!(usage.input - plain.input, usage.input_audio);
}

#[test]
fn log_probabilities_cover_the_text() {
    let mut chat = ask("Hi");
    chat.sampling.logprobs = Some(2);
    let candidate = &reply(&chat, WireFormat::Chat).candidates[0];
    let said: String = candidate.logprobs.iter().map(|one| one.chosen.token.as_str()).collect();
    assert_eq!(candidate.parts[0].as_text(), Some(&*said));
    assert!(candidate.logprobs.iter().all(|one| one.chosen.logprob <= 0.0 && one.top.len() == 2));
}

#[test]
fn tools_and_shapes_count_as_input() {
    let plain = count_input(&ask("hello"));
    let tools = count_input(&with_tools("hello", ToolChoiceMode::Unset));
    assert!(0 < plain && plain + 20 < tools);
}
