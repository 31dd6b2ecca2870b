//! Form of the spending terms and rate limits of an account. Its fields have the names of the JSON
//! API.

use admin::TermsView;
use canon::Money;
use ledger::BudgetPeriod;
use maud::{Markup, html};
use store::{AccountTerms, BudgetTerms, RateLimits};

use super::super::key_form::{BUDGET_HELP, parse_list};
use super::{select, text_area, version_field};
use crate::form::{FieldErrors, FormFields, FormInput};
use crate::shared_fields::{number_input, read_share, share_field};

/// Reads the form of terms and adds errors to the list.
pub(super) fn read_terms(
    fields: &FormFields,
    errors: &mut FieldErrors,
) -> (AccountTerms, RateLimits) {
    let mut limit = |name: &'static str| match fields.get(name).trim() {
        "" => None,
        text => match text.parse() {
            Ok(limit) if limit > 0 => Some(limit),
            Ok(_) | Err(_) => {
                errors.add(name, "A whole number above zero, or nothing.");
                None
            }
        },
    };
    let limits = RateLimits {
        rpm: limit("limits.rpm"),
        tpm: limit("limits.tpm"),
        concurrency: limit("limits.concurrency"),
    };
    let mut amount = |name: &'static str| match fields.get(name).trim() {
        "" => None,
        text => match text.parse::<Money>() {
            Ok(amount) => Some(amount),
            Err(_) => {
                errors.add(name, "write an amount in USD as text, such as \"5.00\"");
                None
            }
        },
    };
    let (cap, most) = (amount("cap_usd"), amount("budget.most_usd"));
    let budget = most.and_then(|limit| match BudgetPeriod::by_word(fields.get("budget.per")) {
        Some(period) => Some(BudgetTerms { limit, period }),
        None => {
            errors.add("budget.per", "write day, week or month");
            None
        }
    });
    let (share, models) = (read_share(fields), parse_list(fields.get("models")));
    (AccountTerms { cap, budget, share, models }, limits)
}

/// Values of the form for the stored terms.
pub(super) fn term_fields(view: &TermsView) -> FormFields {
    let AccountTerms { cap, budget, share, models } = view.terms.clone();
    let RateLimits { rpm, tpm, concurrency } = view.limits;
    let number = |limit: Option<u32>| limit.map_or_else(String::new, |limit| limit.to_string());
    let amount = |amount: Option<Money>| amount.map_or_else(String::new, short_amount);
    FormFields::prefilled(vec![
        ("cap_usd", amount(cap)),
        ("budget.most_usd", amount(budget.map(|budget| budget.limit))),
        ("budget.per", budget.map_or("", |budget| budget.period.word()).to_owned()),
        ("limits.rpm", number(rpm)),
        ("limits.tpm", number(tpm)),
        ("limits.concurrency", number(concurrency)),
        ("share", share.word().to_owned()),
        ("models", models.join("\n")),
    ])
}

/// Formats an amount with at least two digits after the point, or none.
fn short_amount(amount: Money) -> String {
    let text = amount.to_string();
    match text.split_once('.') {
        Some((whole, cents)) if cents.trim_end_matches('0').is_empty() => whole.to_owned(),
        Some((whole, cents)) => format!("{whole}.{:0<2}", cents.trim_end_matches('0')),
        None => text,
    }
}

/// Renders the form.
pub(super) fn terms_form(
    at: &str,
    terms: &TermsView,
    fields: &FormFields,
    errors: &FieldErrors,
) -> Markup {
    let periods = [("day", "every day"), ("week", "every week"), ("month", "every month")];
    let limit = |name, label| number_input((name, label), "numeric", fields, errors);
    html! {
        p.muted { "For all keys of the account together; nothing is no limit." }
        form method="post" action={ (at) "/terms" } {
            (version_field(&terms.version()))
            (FormInput {
                name: "cap_usd",
                label: "In all, in USD",
                value: fields.get("cap_usd"),
                input_mode: Some("decimal"),
                ..FormInput::default()
            }.render(errors))
            div.row {
                (FormInput {
                    name: "budget.most_usd",
                    label: "Budget, in USD",
                    value: fields.get("budget.most_usd"),
                    input_mode: Some("decimal"),
                    help: Some(BUDGET_HELP),
                    ..FormInput::default()
                }.render(errors))
                (select(("budget.per", "for"), fields.get("budget.per"), &periods, errors))
            }
            div.row {
                (limit("limits.rpm", "Requests per minute"))
                (limit("limits.tpm", "Tokens per minute"))
                (limit("limits.concurrency", "Calls at once"))
            }
            (text_area(("models", "Models"), fields.get("models"), "One id per line. Leave empty to \
                allow every model.", errors))
            (share_field(fields))
            button.button.quiet type="submit" { "Save" }
        }
    }
}
