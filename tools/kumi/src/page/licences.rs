//! The licences that a page states.

use super::Markup;

const MIT: &str = include_str!("../../../../LICENSE-MIT");
const APACHE: &str = include_str!("../../../../LICENSE-APACHE");

/// Returns the section of a page that lists the licences of what is in it. Scripts and styles are
/// the project's own.
pub fn licences() -> String {
    format!(
        "<section id=\"licences\" aria-labelledby=\"licences-title\">\n\
         <h2 id=\"licences-title\">Licences</h2>\n\
         <p>Scripts and styles of this page are part of Kumihimo, under the MIT licence or the \
         Apache licence 2.0. The page contains no code of others.</p>\n\
         <details><summary>MIT licence</summary><pre tabindex=\"0\" role=\"region\" \
         aria-label=\"MIT licence\">{}</pre></details>\n\
         <details><summary>Apache licence 2.0</summary><pre tabindex=\"0\" role=\"region\" \
         aria-label=\"Apache licence 2.0\">{}</pre></details>\n\
         </section>",
        Markup(MIT),
        Markup(APACHE)
    )
}
