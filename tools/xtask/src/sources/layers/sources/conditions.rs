//! Conditional compilation: detects code that belongs to tests and models only.

use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token};

/// Returns whether the attributes exclude an item if neither `test` nor `loom` is set.
pub fn leaves_out(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args().ok().and_then(|condition| value(&condition)) == Some(false)
    })
}

/// Value of a condition, if `test` and `loom` determine it.
fn value(condition: &Meta) -> Option<bool> {
    match condition {
        Meta::Path(name) if name.is_ident("test") || name.is_ident("loom") => Some(false),
        Meta::Path(_) | Meta::NameValue(_) => None,
        Meta::List(list) => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            let values: Vec<_> = parts.ok()?.iter().map(value).collect();
            // The first true operand decides `any`, the first false one decides `all`.
            let decided = |end: bool| match &values {
                parts if parts.contains(&Some(end)) => Some(end),
                parts if parts.contains(&None) => None,
                _ => Some(!end),
            };
            if list.path.is_ident("not") {
                values.first().copied().flatten().map(|value| !value)
            } else if list.path.is_ident("any") {
                decided(true)
            } else if list.path.is_ident("all") {
                decided(false)
            } else {
                None
            }
        }
    }
}
