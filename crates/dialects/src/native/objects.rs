//! Fields that name objects in a provider's account: <https://ai.google.dev/api/generate-content>,
//! <https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference>. These services
//! refuse unknown fields.

use crate::object_fields::{MadeFields, ObjectField, ObjectFields, is_google_object};
use crate::word_search::Needles;

pub(super) static OBJECTS: ObjectFields = ObjectFields {
    fields: &[
        ObjectField::of_key("cachedContent"),
        ObjectField::file_text("contents|systemInstruction.parts.text"),
        // Conversations, and the `content` and `requests` of embeddings.
        ObjectField::new("requests?.contents|content|systemInstruction.parts.functionResponse?.parts?.fileData.fileUri", "File")
        .only_named(is_google_object),
        ObjectField::new("tools.fileSearch.**.fileSearchStoreNames|ragStoreName", "FileSearchStore"),
        ObjectField::new("tools.retrieval.**.datastore|dataStore", "DataStore"),
        ObjectField::of_key("tools.retrieval.**.engine"),
        ObjectField::new("tools.retrieval.**.ragCorpora|ragCorpus", "RagCorpus"),
        ObjectField::new("tools.retrieval.**.ragFileIds", "RagFile"),
        // Accounts and secrets that the provider would use in a search or at another service.
        ObjectField::new("tools.**.apiKeySecret|apiKeySecretVersion|credentialSecret", "Secret"),
        ObjectField::of_key("tools.**.serviceAccount"),
        ObjectField::new("modelArmorConfig.promptTemplateName|responseTemplateName", "Template"),
        ObjectField::new("generationConfig.speechConfig.**.voice|voiceName", "Voice")
            .only_named(|voice| voice.contains('/')),
        // A model that the gateway has not chosen.
        ObjectField::new("generationConfig.routingConfig.**.modelName", "Model"),
        // Places that the provider would write to.
        ObjectField::new("outputConfig.outputUriPrefix", "Bucket"),
        ObjectField::new("generationConfig.responseFormat.video.gcsUri", "Bucket"),
    ],
    needles: Needles::new(&[]),
    allows_snake_case: true,
    not_found: |kind, _| format!("{kind} not found (or permission denied)"),
    is_own_url: is_google_object,
    // No id of a reply is sent back.
    made: MadeFields::NONE,
};
