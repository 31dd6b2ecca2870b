//! Fields that name objects in a provider's account:
//! <https://platform.openai.com/docs/api-reference/chat/create>, and those of the services that
//! imitate it.

use crate::object_fields::{MadeFields, ObjectField, ObjectFields, is_google_object, object_ids};
use crate::word_search::Needles;

pub(super) static OBJECTS: ObjectFields = ObjectFields {
    fields: &[
        // <https://docs.mistral.ai/capabilities/document_ai/> has the id without an object around it.
        ObjectField::of_key("messages|prediction.content.file|image_file?.file_id"),
        ObjectField::of_key("documents|inputs.file_id"),
        ObjectField::of_key("messages.audio.id"),
        ObjectField::of_key("audio.voice.id"),
        ObjectField::of_key("audio.voice").only_named(|voice| voice.starts_with("voice_")),
        // The id of a thought without its content, as other formats of the gateway carry it.
        ObjectField::new("messages.reasoning_details.signature|data", "Item")
            .with_words(&["\"rs_"])
            .only_named(is_bare_item),
        // <https://help.aliyun.com/zh/model-studio/long-context-qwen-long> names files in a text.
        ObjectField::file_text("messages.content.text?"),
        // <https://learn.microsoft.com/azure/ai-foundry/openai/references/on-your-data>
        ObjectField::new("data_sources|dataSources.parameters?.**", "Data source"),
        // <https://ai.google.dev/gemini-api/docs/openai#extra-body>
        ObjectField::of_key("extra_body?.google?.cached_content|cachedContent"),
        // <https://openrouter.ai/docs/guides/features/presets>, and models that the gateway has not
        // chosen: <https://openrouter.ai/docs/guides/routing/model-fallbacks>.
        ObjectField::of_key("preset"),
        ObjectField::new("models", "Model"),
        ObjectField::new("plugins.model", "Model"),
        // <https://docs.vllm.ai/en/latest/features/disagg_prefill/>
        ObjectField::new("kv_transfer_params.**", "Cache"),
        // Image requests have the fields of this table as well.
        ObjectField::of_key("images|image|mask|input_images|reference_images.file_id"),
        ObjectField::of_key("container.id?"),
        ObjectField::of_key(object_ids!("")),
        ObjectField::of_key(object_ids!("tools|tool_resources|container.**.")),
    ],
    needles: Needles::new(&[]),
    allows_snake_case: false,
    not_found: |kind, id| format!("{kind} with id '{id}' not found."),
    // Google's service for this format holds files as well.
    is_own_url: is_google_object,
    // An assistant's message names the audio that the model spoke before.
    made: MadeFields {
        triggers: Some(Needles::new(&["\"audio\""])),
        needles: &["\"audio\""],
        paths: &["choices.message.audio.id", "choices.delta.audio.id"],
        ..MadeFields::NONE
    },
};

/// Returns true for the id of a thought with nothing behind it.
fn is_bare_item(token: &str) -> bool {
    token.strip_suffix(':').is_some_and(|id| id.starts_with("rs_"))
}
