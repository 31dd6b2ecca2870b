//! Embedded data files and their reader.
//!
//! Every file holds one `[provider]`, its own `[[models]]`, and `[[offers]]` of models that other
//! files describe. A provider with many models has a second file that names it with `of`. Unknown
//! keys are refused and every reference is resolved, so that tests find errors in the data before a
//! caller does.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use canon::{JsonOutput, ToolKind, WireFormat};
use serde::Deserialize;

use crate::feature::feature_about;
use crate::{
    AuthScheme, CapabilityError, CapabilityTable, DirectoryError, EndpointPath, Endpoints,
    FieldQuirks, ImageCapabilities, MediaFetch, MediaLimits, ModelCapabilities, ModelCounts,
    ModelEntry, ModelKind, ModelOffer, ParameterSupport, PriceList, ProviderEntry, ThinkingSupport,
    VectorDimensions,
};

/// The files, in listing order of their models and offers.
pub(crate) static FILES: [(&str, &str); 32] = [
    ("openai.toml", include_str!("../data/openai.toml")),
    ("openai-earlier.toml", include_str!("../data/openai-earlier.toml")),
    ("anthropic.toml", include_str!("../data/anthropic.toml")),
    ("gemini.toml", include_str!("../data/gemini.toml")),
    ("mistral.toml", include_str!("../data/mistral.toml")),
    ("deepseek.toml", include_str!("../data/deepseek.toml")),
    ("xai.toml", include_str!("../data/xai.toml")),
    ("byteplus.toml", include_str!("../data/byteplus.toml")),
    ("cohere.toml", include_str!("../data/cohere.toml")),
    ("moonshot.toml", include_str!("../data/moonshot.toml")),
    ("zai.toml", include_str!("../data/zai.toml")),
    ("minimax.toml", include_str!("../data/minimax.toml")),
    ("alibaba.toml", include_str!("../data/alibaba.toml")),
    ("meta.toml", include_str!("../data/meta.toml")),
    ("amazon.toml", include_str!("../data/amazon.toml")),
    ("perplexity.toml", include_str!("../data/perplexity.toml")),
    ("nvidia.toml", include_str!("../data/nvidia.toml")),
    ("azure.toml", include_str!("../data/azure.toml")),
    ("vertex.toml", include_str!("../data/vertex.toml")),
    ("bedrock.toml", include_str!("../data/bedrock.toml")),
    ("bedrock-runtime.toml", include_str!("../data/bedrock-runtime.toml")),
    ("groq.toml", include_str!("../data/groq.toml")),
    ("cerebras.toml", include_str!("../data/cerebras.toml")),
    ("together.toml", include_str!("../data/together.toml")),
    ("fireworks.toml", include_str!("../data/fireworks.toml")),
    ("openrouter.toml", include_str!("../data/openrouter.toml")),
    ("ollama.toml", include_str!("../data/ollama.toml")),
    ("vllm.toml", include_str!("../data/vllm.toml")),
    ("llamacpp.toml", include_str!("../data/llamacpp.toml")),
    ("lmstudio.toml", include_str!("../data/lmstudio.toml")),
    ("compatible.toml", include_str!("../data/compatible.toml")),
    ("demo.toml", include_str!("../data/demo.toml")),
];

/// One file as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DataFile {
    provider: Option<ProviderTable>,
    /// Id of the provider, in a second file of the same provider.
    of: Option<String>,
    #[serde(default)]
    models: Vec<ModelTable>,
    #[serde(default)]
    offers: Vec<RawOffer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderTable {
    id: String,
    name: String,
    speaks: Vec<String>,
    base: String,
    auth: AuthTable,
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    fill: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    bases: BTreeMap<String, String>,
    #[serde(default)]
    paths: BTreeMap<String, EndpointPath>,
    #[serde(default)]
    quirks: BTreeMap<String, FieldQuirks>,
    fetches: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum AuthTable {
    Bearer,
    Header(String),
    Google,
    SigV4(String),
    None,
}

/// A model as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelTable {
    id: String,
    #[serde(default)]
    aliases: Vec<String>,
    /// The provider's name for the model; the id if absent.
    upstream: Option<String>,
    /// True if only other providers serve it, as with published weights.
    #[serde(default)]
    elsewhere: bool,
    /// Wire formats of the model, if fewer than those of its provider.
    #[serde(default)]
    speaks: Vec<String>,
    kind: String,
    features: Vec<String>,
    context: Option<u64>,
    max_output: Option<u64>,
    input: Vec<String>,
    output: Vec<String>,
    media_limits: Option<BTreeMap<String, MediaLimits>>,
    tools: Option<Vec<ToolKind>>,
    structured_output: Option<Vec<String>>,
    parameters: Option<BTreeMap<String, ParameterSupport>>,
    /// Absent if the model does not think.
    thinking: Option<ThinkingSupport>,
    candidates: Option<u32>,
    pictures: Option<ImageCapabilities>,
    dimensions: Option<VectorDimensions>,
    #[serde(default)]
    counts: ModelCounts,
    #[serde(default)]
    price: PriceList,
    about: String,
    as_of: String,
    released: Option<String>,
    retires: Option<String>,
}

/// An offer as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawOffer {
    model: String,
    upstream: String,
    /// Wire formats of the offer, if fewer than those of the provider.
    #[serde(default)]
    speaks: Vec<String>,
    /// Absent if the price equals that of the model's own provider.
    #[serde(default)]
    price: PriceList,
}

/// Reads files, given as names and texts, into providers and models.
pub(crate) fn read(
    files: &[(&str, &str)],
) -> Result<(Vec<ProviderEntry>, Vec<ModelEntry>), DirectoryError> {
    let mut parsed = Vec::with_capacity(files.len());
    for (name, text) in files {
        let file = read_file(text)
            .map_err(|reason| DirectoryError { file: (*name).to_owned(), reason })?;
        parsed.push((*name, file));
    }
    assemble(parsed)
}

/// Reads one file, entry by entry. The parser keeps some 30 bytes for each byte of its text, and the
/// memory of a whole file would stay with the process.
fn read_file(text: &str) -> Result<DataFile, String> {
    let mut file = DataFile::default();
    let (mut rest, mut line) = (text, 1);
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(entry_end(rest));
        let DataFile { provider, of, models, offers } = toml::from_str(part)
            .map_err(|why| format!("in the entry that begins in line {line}: {why}"))?;
        if provider.is_some() && file.provider.is_some() {
            return Err(format!("a second `provider` stands before line {line}"));
        }
        file.provider = file.provider.or(provider);
        file.of = file.of.or(of);
        file.models.extend(models);
        file.offers.extend(offers);
        line += part.matches('\n').count();
        rest = behind;
    }
    Ok(file)
}

/// Returns where the first entry of a text ends: before the line that begins the next one.
fn entry_end(text: &str) -> usize {
    let is_entry = |place: &usize| {
        let next = text.get(*place..).unwrap_or_default();
        next.starts_with("[[models]]") || next.starts_with("[[offers]]")
    };
    let mut starts = text.match_indices("\n[[").map(|(line_end, _)| line_end + 1);
    starts.find(is_entry).unwrap_or(text.len())
}

/// Resolves the references between parsed files.
pub(crate) fn assemble(
    files: Vec<(&str, DataFile)>,
) -> Result<(Vec<ProviderEntry>, Vec<ModelEntry>), DirectoryError> {
    let mut reader = DirectoryReader::default();
    let mut offers = Vec::new();
    for (name, file) in files {
        let fault = |why: String| DirectoryError { file: name.to_owned(), reason: why };
        let id = reader.provider_of(file.provider, file.of).map_err(fault)?;
        for model in file.models {
            reader.add_model(&id, model).map_err(fault)?;
        }
        offers.push((name, id, file.offers));
    }
    for (name, provider, list) in offers {
        for offer in list {
            reader
                .add_offer(&provider, offer)
                .map_err(|why| DirectoryError { file: name.to_owned(), reason: why })?;
        }
    }
    reader.finish().map_err(|why| DirectoryError { file: "all files".to_owned(), reason: why })
}

/// State of reading the files of a directory.
#[derive(Default)]
struct DirectoryReader {
    providers: Vec<ProviderEntry>,
    entries: Vec<ModelEntry>,
    places: HashMap<String, usize>,
    names: HashSet<String>,
}

impl DirectoryReader {
    /// Returns the id of the file's provider, and adds the provider if the file defines it.
    fn provider_of(
        &mut self,
        own: Option<ProviderTable>,
        of: Option<String>,
    ) -> Result<String, String> {
        let known = |id: &str| self.providers.iter().any(|known| known.id == id);
        match (own, of) {
            (Some(own), None) if known(&own.id) => {
                Err(format!("provider `{}` stands here twice", own.id))
            }
            (Some(own), None) => {
                let provider = own.read()?;
                let id = provider.id.clone();
                self.providers.push(provider);
                Ok(id)
            }
            (None, Some(of)) if known(&of) => Ok(of),
            (None, Some(of)) => Err(format!("provider `{of}` is not known yet")),
            (Some(_), Some(_)) | (None, None) => {
                Err("a file has either `[provider]` or `of`".to_owned())
            }
        }
    }

    fn add_model(&mut self, provider: &str, model: ModelTable) -> Result<(), String> {
        let id = model.id.clone();
        let known = self.providers.iter().find(|known| known.id == provider);
        let name = known.map_or(provider, |known| &known.name);
        let entry = model.read(provider, name).map_err(|why| format!("model `{id}`: {why}"))?;
        for name in entry.aliases.iter().chain([&entry.id]) {
            if !self.names.insert(name.clone()) {
                return Err(format!("model id `{name}` stands here twice"));
            }
        }
        self.places.insert(id, self.entries.len());
        self.entries.push(entry);
        Ok(())
    }

    fn add_offer(&mut self, provider: &str, offer: RawOffer) -> Result<(), String> {
        let RawOffer { model, upstream, speaks, price } = offer;
        let speaks = origins(&speaks)?;
        let place = self.places.get(&model).copied();
        let Some(entry) = place.and_then(|place| self.entries.get_mut(place)) else {
            return Err(format!("offer of `{model}`, which no file describes"));
        };
        let first = entry.offers.is_empty();
        let prices = match price.is_empty() {
            true if first => return Err(format!("the first offer of `{model}` has no price")),
            true => Arc::clone(&entry.prices),
            false => Arc::new(price.prices().map_err(|why| format!("offer of `{model}`: {why}"))?),
        };
        if first {
            entry.prices = Arc::clone(&prices);
        }
        let provider = provider.to_owned();
        entry.offers.push(ModelOffer { provider, model: upstream, formats: speaks, prices });
        Ok(())
    }

    fn finish(self) -> Result<(Vec<ProviderEntry>, Vec<ModelEntry>), String> {
        match self.entries.iter().find(|entry| entry.offers.is_empty()) {
            Some(entry) => Err(format!("nobody serves `{}`", entry.id)),
            None => Ok((self.providers, self.entries)),
        }
    }
}

impl ProviderTable {
    fn read(self) -> Result<ProviderEntry, String> {
        let Self { id, name, speaks, base, auth, env, fill, bases, paths, quirks, fetches } = self;
        Ok(ProviderEntry {
            endpoints: Endpoints {
                provider: id.clone(),
                paths: by_origin(paths)?,
                quirks: by_origin(quirks)?,
            },
            id,
            name,
            formats: origins(&speaks)?,
            base,
            auth: match auth {
                AuthTable::Bearer => AuthScheme::Bearer,
                AuthTable::Header(name) => AuthScheme::Header(name),
                AuthTable::Google => AuthScheme::Google,
                AuthTable::SigV4(service) => AuthScheme::SigV4(service),
                AuthTable::None => AuthScheme::None,
            },
            key_env: env,
            fetches: match fetches {
                None => MediaFetch::All,
                Some(word) => MediaFetch::parse(&word)
                    .ok_or_else(|| format!("fetches: `{word}` is not known"))?,
            },
            placeholder_env: fill.into_iter().collect(),
            regional_bases: bases.into_iter().collect(),
        })
    }
}

impl ModelTable {
    fn read(self, provider: &str, provider_name: &str) -> Result<ModelEntry, String> {
        let Self {
            id,
            aliases,
            upstream,
            elsewhere,
            speaks,
            kind,
            features,
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
            counts,
            price,
            about,
            as_of,
            released,
            retires,
        } = self;
        if let Some(tag) = features.iter().find(|tag| feature_about(tag).is_none()) {
            return Err(format!("there is no feature `{tag}`"));
        }
        let is_chat = kind == ModelKind::Chat.as_str();
        let has = |tag: &str| features.iter().any(|own| own == tag);
        let pictures = pictures.map(|pictures| ImageCapabilities {
            edits: pictures.edits.or(Some(has("image-edit"))),
            ..pictures
        });
        let forms = || JsonOutput::ALL.map(|form| form.as_str().to_owned()).to_vec();
        let mut capabilities = ModelCapabilities::default();
        let table = CapabilityTable {
            context,
            max_output,
            input: Some(input),
            output: Some(output),
            media_limits,
            tools: tools
                .or_else(|| Some(tagged_tools(has)).filter(|named| is_chat || named.len() > 1)),
            structured_output: structured_output.or_else(|| has("json-schema").then(forms)),
            parameters,
            thinking: Some(thinking.unwrap_or(ThinkingSupport::Never)),
            candidates,
            pictures,
            dimensions,
        };
        table
            .apply(&mut capabilities)
            .map_err(|CapabilityError { key, reason }| format!("{key}: {reason}"))?;
        if elsewhere && (upstream.is_some() || !price.is_empty()) {
            return Err(
                "the model is served elsewhere: name and price belong to the offers".to_owned()
            );
        }
        if !elsewhere && price.is_empty() {
            return Err("the price is missing".to_owned());
        }
        let prices = Arc::new(price.prices().map_err(|why| why.to_string())?);
        let mut offers = Vec::new();
        if !elsewhere {
            offers.push(ModelOffer {
                provider: provider.to_owned(),
                model: upstream.unwrap_or_else(|| id.clone()),
                formats: origins(&speaks)?,
                prices: Arc::clone(&prices),
            });
        }
        Ok(ModelEntry {
            id,
            aliases,
            provider: provider.to_owned(),
            provider_name: provider_name.to_owned(),
            kind: ModelKind::parse(&kind).ok_or_else(|| format!("there is no kind `{kind}`"))?,
            features,
            capabilities,
            counts,
            prices,
            about,
            as_of,
            released,
            retires,
            offers,
        })
    }
}

/// Returns the tools that the tags of a model name. There may be more.
fn tagged_tools(has: impl Fn(&str) -> bool) -> Vec<ToolKind> {
    let tags = [
        ("tools", ToolKind::Function),
        ("search", ToolKind::WebSearch),
        ("code-execution", ToolKind::CodeExecution),
        ("computer-use", ToolKind::ComputerUse),
    ];
    let named = tags.into_iter().filter(|(tag, _)| has(tag)).map(|(_, kind)| kind);
    named.chain([ToolKind::Other]).collect()
}

fn origin(word: &str) -> Result<WireFormat, String> {
    WireFormat::parse(word).ok_or_else(|| format!("there is no format `{word}`"))
}

fn by_origin<T>(table: BTreeMap<String, T>) -> Result<Vec<(WireFormat, T)>, String> {
    table.into_iter().map(|(word, value)| Ok((origin(&word)?, value))).collect()
}

fn origins(words: &[String]) -> Result<Vec<WireFormat>, String> {
    words.iter().map(|word| origin(word)).collect()
}
