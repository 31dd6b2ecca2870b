//! The catalog: the models of one gateway, listed in pages.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{Model, ModelFilter};

/// The models of one gateway, sorted by provider and id. The demo models come last, because callers
/// with other models look for those.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    models: Vec<Arc<Model>>,
    /// All callable ids: each model, followed by copies under its aliases.
    listed: Vec<Arc<Model>>,
    by_id: HashMap<String, usize>,
}

/// One page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogPage {
    /// Number of the page, starting at 1.
    pub page: usize,
    /// Maximum number of models per page.
    pub page_size: usize,
    /// Number of models on all pages.
    pub total: usize,
    /// The models on this page.
    pub models: Vec<Arc<Model>>,
}

impl Catalog {
    /// Creates a catalog of the models that have a lane. Of two models with the same id the later
    /// one stays, so that the operator's configuration overrides the directory.
    pub fn new(models: Vec<Model>) -> Self {
        let served = models.into_iter().filter(|model| !model.lanes.is_empty());
        let unique: HashMap<_, _> = served.map(|model| (model.id.clone(), model)).collect();
        let mut models: Vec<_> = unique.into_values().map(Arc::new).collect();
        models.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
        let listed: Vec<_> = models.iter().flat_map(under_all_ids).collect();
        let by_id =
            listed.iter().enumerate().map(|(place, model)| (model.id.clone(), place)).collect();
        Self { models, listed, by_id }
    }

    /// Returns the model with exactly that id or alias.
    pub fn get(&self, id: &str) -> Option<&Arc<Model>> {
        self.by_id.get(id).and_then(|place| self.listed.get(*place))
    }

    /// Returns all models in order, without aliases.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Model>> {
        self.models.iter()
    }

    /// Returns the number of models, without aliases.
    pub fn len(&self) -> usize {
        self.models.len()
    }

    /// Returns true if there are no models.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// Returns one page of the callable ids that match the filter. Page numbers and page sizes
    /// start at one. A page after the last one is empty.
    pub fn list(&self, filter: &ModelFilter, page: usize, page_size: usize) -> CatalogPage {
        let (page, page_size) = (page.max(1), page_size.max(1));
        let admitted: Vec<_> = self.listed.iter().filter(|model| filter.matches(model)).collect();
        let models = admitted
            .iter()
            .skip((page - 1).saturating_mul(page_size))
            .take(page_size)
            .map(|model| Arc::clone(model))
            .collect();
        CatalogPage { page, page_size, total: admitted.len(), models }
    }
}

/// Returns a model and copies of it under its aliases, so that a search for an alias finds it.
fn under_all_ids(model: &Arc<Model>) -> impl Iterator<Item = Arc<Model>> {
    let other = |id: &String| Model { id: id.clone(), aliases: Vec::new(), ..Model::clone(model) };
    std::iter::once(Arc::clone(model)).chain(model.aliases.iter().map(other).map(Arc::new))
}

fn sort_key(model: &Model) -> (bool, &str, &str) {
    (model.provider == "demo", &model.provider, &model.id)
}
