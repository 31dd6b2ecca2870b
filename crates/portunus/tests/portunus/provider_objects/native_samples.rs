//! A request for every field of the native format that names an object.

use serde_json::{Value, json};

use super::samples::{ID, NamedField, field};

pub(super) fn native_fields() -> Vec<NamedField> {
    let text = json!({ "text": "Hi" });
    let file = json!({ "fileData": { "mimeType": "image/png", "fileUri": "files/x" } });
    let contents = |parts: Value| json!({ "contents": [{ "role": "user", "parts": parts }] });
    let retrieval =
        |kind: &str, value: Value| json!({ "tools": [{ "retrieval": { kind: value } }] });
    vec![
        field("cachedContent", json!({ "cachedContent": "cachedContents/x" }), "cachedContent"),
        field(
            "contents|systemInstruction.parts.text",
            json!({ "systemInstruction": { "parts": [{ "text": "fileid://file-fe-1" }] } }),
            "systemInstruction.parts[0].text",
        ),
        field(
            "requests?.contents|content|systemInstruction.parts.functionResponse?.parts?.fileData.fileUri",
            contents(json!([text, file])),
            "contents[0].parts[1].fileData.fileUri",
        ),
        field(
            "requests?.contents|content|systemInstruction.parts.functionResponse?.parts?.fileData.fileUri",
            json!({ "contents": [{ "role": "user", "parts": [text] },
                { "role": "model", "parts": [{ "functionCall": { "name": "f", "args": {} } }] },
                { "role": "user", "parts": [{ "functionResponse": { "name": "f", "response": {},
                    "parts": [file] } }] }] }),
            "contents[2].parts[0].functionResponse.parts[0].fileData.fileUri",
        ),
        field(
            "tools.fileSearch.**.fileSearchStoreNames|ragStoreName",
            json!({ "tools": [{ "fileSearch": { "fileSearchStoreNames": ["fileSearchStores/x"] } }] }),
            "tools[0].fileSearch.fileSearchStoreNames[0]",
        ),
        field(
            "tools.fileSearch.**.fileSearchStoreNames|ragStoreName",
            json!({ "tools": [{ "fileSearch": { "retrievalResources": [{ "ragStoreName": ID }] } }] }),
            "tools[0].fileSearch.retrievalResources[0].ragStoreName",
        ),
        field(
            "tools.retrieval.**.datastore|dataStore",
            retrieval("vertexAiSearch", json!({ "datastore": ID })),
            "tools[0].retrieval.vertexAiSearch.datastore",
        ),
        field(
            "tools.retrieval.**.engine",
            retrieval("vertexAiSearch", json!({ "engine": ID })),
            "tools[0].retrieval.vertexAiSearch.engine",
        ),
        field(
            "tools.retrieval.**.datastore|dataStore",
            retrieval("vertexAiSearch", json!({ "dataStoreSpecs": [{ "dataStore": ID }] })),
            "tools[0].retrieval.vertexAiSearch.dataStoreSpecs[0].dataStore",
        ),
        field(
            "tools.retrieval.**.ragCorpora|ragCorpus",
            retrieval("vertexRagStore", json!({ "ragCorpora": [ID] })),
            "tools[0].retrieval.vertexRagStore.ragCorpora[0]",
        ),
        field(
            "tools.retrieval.**.ragCorpora|ragCorpus",
            retrieval("vertexRagStore", json!({ "ragResources": [{ "ragCorpus": ID }] })),
            "tools[0].retrieval.vertexRagStore.ragResources[0].ragCorpus",
        ),
        field(
            "tools.retrieval.**.ragFileIds",
            retrieval("vertexRagStore", json!({ "ragResources": [{ "ragFileIds": [ID] }] })),
            "tools[0].retrieval.vertexRagStore.ragResources[0].ragFileIds[0]",
        ),
        field(
            "tools.**.apiKeySecret|apiKeySecretVersion|credentialSecret",
            retrieval(
                "externalApi",
                json!({ "apiAuth": { "apiKeyConfig": { "apiKeySecretVersion": ID } } }),
            ),
            "tools[0].retrieval.externalApi.apiAuth.apiKeyConfig.apiKeySecretVersion",
        ),
        field(
            "tools.**.apiKeySecret|apiKeySecretVersion|credentialSecret",
            retrieval(
                "externalApi",
                json!({ "authConfig": { "apiKeyConfig": { "apiKeySecret": ID } } }),
            ),
            "tools[0].retrieval.externalApi.authConfig.apiKeyConfig.apiKeySecret",
        ),
        field(
            "tools.**.apiKeySecret|apiKeySecretVersion|credentialSecret",
            json!({ "tools": [{ "googleMaps": { "authConfig": { "apiKeyConfig": { "apiKeySecret": ID } } } }] }),
            "tools[0].googleMaps.authConfig.apiKeyConfig.apiKeySecret",
        ),
        field(
            "tools.**.apiKeySecret|apiKeySecretVersion|credentialSecret",
            retrieval(
                "externalApi",
                json!({ "authConfig": { "httpBasicAuthConfig": { "credentialSecret": ID } } }),
            ),
            "tools[0].retrieval.externalApi.authConfig.httpBasicAuthConfig.credentialSecret",
        ),
        field(
            "tools.**.serviceAccount",
            retrieval(
                "externalApi",
                json!({ "authConfig": { "googleServiceAccountConfig": { "serviceAccount": ID } } }),
            ),
            "tools[0].retrieval.externalApi.authConfig.googleServiceAccountConfig.serviceAccount",
        ),
        field(
            "tools.**.serviceAccount",
            retrieval(
                "externalApi",
                json!({ "authConfig": { "oauthConfig": { "serviceAccount": ID } } }),
            ),
            "tools[0].retrieval.externalApi.authConfig.oauthConfig.serviceAccount",
        ),
        field(
            "tools.**.serviceAccount",
            retrieval(
                "externalApi",
                json!({ "authConfig": { "oidcConfig": { "serviceAccount": ID } } }),
            ),
            "tools[0].retrieval.externalApi.authConfig.oidcConfig.serviceAccount",
        ),
        field(
            "tools.**.apiKeySecret|apiKeySecretVersion|credentialSecret",
            json!({ "tools": [{ "googleMaps": { "authConfig": { "httpBasicAuthConfig": { "credentialSecret": ID } } } }] }),
            "tools[0].googleMaps.authConfig.httpBasicAuthConfig.credentialSecret",
        ),
        field(
            "tools.**.serviceAccount",
            json!({ "tools": [{ "googleMaps": { "authConfig": { "googleServiceAccountConfig": { "serviceAccount": ID } } } }] }),
            "tools[0].googleMaps.authConfig.googleServiceAccountConfig.serviceAccount",
        ),
        field(
            "tools.**.serviceAccount",
            json!({ "tools": [{ "googleMaps": { "authConfig": { "oauthConfig": { "serviceAccount": ID } } } }] }),
            "tools[0].googleMaps.authConfig.oauthConfig.serviceAccount",
        ),
        field(
            "tools.**.serviceAccount",
            json!({ "tools": [{ "googleMaps": { "authConfig": { "oidcConfig": { "serviceAccount": ID } } } }] }),
            "tools[0].googleMaps.authConfig.oidcConfig.serviceAccount",
        ),
        field(
            "modelArmorConfig.promptTemplateName|responseTemplateName",
            json!({ "modelArmorConfig": { "promptTemplateName": ID } }),
            "modelArmorConfig.promptTemplateName",
        ),
        field(
            "modelArmorConfig.promptTemplateName|responseTemplateName",
            json!({ "model_armor_config": { "response_template_name": ID } }),
            "modelArmorConfig.responseTemplateName",
        ),
        field(
            "generationConfig.speechConfig.**.voice|voiceName",
            json!({ "generationConfig": { "speechConfig": { "voiceConfig": {
                "prebuiltVoiceConfig": { "voiceName": "voices/x" } } } } }),
            "generationConfig.speechConfig.voiceConfig.prebuiltVoiceConfig.voiceName",
        ),
        field(
            "generationConfig.speechConfig.**.voice|voiceName",
            json!({ "generationConfig": { "speechConfig": { "voiceConfig": { "voice": "voices/x" } } } }),
            "generationConfig.speechConfig.voiceConfig.voice",
        ),
        field(
            "generationConfig.routingConfig.**.modelName",
            json!({ "generationConfig": { "routingConfig": { "manualMode": { "modelName": ID } } } }),
            "generationConfig.routingConfig.manualMode.modelName",
        ),
        field(
            "outputConfig.outputUriPrefix",
            json!({ "outputConfig": { "outputUriPrefix": "gs://x" } }),
            "outputConfig.outputUriPrefix",
        ),
        field(
            "generationConfig.responseFormat.video.gcsUri",
            json!({ "generationConfig": { "responseFormat": { "video": { "gcsUri": "gs://x" } } } }),
            "generationConfig.responseFormat.video.gcsUri",
        ),
    ]
}
