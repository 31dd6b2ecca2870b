//! The catalog: the models of one gateway, listed in pages.

use std::collections::HashMap;
use std::sync::Arc;

use crate::{Model, ModelFilter};

/// The models of one gateway, sorted by provider and id. The demo models come last, because callers
/// with other models look for those.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    models: Vec<Arc<Model>>,
    /// Places of the models by id and alias.
    by_id: HashMap<String, usize>,
}

/// One page of a listing.
#[derive(Clone, Debug, PartialEq)]
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
        let mut by_id = HashMap::with_capacity(models.len());
        // An id goes before an equal alias of another model.
        for (place, model) in models.iter().enumerate() {
            by_id.extend(model.aliases.iter().map(|alias| (alias.clone(), place)));
        }
        by_id.extend(models.iter().enumerate().map(|(place, model)| (model.id.clone(), place)));
        Self { models, by_id }
    }

    /// Returns the model with exactly that id or alias.
    pub fn get(&self, id: &str) -> Option<&Arc<Model>> {
        self.by_id.get(id).and_then(|place| self.models.get(*place))
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

    /// Returns one page of the models that match the filter. Page numbers and page sizes start at
    /// one. A page after the last one is empty.
    pub fn list(&self, filter: &ModelFilter, page: usize, page_size: usize) -> CatalogPage {
        let (page, page_size) = (page.max(1), page_size.max(1));
        let admitted: Vec<_> = self.models.iter().filter(|model| filter.matches(model)).collect();
        let models = admitted
            .iter()
            .skip((page - 1).saturating_mul(page_size))
            .take(page_size)
            .map(|model| Arc::clone(model))
            .collect();
        CatalogPage { page, page_size, total: admitted.len(), models }
    }
}

fn sort_key(model: &Model) -> (bool, &str, &str) {
    (model.provider == "demo", &model.provider, &model.id)
}
