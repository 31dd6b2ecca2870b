//! The closed vocabulary of capability tags and modalities.
//!
//! A tag that is not on this list does not exist: callers filter by these words, so a second
//! spelling of the same ability would hide models from them.

/// Every capability tag with what it promises, in the order tags are listed on a model.
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

/// Every modality a model can take or give.
pub const MODALITIES: [&str; 6] = ["text", "image", "audio", "video", "document", "vector"];

/// What a tag promises; `None` when there is no such tag.
pub fn feature_about(tag: &str) -> Option<&'static str> {
    FEATURES.iter().find(|(word, _)| *word == tag).map(|(_, about)| *about)
}
