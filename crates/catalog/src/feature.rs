//! The closed vocabulary of capability tags and modalities.
//!
//! A tag outside this list does not exist. Callers filter by these words, so a second spelling of
//! the same capability would hide models from them.

/// All capability tags with their meaning, in the order in which a model lists them.
pub const FEATURES: [(&str, &str); 17] = [
    ("streaming", "sends the answer in pieces as it is made"),
    ("tools", "calls functions the caller describes"),
    ("json-schema", "answers in JSON that fits a given schema"),
    ("thinking", "reasons before it answers"),
    ("vision", "reads images"),
    ("audio-input", "listens to audio"),
    ("video-input", "watches video"),
    ("documents", "reads PDF documents"),
    ("prompt-caching", "charges less for a prompt it has seen before"),
    ("search", "can search the web through its provider"),
    ("code-execution", "can run code at its provider"),
    ("computer-use", "can operate a screen through its provider's tools"),
    ("audio-output", "speaks"),
    ("image-output", "makes images"),
    ("image-edit", "changes a given image"),
    ("embeddings", "turns input into vectors"),
    ("open-weights", "has published weights"),
];

/// All input and output modalities.
pub const MODALITIES: [&str; 6] = ["text", "image", "audio", "video", "document", "vector"];

/// Returns the meaning of a tag; `None` if there is no such tag.
pub fn feature_about(tag: &str) -> Option<&'static str> {
    FEATURES.iter().find(|(word, _)| *word == tag).map(|(_, about)| *about)
}
