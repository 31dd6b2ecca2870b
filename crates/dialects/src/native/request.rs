//! Description of a native request without its turns.
//!
//! See <https://ai.google.dev/api/generate-content>. If the service specification and real clients
//! disagree, the clients win: snake_case, either base64 alphabet, enum words in any case and a role
//! on the system instruction are accepted.

use serde_json::value::RawValue;
use std::collections::HashSet;

use super::content::{NativeContent, NativeInstruction, count_media};
use super::names::{MAX_STOP_TEXTS, read_modality};
use crate::checks;
use crate::proto_json::{ProtoInteger, whole_between, word_of};
use crate::text::BorrowedText;
use crate::wire_object::wire_object;
use crate::wire_rule::{
    FieldProblem, RuleResult, between, ensure, ensure_at, one_of, refuse, refuse_for, refuse_if,
};
use crate::wire_value::{BoundedList, OneOrMany, OpaqueObject, PlacedValue, TextOrList};

const MAX_CONTENTS: usize = 10_000;
const MAX_MEDIA_PARTS: usize = 3_600;
const MAX_TOOLS: usize = 512;
const MAX_SAFETY_SETTINGS: usize = 32;
/// The level of a request without one. Some clients write it out.
const UNSPECIFIED_LEVEL: &str = "THINKING_LEVEL_UNSPECIFIED";
const MAX_INTEGER: i64 = i32::MAX as i64;

type NativeSafetySettings<'a> = OneOrMany<NativeSafetySetting<'a>, MAX_SAFETY_SETTINGS>;
type NativeStopTexts<'a> = BoundedList<BorrowedText<'a>, MAX_STOP_TEXTS>;

wire_object! {
    /// The body.
    pub(super) struct NativeRequestView<'a>("a JSON object", camel_case) {
        /// Ignored: the path names the model.
        model: &'a RawValue => Model,
        system_instruction "systemInstruction": Box<NativeInstruction<'a>> => Conversation,
        contents: OneOrMany<NativeContent<'a>, MAX_CONTENTS> => Conversation where contents_size,
        tools: OneOrMany<NativeTool<'a>, MAX_TOOLS> => Tools,
        tool_config "toolConfig": Box<NativeToolConfig<'a>> => ToolChoice(NativeToolConfig),
        safety_settings "safetySettings" kept: NativeSafetySettings<'a> where safety_settings,
        generation_config "generationConfig" kept: Box<NativeConfig<'a>> => Inside(NativeConfig),
        cached_content "cachedContent" kept: BorrowedText<'a> where cached_content,
        service_tier "serviceTier": BorrowedText<'a> => ServiceTier,
    }

    /// A tool: one of these fields, <https://ai.google.dev/api/caching#Tool>.
    pub(super) struct NativeTool<'a>("a tool object", camel_case) {
        function_declarations "functionDeclarations": OneOrMany<NativeFunction<'a>>,
        google_search "googleSearch": NativeSearch<'a>,
        /// The search by its name in the service specification.
        vendor_search "vendorSearch": PlacedValue<'a, NativeSearch<'a>>,
        vendor_maps "vendorMaps": OpaqueObject<'a>,
        code_execution "codeExecution": NativeToolSettings<'a>,
        url_context "urlContext": NativeToolSettings<'a>,
    }
    check NativeTool::check;

    pub(super) struct NativeFunction<'a>("a function object", camel_case) {
        name required: BorrowedText<'a> where function_name,
        description: BorrowedText<'a>,
        parameters: OpaqueObject<'a>,
        parameters_json_schema "parametersJsonSchema": OpaqueObject<'a>,
        response: OpaqueObject<'a>,
        response_json_schema "responseJsonSchema": OpaqueObject<'a>,
    }

    pub(super) struct NativeSearch<'a>("an object", camel_case) {
        exclude_domains "excludeDomains": TextOrList<'a, BorrowedText<'a>>,
    }

    /// Settings of a tool, none of which is read.
    pub(super) struct NativeToolSettings<'a>("an object", camel_case) {}

    pub(super) struct NativeToolConfig<'a>("an object", camel_case) {
        function_calling_config "functionCallingConfig": NativeCallingConfig<'a> => ToolChoice,
        retrieval_config "retrievalConfig" kept: NativeRetrievalConfig<'a>,
    }

    pub(super) struct NativeCallingConfig<'a>("an object", camel_case) {
        mode: BorrowedText<'a>
            where word_of(&["AUTO", "ANY", "NONE", "VALIDATED"], &["MODE_UNSPECIFIED"]),
        allowed_function_names "allowedFunctionNames": Vec<BorrowedText<'a>> where no_empty_names,
    }

    pub(super) struct NativeRetrievalConfig<'a>("an object", camel_case) {
        lat_lng "latLng": NativePosition<'a>,
    }

    pub(super) struct NativePosition<'a>("an object", camel_case) {
        latitude: f64 where between(-90.0, 90.0),
        longitude: f64 where between(-180.0, 180.0),
    }

    pub(super) struct NativeSafetySetting<'a>("an object", camel_case) {
        category required: BorrowedText<'a> where word_of(
            &[
                "HARM_CATEGORY_HARASSMENT",
                "HARM_CATEGORY_HATE_SPEECH",
                "HARM_CATEGORY_SEXUALLY_EXPLICIT",
                "HARM_CATEGORY_DANGEROUS_CONTENT",
                "HARM_CATEGORY_CIVIC_INTEGRITY",
            ],
            &[
                "HARM_CATEGORY_UNSPECIFIED",
                "HARM_CATEGORY_IMAGE_HATE",
                "HARM_CATEGORY_IMAGE_DANGEROUS_CONTENT",
                "HARM_CATEGORY_IMAGE_HARASSMENT",
                "HARM_CATEGORY_IMAGE_SEXUALLY_EXPLICIT",
                "HARM_CATEGORY_JAILBREAK",
            ],
        ),
        threshold required: BorrowedText<'a> where word_of(
            &[
                "BLOCK_NONE",
                "BLOCK_ONLY_HIGH",
                "BLOCK_MEDIUM_AND_ABOVE",
                "BLOCK_LOW_AND_ABOVE",
                "OFF",
            ],
            &["HARM_BLOCK_THRESHOLD_UNSPECIFIED"],
        ),
    }

    /// <https://ai.google.dev/api/generate-content#v1beta.GenerationConfig>.
    pub(super) struct NativeConfig<'a>("an object", camel_case) {
        temperature: f64 = Temperature where between(0.0, 2.0),
        top_p "topP": f64 = TopP where between(0.0, 1.0),
        /// One official client writes it as 3.0.
        top_k "topK": ProtoInteger<true> = TopK where whole_between(1, MAX_INTEGER),
        presence_penalty "presencePenalty": f64 = PresencePenalty where between(-2.0, 2.0),
        frequency_penalty "frequencyPenalty": f64 = FrequencyPenalty where between(-2.0, 2.0),
        seed: ProtoInteger<false> = Seed,
        stop_sequences "stopSequences": NativeStopTexts<'a> => StopSequences where stop_sequences,
        max_output_tokens "maxOutputTokens" placed: PlacedValue<'a, ProtoInteger<false>>
            => MaxOutputTokens where output_limit,
        candidate_count "candidateCount": ProtoInteger<false> => Candidates
            where whole_between(1, 8),
        logprobs: ProtoInteger<false> => Logprobs where whole_between(0, 20),
        response_logprobs "responseLogprobs": bool => Logprobs,
        thinking_config "thinkingConfig": NativeThinking<'a> => Thinking(NativeThinking),
        response_mime_type "responseMimeType": BorrowedText<'a> => ResponseFormat
            where one_of(&["text/plain", "application/json", "text/x.enum"]),
        response_schema "responseSchema": OpaqueObject<'a> => ResponseSchema,
        response_json_schema "responseJsonSchema": OpaqueObject<'a> => ResponseSchema,
        response_modalities "responseModalities": Vec<BorrowedText<'a>> => Modalities
            where modalities,
        image_config "imageConfig": NativeImageConfig<'a> => ImageConfig,
        media_resolution "mediaResolution" kept: BorrowedText<'a> where word_of(
            &["MEDIA_RESOLUTION_LOW", "MEDIA_RESOLUTION_MEDIUM", "MEDIA_RESOLUTION_HIGH"],
            &["MEDIA_RESOLUTION_ULTRA_HIGH", "MEDIA_RESOLUTION_UNSPECIFIED"],
        ),
    }
    check NativeConfig::check;

    pub(super) struct NativeThinking<'a>("an object", camel_case) {
        thinking_budget "thinkingBudget": ProtoInteger<false> => Thinking
            where whole_between(-1, MAX_INTEGER),
        thinking_level "thinkingLevel": BorrowedText<'a> => Thinking
            where word_of(&["MINIMAL", "LOW", "MEDIUM", "HIGH"], &[UNSPECIFIED_LEVEL]),
        include_thoughts "includeThoughts": bool,
    }
    check |thinking| {
        let is_one = thinking.thinking_budget.is_none() || thinking.thinking_level.is_none();
        ensure(is_one, "must not hold both `thinkingBudget` and `thinkingLevel`")
    };

    pub(super) struct NativeImageConfig<'a>("an object", camel_case) {
        aspect_ratio "aspectRatio": BorrowedText<'a> where one_of(&[
            "1:1", "2:3", "3:2", "3:4", "4:3", "4:5", "5:4", "9:16", "16:9", "21:9", "1:4", "4:1",
            "1:8", "8:1",
        ]),
        image_size "imageSize": BorrowedText<'a> where one_of(&["512", "1K", "2K", "4K"]),
    }
}

impl NativeRequestView<'_> {
    /// Returns the turns.
    pub(super) fn contents(&self) -> &[NativeContent<'_>] {
        self.contents.as_ref().map(|list| list.0.as_slice()).unwrap_or_default()
    }
}

fn contents_size(contents: &OneOrMany<NativeContent<'_>, MAX_CONTENTS>) -> RuleResult {
    ensure(!contents.0.is_empty(), "must not be empty")?;
    let media: usize = contents.0.iter().map(|content| count_media(content.parts())).sum();
    refuse_if(media > MAX_MEDIA_PARTS, || {
        format!("must have at most {MAX_MEDIA_PARTS} media parts")
    })
}

impl NativeTool<'_> {
    /// Returns the names of the kinds that are present.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &str> {
        let described = [
            self.function_declarations.as_ref().map(|_| "functionDeclarations"),
            self.google_search.as_ref().map(|_| "googleSearch"),
            self.vendor_search.as_ref().map(|_| "vendorSearch"),
            self.vendor_maps.map(|_| "vendorMaps"),
            self.code_execution.as_ref().map(|_| "codeExecution"),
            self.url_context.as_ref().map(|_| "urlContext"),
        ];
        described.into_iter().flatten().chain(self.rest.present().map(|(name, _)| name))
    }

    fn check(&self) -> RuleResult {
        match self.kinds().count() {
            0 => return refuse("must hold a kind of tool"),
            1 => {}
            _ => return refuse("must hold only one kind of tool"),
        }
        match self.rest.present().next() {
            // The only kind whose settings are a list.
            Some((name, raw)) if name != "mcpServers" && !raw.get().starts_with('{') => {
                Err(FieldProblem::new(name.to_owned(), "must be an object"))
            }
            _ => Ok(()),
        }
    }
}

fn function_name(name: &BorrowedText<'_>) -> RuleResult {
    let letters = |b: u8| b.is_ascii_alphanumeric() || b"_.:-".contains(&b);
    let is_wrong = name.is_empty() || name.len() > 128 || !name.bytes().all(letters);
    refuse_for(is_wrong.then_some("must be 1 to 128 letters, digits or `_ . : -`"))
}

fn no_empty_names(names: &Vec<BorrowedText<'_>>) -> RuleResult {
    refuse_for(names.iter().any(|name| name.is_empty()).then_some("must not hold empty names"))
}

fn safety_settings(settings: &NativeSafetySettings<'_>) -> RuleResult {
    let category = |setting: &NativeSafetySetting<'_>| {
        setting.category.as_deref().unwrap_or_default().to_ascii_uppercase()
    };
    let mut seen = HashSet::new();
    match settings.0.iter().position(|setting| !seen.insert(category(setting))) {
        Some(at) => Err(FieldProblem::new(format!("[{at}].category"), "is set twice")),
        None => Ok(()),
    }
}

/// Checks a name of cached content, <https://ai.google.dev/api/caching>.
fn cached_content(name: &BorrowedText<'_>) -> RuleResult {
    let letters = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let id = name.strip_prefix("cachedContents/").unwrap_or_default();
    let is_valid = !id.is_empty() && id.len() <= 256 && id.bytes().all(letters);
    ensure(is_valid, "must have the form `cachedContents/{id}`")
}

fn output_limit(limit: &PlacedValue<'_, ProtoInteger<false>>) -> RuleResult {
    whole_between(1, MAX_INTEGER)(&limit.value)
}

fn stop_sequences(stops: &NativeStopTexts<'_>) -> RuleResult {
    checks::stop_texts(stops)
}

fn modalities(words: &Vec<BorrowedText<'_>>) -> RuleResult {
    ensure(!words.is_empty(), "must not be empty")?;
    let read: Vec<_> = words.iter().map(|word| read_modality(word)).collect();
    for (at, modality) in read.iter().enumerate() {
        let is_there = read.iter().take(at).any(|before| before == modality);
        let why = match modality {
            None => Some("must be one of `TEXT`, `IMAGE`, `AUDIO`"),
            Some(_) => is_there.then_some("is there twice"),
        };
        refuse_for(why).map_err(|e| e.inside(&format!("[{at}]")))?;
    }
    Ok(())
}

impl NativeConfig<'_> {
    fn check(&self) -> RuleResult {
        let has_logprobs = self.logprobs.is_none() || self.response_logprobs == Some(true);
        ensure_at(has_logprobs, "logprobs", "needs `responseLogprobs` to be true")?;
        // `text/x.enum` needs the list of values, so it takes a schema as well.
        let takes_schema =
            matches!(self.response_mime_type.as_deref(), Some("application/json" | "text/x.enum"));
        let why = "needs `responseMimeType` to be `application/json`";
        ensure_at(self.response_schema.is_none() || takes_schema, "responseSchema", why)
    }
}
