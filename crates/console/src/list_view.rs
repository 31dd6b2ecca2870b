//! Lists with a search, an order and pages. All of these are in the address.

use maud::{Markup, html};

use crate::form::FormFields;
use crate::page_error::PageError;
use crate::urls;

/// Rows of a page.
pub(crate) const ROWS: u32 = 25;
const MAX_TEXT_BYTES: usize = 256;
pub(crate) const TEXT: &str = "q";
pub(crate) const ORDER: &str = "sort";
const PAGE: &str = "page";

/// A list at a path, as an address selects it.
#[derive(Clone, Copy)]
pub(crate) struct ListView<'a> {
    pub(crate) path: &'static str,
    pub(crate) query: &'a FormFields,
    /// Parameters of the selection, in the order of an address.
    pub(crate) parameters: &'static [&'static str],
}

impl ListView<'_> {
    /// The text that is searched for.
    pub(crate) fn text(&self) -> Result<Option<String>, PageError> {
        let text = self.query.get_trimmed(TEXT, MAX_TEXT_BYTES)?;
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// Number of rows before the page of the address, and the number of its rows.
    pub(crate) fn rows(&self) -> (u64, u32) {
        let page = self.query.get(PAGE).parse::<u64>().unwrap_or(1).max(1);
        (page.saturating_sub(1).saturating_mul(u64::from(ROWS)), ROWS)
    }

    /// Returns the rows of the page of the address.
    pub(crate) fn page_of<'r, T>(&self, rows: &'r [T]) -> &'r [T] {
        let (before, count) = self.rows();
        let rest = usize::try_from(before).ok().and_then(|before| rows.get(before..));
        let rest = rest.unwrap_or_default();
        rest.get(..count as usize).unwrap_or(rest)
    }

    /// Address of the last page, if that of the address is beyond it.
    pub(crate) fn last_page(&self, total: u64) -> Option<String> {
        let (before, rows) = self.rows();
        let last = total.div_ceil(u64::from(rows)).max(1);
        (before / u64::from(rows) >= last).then(|| self.address(PAGE, &last.to_string()))
    }

    /// Address of the list with one parameter changed. Another selection begins at the first page.
    pub(crate) fn address(&self, name: &str, value: &str) -> String {
        let kept = self.parameters.iter().filter(|own| **own != name);
        let kept = kept.map(|own| (*own, self.query.get(own).trim()));
        let parts = kept.chain([(name, value)]).filter(|(_, value)| !value.is_empty());
        let parts: Vec<String> =
            parts.map(|(name, value)| format!("{name}={}", urls::escape_value(value))).collect();
        if parts.is_empty() {
            self.path.to_owned()
        } else {
            format!("{}?{}", self.path, parts.join("&"))
        }
    }

    /// Fields for the parameters that a form does not show.
    pub(crate) fn hidden_fields(&self, shown: &[&str]) -> Markup {
        let hidden = self.parameters.iter().filter(|name| !shown.contains(*name));
        let hidden = hidden.map(|name| (*name, self.query.get(name).trim()));
        html! {
            @for (name, value) in hidden.filter(|(_, value)| !value.is_empty()) {
                input type="hidden" name=(name) value=(value);
            }
        }
    }

    /// The form of the search. A small screen has no headings, so that it has the order too.
    pub(crate) fn search_form(&self, hint: &str, orders: &[(&str, &str)], chosen: &str) -> Markup {
        let text = self.query.get(TEXT);
        html! {
            form.filters method="get" action=(self.path) role="search" {
                (self.hidden_fields(&[TEXT, ORDER]))
                div.field.grow {
                    label for="q" { "Search" }
                    input #q name=(TEXT) type="search" value=(text) placeholder=(hint) autocomplete="off";
                }
                div.field.narrow {
                    label for="sort" { "Sort by" }
                    select #sort name=(ORDER) {
                        @for (word, label) in orders {
                            option value=(word) selected[*word == chosen] { (label) }
                        }
                    }
                }
                div.field.go { button.button type="submit" { "Search" } }
                @if !text.trim().is_empty() {
                    div.field.go { a.button.quiet href=(self.address(TEXT, "")) { "Clear" } }
                }
            }
        }
    }

    /// A heading that sorts the list. Names ascend, and everything else descends.
    pub(crate) fn heading(&self, word: &str, label: &str, is_chosen: bool) -> Markup {
        let (direction, arrow) =
            if word == "name" { ("ascending", "↑") } else { ("descending", "↓") };
        html! {
            th scope="col" aria-sort=[is_chosen.then_some(direction)] {
                a.sort href=(self.address(ORDER, word)) {
                    (label) @if is_chosen { span aria-hidden="true" { " " (arrow) } }
                }
            }
        }
    }

    /// Links to parts of the list, with the number of rows of each.
    pub(crate) fn parts(
        &self,
        label: &str,
        name: &str,
        parts: impl IntoIterator<Item = (&'static str, &'static str, u64)>,
    ) -> Markup {
        let chosen = self.query.get(name);
        html! {
            nav.parts aria-label=(label) {
                @for (word, text, count) in parts {
                    a href=(self.address(name, word)) aria-current=[(word == chosen).then_some("true")] {
                        (text) " " span.count { (count) }
                    }
                }
            }
        }
    }

    /// Links to the page before and after.
    pub(crate) fn pager(&self, label: &str, total: u64) -> Markup {
        let (before, rows) = self.rows();
        let page = before / u64::from(rows) + 1;
        let last = total.div_ceil(u64::from(rows)).max(1);
        let to = |page: u64| self.address(PAGE, &page.to_string());
        html! {
            @if last > 1 {
                nav.pager aria-label=(label) {
                    @if page > 1 { a rel="prev" href=(to(page - 1)) { "← Previous" } }
                    span.muted { "Page " (page) " of " (last) }
                    @if page < last { a rel="next" href=(to(page + 1)) { "Next →" } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(query: &[(&str, &str)], name: &str, value: &str) -> String {
        let query = query.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let query = FormFields::prefilled(query);
        let view = ListView { path: "/console/keys", query: &query, parameters: &[TEXT, ORDER] };
        view.address(name, value)
    }

    #[test]
    fn an_address_keeps_the_selection_and_changes_one_part() {
        let query = [(TEXT, "a&b"), (ORDER, "name"), (PAGE, "3"), ("other", "x")];
        assert_eq!(address(&query, ORDER, "spent"), "/console/keys?q=a%26b&sort=spent");
        assert_eq!(address(&query, PAGE, "4"), "/console/keys?q=a%26b&sort=name&page=4");
        assert_eq!(address(&query, TEXT, ""), "/console/keys?sort=name");
        assert_eq!(address(&[], TEXT, ""), "/console/keys");
    }

    #[test]
    fn no_page_number_is_too_large() {
        let query = FormFields::prefilled(vec![(PAGE, u64::MAX.to_string())]);
        let view = ListView { path: "/console/keys", query: &query, parameters: &[] };
        assert_eq!(view.rows(), (u64::MAX, ROWS));
        assert_eq!(view.last_page(30).as_deref(), Some("/console/keys?page=2"));
    }
}
