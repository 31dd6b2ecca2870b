//! Bundles: newer facts of models and offers, laid over the embedded directory.
//!
//! A bundle has the fields of the data files and names the provider of each entry. It cannot describe
//! a provider: it changes what a model is and costs, never the address that a request or a credential
//! is sent to.

use serde::Deserialize;
use std::collections::HashSet;
use toml::{Table, Value};

use crate::data::{self, DataFile, ModelTable, RawOffer};
use crate::directory_rules::is_day;
use crate::{DirectoryError, ModelDirectory};

/// Largest accepted bundle.
pub const MAX_BUNDLE_BYTES: usize = 2 << 20;
/// Most models and offers of a bundle.
const MAX_ENTRIES: usize = 5_000;
/// Longest name of a model.
const MAX_NAME_BYTES: usize = 256;

/// Fields that decide where requests and credentials go.
const ADDRESS_FIELDS: [&str; 13] = [
    "providers",
    "base",
    "bases",
    "auth",
    "env",
    "fill",
    "paths",
    "quirks",
    "headers",
    "hosts",
    "fetches",
    "like",
    "of",
];
/// Field of the price list.
const PRICE: &str = "price";
/// Facts of a known model that its lanes are found by.
const FIXED_FIELDS: [&str; 3] = ["upstream", "elsewhere", "kind"];

/// Newer facts of models and offers.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectoryBundle {
    /// Version. A later bundle has a larger one.
    pub version: u64,
    /// Date of the facts, `YYYY-MM-DD`.
    pub as_of: String,
    models: Vec<BundleEntry>,
    offers: Vec<BundleEntry>,
}

/// One model or offer of a bundle.
#[derive(Clone, Debug, PartialEq)]
struct BundleEntry {
    /// Place in the bundle, for errors.
    place: String,
    provider: String,
    model: String,
    fields: Table,
}

/// The embedded directory with a bundle laid over it.
#[derive(Clone, Debug)]
pub struct OverlaidDirectory {
    /// The resulting directory.
    pub directory: ModelDirectory,
    /// Places of the bundle whose facts are older than the embedded ones and are not used.
    pub outdated: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BundleFile {
    version: u64,
    as_of: String,
    #[serde(default)]
    models: Vec<Table>,
    #[serde(default)]
    offers: Vec<Table>,
}

fn fault(place: &str, reason: impl Into<String>) -> DirectoryError {
    DirectoryError { file: place.to_owned(), reason: reason.into() }
}

impl DirectoryBundle {
    /// Parses a bundle. References are resolved by [`Self::overlay`].
    pub fn parse(text: &str) -> Result<Self, DirectoryError> {
        if text.len() > MAX_BUNDLE_BYTES {
            return Err(fault("bundle", format!("larger than {MAX_BUNDLE_BYTES} bytes")));
        }
        let table: Table =
            toml::from_str(text).map_err(|error| fault("bundle", one_line(&error.to_string())))?;
        refuse_addresses("bundle", &table, true)?;
        let BundleFile { version, as_of, models, offers } = Value::Table(table)
            .try_into()
            .map_err(|error: toml::de::Error| fault("bundle", one_line(error.message())))?;
        if !is_day(&as_of) {
            return Err(fault("bundle", format!("`as_of` = \"{as_of}\" is not a date")));
        }
        if models.len() + offers.len() > MAX_ENTRIES {
            return Err(fault("bundle", format!("more than {MAX_ENTRIES} models and offers")));
        }
        let mut bundle = Self { version, as_of, models: Vec::new(), offers: Vec::new() };
        for (index, fields) in models.into_iter().enumerate() {
            let mut entry = BundleEntry::read("models", "id", index, fields)?;
            let own = entry.fields.get("as_of").and_then(Value::as_str);
            if own.is_some_and(|own| own > bundle.as_of.as_str()) {
                return Err(fault(&entry.place, "`as_of` is later than that of the bundle"));
            }
            if own.is_none() {
                entry.fields.insert("as_of".to_owned(), Value::String(bundle.as_of.clone()));
            }
            bundle.models.push(entry);
        }
        for (index, fields) in offers.into_iter().enumerate() {
            bundle.offers.push(BundleEntry::read("offers", "model", index, fields)?);
        }
        for list in [&bundle.models, &bundle.offers] {
            let name = |entry: &BundleEntry| {
                let upstream = entry.fields.get("upstream").and_then(Value::as_str);
                let upstream = upstream.unwrap_or_default().to_owned();
                (entry.provider.clone(), entry.model.clone(), upstream)
            };
            let mut seen = HashSet::new();
            if let Some(twice) = list.iter().find(|entry| !seen.insert(name(entry))) {
                return Err(fault(&twice.place, "stands here twice"));
            }
        }
        Ok(bundle)
    }

    /// Returns the number of models and offers.
    pub fn len(&self) -> usize {
        self.models.len() + self.offers.len()
    }

    /// Returns true if the bundle changes nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the ids of the models that the bundle describes or offers.
    pub fn model_ids(&self) -> impl Iterator<Item = &str> {
        self.models.iter().chain(&self.offers).map(|entry| entry.model.as_str())
    }

    /// Lays the bundle over the embedded directory. A key of an entry replaces the key of the embedded
    /// model or offer, and a price the price of that name: a list of a few prices must not make the
    /// others free. An entry that is older than the embedded one is left
    /// out, because the binary was updated after the bundle.
    pub fn overlay(&self) -> Result<OverlaidDirectory, DirectoryError> {
        let mut files = EmbeddedFiles::parse()?;
        let mut outdated = Vec::new();
        for entry in &self.models {
            if !files.put_model(entry)? {
                outdated.push(entry.place.clone());
            }
        }
        for entry in &self.offers {
            if !files.put_offer(entry, &self.as_of)? {
                outdated.push(entry.place.clone());
            }
        }
        let mut read = Vec::with_capacity(files.0.len());
        for EmbeddedFile { name, table, .. } in files.0 {
            let file: DataFile = Value::Table(table)
                .try_into()
                .map_err(|error: toml::de::Error| fault(name, one_line(error.message())))?;
            read.push((name, file));
        }
        // The embedded files are valid, so an error is one of the bundle.
        let (providers, entries) = data::assemble(read)
            .map_err(|DirectoryError { reason, .. }| fault("bundle", reason))?;
        let mut names = HashSet::new();
        for offer in entries.iter().flat_map(|entry| &entry.offers) {
            if !names.insert((&offer.provider, &offer.model)) {
                let name = format!("{}/{}", offer.provider, offer.model);
                return Err(fault("bundle", format!("two models are `{name}` at the provider")));
            }
        }
        Ok(OverlaidDirectory { directory: ModelDirectory::of(providers, entries), outdated })
    }
}

impl DirectoryBundle {
    /// Refuses facts that break a rule on the day `today`, `YYYY-MM-DD`, in the models of the bundle.
    pub fn check_facts(
        &self,
        overlaid: &OverlaidDirectory,
        today: &str,
    ) -> Result<(), DirectoryError> {
        if self.as_of.as_str() > today {
            return Err(fault("bundle", format!("`as_of` = {} is in the future", self.as_of)));
        }
        let touched: HashSet<&str> = self.model_ids().collect();
        let mut findings = overlaid.directory.findings(today).into_iter();
        match findings.find(|found| touched.contains(found.model.as_str())) {
            Some(finding) => Err(fault("bundle", finding.to_string())),
            None => Ok(()),
        }
    }
}

impl BundleEntry {
    fn read(
        list: &str,
        name_field: &str,
        index: usize,
        mut fields: Table,
    ) -> Result<Self, DirectoryError> {
        let mut place = format!("{list}[{index}]");
        refuse_addresses(&place, &fields, false)?;
        let provider = text_field(&place, &fields, "provider")?;
        fields.remove("provider");
        let model = text_field(&place, &fields, name_field)?;
        place = format!("{place} {provider}/{model}");
        let aliases = fields.get("aliases").and_then(Value::as_array);
        let aliases = aliases.into_iter().flatten().filter_map(Value::as_str);
        let upstream = fields.get("upstream").and_then(Value::as_str);
        for name in aliases.chain(upstream).chain([model.as_str()]) {
            if !is_plain_name(name) {
                return Err(fault(&place, format!("`{name}` cannot be the name of a model")));
            }
        }
        if let Some(as_of) = fields.get("as_of")
            && !as_of.as_str().is_some_and(is_day)
        {
            return Err(fault(&place, "`as_of` is not a date"));
        }
        Ok(Self { place, provider, model, fields })
    }
}

/// A data file that a bundle may change.
struct EmbeddedFile {
    name: &'static str,
    provider: String,
    table: Table,
}

struct EmbeddedFiles(Vec<EmbeddedFile>);

impl EmbeddedFiles {
    fn parse() -> Result<Self, DirectoryError> {
        let mut files = Vec::with_capacity(data::FILES.len());
        for (name, text) in &data::FILES {
            let table: Table =
                toml::from_str(text).map_err(|error| fault(name, error.to_string()))?;
            let of = table.get("of").or_else(|| table.get("provider")?.get("id"));
            let provider = of.and_then(Value::as_str).unwrap_or_default().to_owned();
            files.push(EmbeddedFile { name, provider, table });
        }
        Ok(Self(files))
    }

    /// Changes or adds a model. Returns false if the embedded facts are newer.
    fn put_model(&mut self, entry: &BundleEntry) -> Result<bool, DirectoryError> {
        let BundleEntry { place, provider, model, fields } = entry;
        self.files_of(entry)?;
        if self.find_model(model, |owner| owner != provider).is_some() {
            return Err(fault(place, "another provider owns this model; write an offer of it"));
        }
        if let Some(known) = self.find_model(model, |owner| owner == provider) {
            if text_of(known, "as_of") > text_of(fields, "as_of") {
                return Ok(false);
            }
            for field in FIXED_FIELDS {
                if let Some(value) = fields.get(field)
                    && known.get(field) != Some(value)
                {
                    return Err(fault(
                        place,
                        format!("`{field}` of a known model changes only with the program"),
                    ));
                }
            }
            merge_fields(known, fields);
            check_fields::<ModelTable>(place, known)?;
            return Ok(true);
        }
        check_fields::<ModelTable>(place, fields)?;
        if let Some(file) = self.files_of(entry)?.first_mut() {
            push(&mut file.table, "models", fields);
        }
        Ok(true)
    }

    /// Changes or adds an offer. Returns false if the embedded facts of its model are newer.
    fn put_offer(&mut self, entry: &BundleEntry, as_of: &str) -> Result<bool, DirectoryError> {
        let BundleEntry { place, model, fields, .. } = entry;
        let described = self.find_model(model, |_| true);
        if described.as_ref().is_some_and(|known| text_of(known, "as_of") > Some(as_of)) {
            return Ok(false);
        }
        let price = described.and_then(|known| known.get(PRICE)).cloned();
        let mut own_files = self.files_of(entry)?;
        let upstream = fields.get("upstream");
        let mut known: Vec<&mut Table> = own_files
            .iter_mut()
            .flat_map(|file| tables(&mut file.table, "offers"))
            .filter(|known| text_of(known, "model") == Some(model))
            .filter(|known| upstream.is_none() || known.get("upstream") == upstream)
            .collect();
        match known.as_mut_slice() {
            [] => {
                check_fields::<RawOffer>(place, fields)?;
                if let Some(file) = own_files.first_mut() {
                    push(&mut file.table, "offers", fields);
                }
            }
            [known] => {
                // An offer without prices has those of the model.
                if let Some(price) = price.filter(|_| fields.contains_key(PRICE)) {
                    known.entry(PRICE).or_insert(price);
                }
                merge_fields(known, fields);
                check_fields::<RawOffer>(place, known)?;
            }
            _ => return Err(fault(place, "the provider has several offers; name the `upstream`")),
        }
        Ok(true)
    }

    /// Returns the description of a model in the files of chosen providers.
    fn find_model(&mut self, id: &str, chosen: impl Fn(&str) -> bool) -> Option<&mut Table> {
        let files = self.0.iter_mut().filter(|file| chosen(&file.provider));
        let mut models = files.flat_map(|file| tables(&mut file.table, "models"));
        models.find(|known| text_of(known, "id") == Some(id))
    }

    fn files_of(&mut self, entry: &BundleEntry) -> Result<Vec<&mut EmbeddedFile>, DirectoryError> {
        let own = self.0.iter_mut().filter(|file| file.provider == entry.provider);
        let own: Vec<_> = own.collect();
        match own.is_empty() {
            true => Err(fault(
                &entry.place,
                format!(
                    "there is no provider `{}`; a provider comes with the program",
                    entry.provider
                ),
            )),
            false => Ok(own),
        }
    }
}

/// Replaces the fields of a model or offer, and single prices of its list.
fn merge_fields(known: &mut Table, fields: &Table) {
    for (field, value) in fields {
        match (known.get_mut(field), value) {
            (Some(Value::Table(prices)), Value::Table(newer)) if field == PRICE => {
                prices.extend(newer.clone());
            }
            _ => drop(known.insert(field.clone(), value.clone())),
        }
    }
}

/// Refuses fields that decide where credentials go, with a reason that an unknown field lacks.
fn refuse_addresses(place: &str, fields: &Table, is_bundle: bool) -> Result<(), DirectoryError> {
    let provider = is_bundle.then_some("provider").filter(|field| fields.contains_key(*field));
    let found = ADDRESS_FIELDS.into_iter().find(|field| fields.contains_key(*field));
    match provider.or(found) {
        Some(field) => Err(fault(
            place,
            format!(
                "`{field}` decides where requests and credentials go, which a bundle cannot change"
            ),
        )),
        None => Ok(()),
    }
}

fn check_fields<T: for<'de> Deserialize<'de>>(
    place: &str,
    fields: &Table,
) -> Result<(), DirectoryError> {
    let read: Result<T, toml::de::Error> = Value::Table(fields.clone()).try_into();
    read.map(drop).map_err(|error| fault(place, one_line(error.message())))
}

fn text_field(place: &str, fields: &Table, field: &str) -> Result<String, DirectoryError> {
    match fields.get(field) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(_) => Err(fault(place, format!("`{field}` is not a name"))),
        None => Err(fault(place, format!("`{field}` is missing"))),
    }
}

fn text_of<'a>(fields: &'a Table, field: &str) -> Option<&'a str> {
    fields.get(field).and_then(Value::as_str)
}

fn tables<'a>(file: &'a mut Table, list: &str) -> impl Iterator<Item = &'a mut Table> {
    let list = file.get_mut(list).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_table_mut)
}

fn push(file: &mut Table, list: &str, fields: &Table) {
    let entry = file.entry(list).or_insert_with(|| Value::Array(Vec::new()));
    if let Some(list) = entry.as_array_mut() {
        list.push(Value::Table(fields.clone()));
    }
}

/// Returns true for a name that cannot leave the place of a model in a path.
fn is_plain_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:@/".contains(&byte);
    let segment = |part: &str| !part.is_empty() && !part.bytes().all(|byte| byte == b'.');
    name.len() <= MAX_NAME_BYTES && name.bytes().all(allowed) && name.split('/').all(segment)
}

/// Joins the lines of an error.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
