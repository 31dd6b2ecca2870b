//! Fields that name objects in a provider's account: <https://ai.google.dev/api/generate-content>,
//! <https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference>.

use crate::field_scan::{KeyPath, Needles};
use crate::object_fields::{MadeFields, ObjectField, ObjectFields};

const DATA_STORE: &str = "DataStore";
const RAG_CORPUS: &str = "RagCorpus";
const SECRET: &str = "Secret";
const ACCOUNT: &str = "ServiceAccount";

pub(super) static OBJECTS: ObjectFields = ObjectFields {
    fields: &[
        ObjectField::new("cachedContent", "CachedContent"),
        // Conversations, and the `content` and `requests` of embeddings.
        file("contents.parts.fileData.fileUri"),
        file("contents.parts.functionResponse.parts.fileData.fileUri"),
        file("systemInstruction.parts.fileData.fileUri"),
        file("content.parts.fileData.fileUri"),
        file("requests.content.parts.fileData.fileUri"),
        ObjectField::new("tools.fileSearch.fileSearchStoreNames", "FileSearchStore"),
        ObjectField::new("tools.fileSearch.retrievalResources.ragStoreName", "FileSearchStore"),
        ObjectField::new("tools.retrieval.vertexAiSearch.datastore", DATA_STORE),
        ObjectField::new("tools.retrieval.vertexAiSearch.engine", "Engine"),
        ObjectField::new("tools.retrieval.vertexAiSearch.dataStoreSpecs.dataStore", DATA_STORE),
        ObjectField::new("tools.retrieval.vertexRagStore.ragCorpora", RAG_CORPUS),
        ObjectField::new("tools.retrieval.vertexRagStore.ragResources.ragCorpus", RAG_CORPUS),
        ObjectField::new("tools.retrieval.vertexRagStore.ragResources.ragFileIds", "RagFile"),
        ObjectField::new(
            "tools.retrieval.externalApi.apiAuth.apiKeyConfig.apiKeySecretVersion",
            SECRET,
        ),
        ObjectField::new(
            "tools.retrieval.externalApi.authConfig.apiKeyConfig.apiKeySecret",
            SECRET,
        ),
        ObjectField::new("tools.googleMaps.authConfig.apiKeyConfig.apiKeySecret", SECRET),
        ObjectField::new(
            "tools.retrieval.externalApi.authConfig.httpBasicAuthConfig.credentialSecret",
            SECRET,
        ),
        ObjectField::new(
            "tools.retrieval.externalApi.authConfig.googleServiceAccountConfig.serviceAccount",
            ACCOUNT,
        ),
        ObjectField::new(
            "tools.retrieval.externalApi.authConfig.oauthConfig.serviceAccount",
            ACCOUNT,
        ),
        ObjectField::new(
            "tools.retrieval.externalApi.authConfig.oidcConfig.serviceAccount",
            ACCOUNT,
        ),
        ObjectField::new(
            "tools.googleMaps.authConfig.httpBasicAuthConfig.credentialSecret",
            SECRET,
        ),
        ObjectField::new(
            "tools.googleMaps.authConfig.googleServiceAccountConfig.serviceAccount",
            ACCOUNT,
        ),
        ObjectField::new("tools.googleMaps.authConfig.oauthConfig.serviceAccount", ACCOUNT),
        ObjectField::new("tools.googleMaps.authConfig.oidcConfig.serviceAccount", ACCOUNT),
        ObjectField::new("modelArmorConfig.promptTemplateName", "Template"),
        ObjectField::new("modelArmorConfig.responseTemplateName", "Template"),
        // Places that the provider would write to.
        ObjectField::new("outputConfig.outputUriPrefix", "Bucket"),
        ObjectField::new("generationConfig.responseFormat.video.gcsUri", "Bucket"),
    ],
    needles: Needles::new(&[
        "achedContent\"",
        "ached_content\"",
        "Uri\"",
        "_uri\"",
        "UriPrefix\"",
        "_uri_prefix\"",
        "fileSearch\"",
        "file_search\"",
        "retrieval\"",
        "apiKeySecret",
        "api_key_secret",
        "credentialSecret\"",
        "credential_secret\"",
        "erviceAccount\"",
        "ervice_account\"",
        "odelArmorConfig\"",
        "odel_armor_config\"",
    ]),
    allows_snake_case: true,
    not_found: |kind, _| format!("{kind} not found (or permission denied)"),
    is_own_url: is_stored_uri,
    // No id of a reply is sent back.
    made: MadeFields::NONE,
};

const fn file(path: KeyPath) -> ObjectField {
    ObjectField::new(path, "File").only_if(|uri| is_stored_uri(&uri.text))
}

/// A file of the provider's own storage: its name, a bucket, or a URL of the service itself. Public
/// files of its storage service have URLs like those of any other host. The guard of URLs refuses
/// every other text.
fn is_stored_uri(uri: &str) -> bool {
    let uri = uri.to_ascii_lowercase();
    if uri.starts_with("files/") || uri.starts_with("gs:") {
        return true;
    }
    let Some(("https" | "http", rest)) = uri.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = host.split(':').next().unwrap_or_default().trim_end_matches('.');
    let is_service = host == "googleapis.com" || host.ends_with(".googleapis.com");
    is_service && host != "storage.googleapis.com"
}
