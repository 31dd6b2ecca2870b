//! Fields that name objects in a provider's account, <https://docs.anthropic.com/en/api/messages>,
//! <https://docs.anthropic.com/en/docs/build-with-claude/files>.

use crate::ReplyStamp;
use crate::object_fields::{MadeFields, ObjectField, ObjectFields, object_ids};
use crate::word_search::Needles;

pub(super) static OBJECTS: ObjectFields = ObjectFields {
    fields: &[
        // Sources of images and documents, in messages and in the results of tools; uploads to a
        // container, and files that code in one wrote.
        ObjectField::of_key(
            "messages.content.content?.content?.source?.content?.source?.content?.source?.file_id",
        ),
        ObjectField::file_text("system.text?"),
        ObjectField::file_text("messages.content.text?"),
        ObjectField::of_key("container.id?"),
        // Skills of the type `anthropic` belong to the provider and are for everybody.
        ObjectField::of_key("container.skills.skill_id")
            .only_if(|skill| !skill.parent.is("anthropic")),
        ObjectField::of_key("user_profile_id"),
        ObjectField::of_key("workspace_id"),
        // The prompt of that message is compared with this one. Another format loses the field, and
        // the provider says that it does not know the id of a translated reply.
        ObjectField::of_key("diagnostics.previous_message_id")
            .only_named(|id| !ReplyStamp::has_made(id))
            .or_contained(|_| true),
        // Models that the gateway has not chosen, at prices that it does not know.
        ObjectField::new("models", "Model"),
        ObjectField::new("fallbacks|plugins.model", "Model"),
        ObjectField::new("tools.model", "Model").with_words(&["\"advisor"]),
        ObjectField::of_key(object_ids!("")),
        ObjectField::of_key(object_ids!("tools.**.")),
    ],
    needles: Needles::new(&[]),
    allows_snake_case: false,
    not_found: |kind, id| format!("{kind} not found: {id}"),
    is_own_url: |_| false,
    made: MadeFields {
        triggers: Some(Needles::new(&["\"code_execution", "\"container\"", "\"diagnostics\""])),
        needles: &["\"container\"", "\"file_id\"", "\"message\""],
        paths: &[
            "message?.id",
            "message|delta?.container.id",
            "content.content.content.file_id",
            "content_block.content.content.file_id",
        ],
        ..MadeFields::NONE
    },
};
