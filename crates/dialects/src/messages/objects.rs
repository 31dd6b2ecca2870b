//! Fields that name objects in a provider's account, <https://docs.anthropic.com/en/api/messages>,
//! <https://docs.anthropic.com/en/docs/build-with-claude/files>.

use crate::field_scan::Needles;
use crate::object_fields::{MadeFields, ObjectField, ObjectFields};

const FILE: &str = "File";
const CONTAINER: &str = "Container";

pub(super) static OBJECTS: ObjectFields = ObjectFields {
    fields: &[
        // Sources of images and documents, in messages and in the results of tools.
        ObjectField::new("messages.content.source.file_id", FILE),
        ObjectField::new("messages.content.source.content.source.file_id", FILE),
        ObjectField::new("messages.content.content.source.file_id", FILE),
        ObjectField::new("messages.content.content.source.content.source.file_id", FILE),
        ObjectField::new("messages.content.content.content.source.file_id", FILE),
        ObjectField::new("messages.content.content.content.source.content.source.file_id", FILE),
        // Uploads to a container, and files that code in one wrote.
        ObjectField::new("messages.content.file_id", FILE),
        ObjectField::new("messages.content.content.content.file_id", FILE),
        ObjectField::new("container", CONTAINER),
        ObjectField::new("container.id", CONTAINER),
        // Skills of the type `anthropic` belong to the provider and are for everybody.
        ObjectField::new("container.skills.skill_id", "Skill")
            .only_if(|skill| !skill.parent.is("anthropic")),
        ObjectField::new("user_profile_id", "User profile"),
        ObjectField::new("workspace_id", "Workspace"),
    ],
    needles: Needles::new(&[
        "\"file_id\"",
        "\"container\"",
        "\"user_profile_id\"",
        "\"workspace_id\"",
    ]),
    allows_snake_case: false,
    not_found: |kind, id| format!("{kind} not found: {id}"),
    is_own_url: |_| false,
    made: MadeFields {
        triggers: &["code_execution", "\"container\""],
        needles: &["\"container\"", "\"file_id\""],
        paths: &[
            "container.id",
            "content.content.content.file_id",
            "message.container.id",
            "delta.container.id",
            "content_block.content.content.file_id",
        ],
        ..MadeFields::NONE
    },
};
