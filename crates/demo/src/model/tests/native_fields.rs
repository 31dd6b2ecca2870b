//! Fields of native answers, and the modalities of the drawing model.

use super::*;
use canon::{ImageShape, Modality};

fn native_field(chat: &ChatRequest, name: &str) -> Option<Value> {
    reply(chat, WireFormat::Native).candidates[0].extras.get(WireFormat::Native, name).cloned()
}

#[test]
fn native_candidates_are_rated() {
    let ratings = native_field(&ask("hi"), "safetyRatings").unwrap();
    assert_eq!(ratings.as_array().unwrap().len(), 4);
    let first = json!({ "category": "HARM_CATEGORY_HARASSMENT", "probability": "NEGLIGIBLE",
        "blocked": false });
    assert_eq!(ratings[0], first);
    assert!(reply(&ask("hi"), WireFormat::Chat).candidates[0].extras.is_empty());
}

#[test]
fn native_searches_have_confidence_scores() {
    let tools = vec![Tool::WebSearch(WebSearchTool::default())];
    let chat = ChatRequest { tools, ..ask("Look up the tides of May in Zürich") };
    let grounding = native_field(&chat, "groundingMetadata").unwrap();
    assert_eq!(grounding["webSearchQueries"], json!(["Look up the tides of May in Zürich"]));
    assert!(grounding["groundingChunks"][1]["web"]["uri"].is_string(), "{grounding}");
    let parts = reply(&chat, WireFormat::Native).candidates.remove(0).parts;
    let text: String = parts.iter().filter_map(Part::as_text).collect();
    for (at, support) in grounding["groundingSupports"].as_array().unwrap().iter().enumerate() {
        assert_eq!(support["groundingChunkIndices"], json!([at]));
        let score = support["confidenceScores"][0].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&score), "{support}");
        let place = |name: &str| support["segment"][name].as_u64().unwrap() as usize;
        let cited = text.get(place("startIndex")..place("endIndex"));
        assert_eq!(cited, support["segment"]["text"].as_str());
    }
}

#[test]
fn maps_ground_an_answer_in_places() {
    let maps = Tool::Foreign { origin: WireFormat::Native, value: json!({ "googleMaps": {} }) };
    let chat = ChatRequest { tools: vec![maps.clone()], ..ask("Where is a quiet restaurant?") };
    let grounding = native_field(&chat, "groundingMetadata").unwrap();
    let place = &grounding["groundingChunks"][0]["maps"];
    assert!(place["uri"].as_str().unwrap().starts_with("https://maps.example.com/"), "{place}");
    assert!(place["placeId"].as_str().unwrap().starts_with("places/"), "{place}");
    assert_eq!(place["title"], "Harbour House");
    assert_eq!(grounding["groundingSupports"].as_array().unwrap().len(), 2);
    assert_eq!(grounding.get("webSearchQueries"), None);
    let greeting = ChatRequest { tools: vec![maps], ..ask("Hello there") };
    assert_eq!(native_field(&greeting, "groundingMetadata"), None);
}

fn drawn(modalities: &[Modality]) -> (Vec<Part>, u64) {
    let modalities = modalities.to_vec();
    let image_shape = ImageShape { size: Some("512".to_owned()), ..ImageShape::default() };
    let chat = ChatRequest { modalities, image_shape, ..ask("a red boat") };
    let mut reply = answer(&chat, Persona::Painter, WireFormat::Native).unwrap();
    (reply.candidates.remove(0).parts, reply.usage.unwrap().output_image)
}

#[test]
fn only_the_requested_modalities_come() {
    let is_picture = |part: &Part| matches!(part.kind, PartKind::Media(_));
    for (modalities, pictures) in [
        (vec![], vec![false, true]),
        (vec![Modality::Text, Modality::Image], vec![false, true]),
        (vec![Modality::Image], vec![true]),
        (vec![Modality::Text], vec![false]),
    ] {
        let (parts, tokens) = drawn(&modalities);
        assert_eq!(parts.iter().map(is_picture).collect::<Vec<_>>(), pictures, "{modalities:?}");
        assert_eq!(tokens > 0, pictures.contains(&true), "{modalities:?}");
    }
}

#[test]
fn the_largest_class_has_its_size() {
    let image_shape =
        ImageShape { size: Some("4K".to_owned()), aspect_ratio: Some("16:9".to_owned()) };
    let modalities = vec![Modality::Image];
    let chat = ChatRequest { modalities, image_shape, ..ask("a red boat") };
    let parts = answer(&chat, Persona::Painter, WireFormat::Native).unwrap().candidates.remove(0);
    let PartKind::Media(Media { source: MediaSource::Inline { data, .. }, .. }) =
        &parts.parts[0].kind
    else {
        panic!("no picture")
    };
    let info = ::media::base64_image_info(data).unwrap();
    assert_eq!(info.size, Some((5_440, 3_072)));
}
