//! Capabilities of a model: the record that requests are judged by, and that the lists of models, the
//! reference pages and the forms of the console show.
//!
//! An absent value is unknown. It is not judged and not shown.

use std::collections::BTreeMap;

use canon::{JsonOutput, SamplingParameter, ThinkingRange, ToolKind};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::feature::MODALITIES;
use crate::{ImageCapabilities, ModelKind, ThinkingSupport};

/// Capabilities of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelCapabilities {
    /// Maximum number of tokens of prompt and answer together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Maximum number of tokens of an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Input modalities from [`crate::MODALITIES`]; empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input: Vec<String>,
    /// Output modalities from [`crate::MODALITIES`]; empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<String>,
    /// Limits of the media in a request, by modality.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub media_limits: BTreeMap<String, MediaLimits>,
    /// Kinds of tools that it uses. With [`ToolKind::Other`] there may be more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolKind>>,
    /// Forms of JSON that it answers in.
    #[serde(serialize_with = "json_words", skip_serializing_if = "Option::is_none")]
    pub structured_output: Option<Vec<JsonOutput>>,
    /// Sampling parameters, by the words of [`SamplingParameter`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, ParameterSupport>,
    /// Thinking options.
    #[serde(skip_serializing_if = "ThinkingSupport::is_unknown")]
    pub thinking: ThinkingSupport,
    /// Maximum number of answers of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates: Option<u32>,
    /// Image capabilities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<ImageCapabilities>,
    /// Lengths of its vectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dimensions: Option<VectorDimensions>,
}

/// Limits of the media of one kind in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MediaLimits {
    /// Maximum number of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_count: Option<u64>,
    /// Maximum size of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Maximum length of a sound or video.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_seconds: Option<u64>,
    /// Maximum number of pages of a document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pages: Option<u64>,
    /// Media types; empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
}

/// A parameter of a model: written as `false`, or as a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParameterSupport {
    /// The model does not take it.
    Unsupported,
    /// The model takes it.
    Supported(ParameterRange),
}

/// Range and default of a parameter. For texts it is the range of their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ParameterRange {
    /// Smallest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Largest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Value of a request without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<f64>,
}

/// Lengths of the vectors of an embedding model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VectorDimensions {
    /// Smallest length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    /// Largest length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// Length of a request without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<u64>,
    /// All lengths, if there are only some.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<u64>,
}

/// Capabilities as they are written in a data file or by an operator. Absent fields change nothing. Both
/// tables repeat the fields, because serde cannot flatten into a table that refuses unknown keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CapabilityTable {
    /// Tokens of prompt and answer together.
    pub context: Option<u64>,
    /// Tokens of an answer.
    pub max_output: Option<u64>,
    /// Input modalities.
    pub input: Option<Vec<String>>,
    /// Output modalities.
    pub output: Option<Vec<String>>,
    /// Limits by modality.
    pub media_limits: Option<BTreeMap<String, MediaLimits>>,
    /// Words of tools.
    pub tools: Option<Vec<ToolKind>>,
    /// Words of [`JsonOutput`].
    pub structured_output: Option<Vec<String>>,
    /// Parameters by name.
    pub parameters: Option<BTreeMap<String, ParameterSupport>>,
    /// Thinking options, or `false`.
    pub thinking: Option<ThinkingSupport>,
    /// Number of answers.
    pub candidates: Option<u32>,
    /// Image capabilities.
    pub pictures: Option<ImageCapabilities>,
    /// Lengths of vectors.
    pub dimensions: Option<VectorDimensions>,
}

/// Error in a [`CapabilityTable`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapabilityError {
    /// Key of the table.
    pub key: &'static str,
    /// Description of the error.
    pub reason: String,
}

impl CapabilityTable {
    /// Puts what is written in place of what was known.
    pub fn apply(self, to: &mut ModelCapabilities) -> Result<(), CapabilityError> {
        let Self {
            context,
            max_output,
            input,
            output,
            media_limits,
            tools,
            structured_output,
            parameters,
            thinking,
            candidates,
            pictures,
            dimensions,
        } = self;
        let fault = |key, reason| CapabilityError { key, reason };
        for (key, words) in [("input", &input), ("output", &output)] {
            check_words(words.iter().flatten(), &MODALITIES)
                .map_err(|word| fault(key, format!("there is no modality `{word}`")))?;
        }
        check_words(media_limits.iter().flat_map(BTreeMap::keys), &MODALITIES)
            .map_err(|word| fault("media_limits", format!("there is no modality `{word}`")))?;
        let known = SamplingParameter::ALL.map(SamplingParameter::as_str);
        check_words(parameters.iter().flat_map(BTreeMap::keys), &known)
            .map_err(|word| fault("parameters", format!("there is no parameter `{word}`")))?;
        for (name, support) in parameters.iter().flatten() {
            let ParameterSupport::Supported(range) = support else { continue };
            if range.min.zip(range.max).is_some_and(|(min, max)| min > max) {
                return Err(fault("parameters", format!("no value is in the range of `{name}`")));
            }
        }
        for (word, limits) in media_limits.iter().flatten() {
            let MediaLimits { max_count, max_bytes, max_seconds, max_pages, types: _ } = limits;
            if [max_count, max_bytes, max_seconds, max_pages].contains(&&Some(0)) {
                let reason =
                    format!("a limit of `{word}` is 0; leave `{word}` out of `input` instead");
                return Err(fault("media_limits", reason));
            }
        }
        let range = thinking.as_ref().and_then(ThinkingSupport::range);
        if range.and_then(|range| range.min.zip(range.max)).is_some_and(|(min, max)| min > max) {
            return Err(fault("thinking", "no budget is in the range".to_owned()));
        }
        if candidates == Some(0) {
            return Err(fault("candidates", "must be at least 1".to_owned()));
        }
        let json = |word: &String| {
            let known = JsonOutput::ALL.into_iter().find(|form| form.as_str() == word);
            known.ok_or_else(|| fault("structured_output", format!("there is no form `{word}`")))
        };
        let structured_output = structured_output
            .map(|words| words.iter().map(json).collect::<Result<Vec<_>, _>>())
            .transpose()?;
        replace(&mut to.context_window, context);
        replace(&mut to.max_output_tokens, max_output);
        to.input = input.unwrap_or_else(|| std::mem::take(&mut to.input));
        to.output = output.unwrap_or_else(|| std::mem::take(&mut to.output));
        to.media_limits = media_limits.unwrap_or_else(|| std::mem::take(&mut to.media_limits));
        replace(&mut to.tools, tools);
        replace(&mut to.structured_output, structured_output);
        to.parameters.extend(parameters.into_iter().flatten());
        to.thinking = thinking.unwrap_or_else(|| std::mem::take(&mut to.thinking));
        replace(&mut to.candidates, candidates);
        replace(&mut to.images, pictures);
        replace(&mut to.dimensions, dimensions);
        Ok(())
    }
}

fn replace<T>(known: &mut Option<T>, written: Option<T>) {
    if written.is_some() {
        *known = written;
    }
}

/// Returns the first word that is not in the list as an error.
fn check_words<'a>(words: impl Iterator<Item = &'a String>, known: &[&str]) -> Result<(), String> {
    words.into_iter().find(|word| !known.contains(&word.as_str())).cloned().map_or(Ok(()), Err)
}

impl ModelCapabilities {
    /// Forgets what requests are judged by, for a model with lanes that the record does not describe.
    pub fn forget_limits(&mut self) {
        self.input.clear();
        self.output.clear();
        self.media_limits.clear();
        self.parameters.clear();
        (self.tools, self.structured_output) = (None, None);
        (self.candidates, self.dimensions) = (None, None);
        self.thinking = ThinkingSupport::Unknown;
    }

    /// Adds the media that capability tags promise, if the media are known.
    pub fn add_input_of(&mut self, features: &[String]) {
        let tags = [("vision", "image"), ("audio-input", "audio"), ("video-input", "video")];
        for (tag, modality) in tags {
            let is_new = !self.input.is_empty() && self.input.iter().all(|own| own != modality);
            if is_new && features.iter().any(|own| own == tag) {
                self.input.push(modality.to_owned());
            }
        }
    }

    /// Returns the capability tags that these facts imply, in the order of [`crate::FEATURES`].
    pub fn implied_features(&self, kind: ModelKind) -> Vec<&'static str> {
        let uses = |kind| self.tools.as_ref().is_some_and(|tools| tools.contains(&kind));
        let is_chat = kind == ModelKind::Chat;
        let reads = |word: &str| is_chat && self.input.iter().any(|own| own == word);
        let makes = |word: &str| self.output.iter().any(|own| own == word);
        let forms = self.structured_output.as_deref().unwrap_or_default();
        let tags = [
            ("tools", uses(ToolKind::Function)),
            ("json-schema", forms.contains(&JsonOutput::Schema)),
            ("thinking", matches!(self.thinking, ThinkingSupport::Range(_))),
            ("vision", reads("image")),
            ("audio-input", reads("audio")),
            ("video-input", reads("video")),
            ("documents", reads("document")),
            ("search", uses(ToolKind::WebSearch)),
            ("code-execution", uses(ToolKind::CodeExecution)),
            ("computer-use", uses(ToolKind::ComputerUse)),
            ("audio-output", makes("audio")),
            ("image-output", makes("image")),
            ("embeddings", makes("vector")),
        ];
        tags.into_iter().filter(|(_, holds)| *holds).map(|(tag, _)| tag).collect()
    }

    /// Returns the range of a parameter; `None` if it is not known or not taken.
    pub fn parameter(&self, name: &str) -> Option<ParameterRange> {
        match self.parameters.get(name)? {
            ParameterSupport::Supported(range) => Some(*range),
            ParameterSupport::Unsupported => None,
        }
    }
}

impl ParameterRange {
    /// Returns true if the value is within the range, as far as it is known.
    pub fn accepts(&self, value: f64) -> bool {
        let Self { min, max, default: _ } = *self;
        min.is_none_or(|min| value >= min) && max.is_none_or(|max| value <= max)
    }
}

impl std::fmt::Display for ParameterRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.min, self.max) {
            (Some(min), Some(max)) => write!(f, "between {min} and {max}"),
            (None, Some(max)) => write!(f, "at most {max}"),
            (Some(min), None) => write!(f, "at least {min}"),
            (None, None) => f.write_str("any number"),
        }
    }
}

impl VectorDimensions {
    /// Returns true if the model makes vectors of that length, or if that is not known.
    pub fn accepts(&self, length: u64) -> bool {
        let Self { min, max, default: _, values } = self;
        min.is_none_or(|min| length >= min)
            && max.is_none_or(|max| length <= max)
            && (values.is_empty() || values.contains(&length))
    }
}

impl std::fmt::Display for VectorDimensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { min, max, default: _, values } = self;
        match (min, max) {
            _ if !values.is_empty() => {
                let words: Vec<_> = values.iter().map(u64::to_string).collect();
                f.write_str(&words.join(", "))
            }
            (Some(min), Some(max)) => write!(f, "{min} to {max}"),
            (None, Some(max)) => write!(f, "up to {max}"),
            (Some(min), None) => write!(f, "from {min}"),
            (None, None) => f.write_str("any"),
        }
    }
}

fn json_words<S: Serializer>(forms: &Option<Vec<JsonOutput>>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(forms.iter().flatten().map(|form| form.as_str()))
}

/// A value that is written as `false`, `true` or a table.
#[derive(Deserialize)]
#[serde(untagged, expecting = "`false`, `true` or a table")]
enum SwitchOrTable<T> {
    Switch(bool),
    Table(T),
}

impl<'de> Deserialize<'de> for ParameterSupport {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match SwitchOrTable::<ParameterRange>::deserialize(from)? {
            SwitchOrTable::Switch(false) => Self::Unsupported,
            SwitchOrTable::Switch(true) => Self::Supported(ParameterRange::default()),
            SwitchOrTable::Table(range) => Self::Supported(range),
        })
    }
}

impl Serialize for ParameterSupport {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unsupported => to.serialize_bool(false),
            Self::Supported(range) => range.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for ThinkingSupport {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(match SwitchOrTable::<ThinkingRange>::deserialize(from)? {
            SwitchOrTable::Switch(false) => Self::Never,
            SwitchOrTable::Switch(true) => Self::Range(ThinkingRange::default()),
            SwitchOrTable::Table(range) => Self::Range(range),
        })
    }
}

impl Serialize for ThinkingSupport {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unknown => to.serialize_none(),
            Self::Never => to.serialize_bool(false),
            Self::Range(range) => range.serialize(to),
        }
    }
}
