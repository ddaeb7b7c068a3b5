//! Collects the names that an item defines, imports and mentions.

use std::path::Path;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Item, UseTree, Visibility};

use super::conditions;
use crate::sources::layers::modules::{Crate, Import, Mention, Place};

/// Collects the names in the items of one module.
pub struct Visitor<'a> {
    of: &'a mut Crate,
    module: usize,
    file: String,
    /// Depth of blocks around the current item. Items in blocks are not items of the module.
    blocks: usize,
}

impl<'a> Visitor<'a> {
    pub fn new(of: &'a mut Crate, module: usize, file: &Path) -> Visitor<'a> {
        Visitor { of, module, file: file.to_string_lossy().into_owned(), blocks: 0 }
    }

    /// Collects the names of an item other than a module.
    pub fn item(&mut self, item: &Item) {
        self.visit_item(item);
    }

    fn define(&mut self, name: &Ident) {
        if self.blocks == 0 {
            self.of.modules[self.module].items.insert(name.unraw().to_string());
        }
    }

    fn place(&self, ident: &Ident) -> Place {
        Place { file: self.file.clone(), line: ident.span().start().line }
    }

    fn mention(&mut self, path: &[&Ident]) {
        let Some(first) = path.first() else { return };
        let place = self.place(first);
        let path = path.iter().map(|ident| ident.unraw().to_string()).collect();
        self.of.modules[self.module].mentions.push(Mention { path, place });
    }

    fn import(&mut self, tree: &UseTree, prefix: &[String], exported: bool) {
        let with = |ident: &Ident| [prefix, &[ident.unraw().to_string()]].concat();
        let (name, path, at) = match tree {
            UseTree::Path(path) => return self.import(&path.tree, &with(&path.ident), exported),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, prefix, exported));
                return;
            }
            UseTree::Name(name) if name.ident == "self" && !prefix.is_empty() => {
                (prefix.last().cloned(), prefix.to_vec(), self.place(&name.ident))
            }
            UseTree::Name(name) => {
                let of = name.ident.unraw().to_string();
                (Some(of), with(&name.ident), self.place(&name.ident))
            }
            UseTree::Rename(rename) => {
                let is_self = rename.ident == "self" && !prefix.is_empty();
                let path = if is_self { prefix.to_vec() } else { with(&rename.ident) };
                (Some(rename.rename.unraw().to_string()), path, self.place(&rename.ident))
            }
            UseTree::Glob(glob) => {
                let line = glob.star_token.spans[0].start().line;
                (None, prefix.to_vec(), Place { file: self.file.clone(), line })
            }
        };
        let in_block = self.blocks > 0;
        let import = Import { name, path, exported, in_block, place: at };
        self.of.modules[self.module].imports.push(import);
    }

    /// Collects the paths in unparsed tokens.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(first) if !is_member(&tokens[..at]) => {
                    let mut path = vec![first];
                    while let Some(TokenTree::Ident(next)) = tokens.get(at + 3) {
                        if !is_separator(&tokens[at + 1..at + 3]) {
                            break;
                        }
                        path.push(next);
                        at += 3;
                    }
                    let is_call = matches!(tokens.get(at + 1),
                        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
                    if path.len() > 1 || is_call || is_capitalised(first) {
                        self.mention(&path);
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }
}

/// Returns whether the token after `before` is a field, a method, or a path segment that follows
/// something other than a name.
fn is_member(before: &[TokenTree]) -> bool {
    let is = |token: Option<&TokenTree>, of: char| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == of);
    let (last, second) = (before.last(), before.iter().rev().nth(1));
    // Two dots are a range operator.
    is(last, '.') && !is(second, '.') || is(last, ':') && is(second, ':')
}

fn is_separator(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(one), TokenTree::Punct(two)] = tokens else { return false };
    one.as_char() == ':' && one.spacing() == Spacing::Joint && two.as_char() == ':'
}

fn is_capitalised(ident: &Ident) -> bool {
    ident.to_string().starts_with(char::is_uppercase)
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(of) => &of.attrs,
        Item::Enum(of) => &of.attrs,
        Item::Fn(of) => &of.attrs,
        Item::ForeignMod(of) => &of.attrs,
        Item::Impl(of) => &of.attrs,
        Item::Macro(of) => &of.attrs,
        Item::Mod(of) => &of.attrs,
        Item::Static(of) => &of.attrs,
        Item::Struct(of) => &of.attrs,
        Item::Trait(of) => &of.attrs,
        Item::Type(of) => &of.attrs,
        Item::Union(of) => &of.attrs,
        Item::Use(of) => &of.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if conditions::leaves_out(attributes(item)) {
            return;
        }
        match item {
            Item::Const(of) => self.define(&of.ident),
            Item::Enum(of) => self.define(&of.ident),
            Item::Fn(of) => self.define(&of.sig.ident),
            Item::Static(of) => self.define(&of.ident),
            Item::Struct(of) => self.define(&of.ident),
            Item::Trait(of) => self.define(&of.ident),
            Item::Type(of) => self.define(&of.ident),
            Item::Union(of) => self.define(&of.ident),
            Item::ForeignMod(of) => {
                for item in &of.items {
                    match item {
                        syn::ForeignItem::Fn(of) => self.define(&of.sig.ident),
                        syn::ForeignItem::Static(of) => self.define(&of.ident),
                        _ => {}
                    }
                }
            }
            Item::Macro(of) => {
                if let Some(name) = &of.ident {
                    self.define(name);
                    if of.attrs.iter().any(|of| of.path().is_ident("macro_export")) {
                        self.of.exported_macros.insert(name.to_string(), self.module);
                    }
                }
            }
            Item::Use(of) => {
                if of.leading_colon.is_none() {
                    let exported = !matches!(of.vis, Visibility::Inherited);
                    self.import(&of.tree, &[], exported);
                }
                return;
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Const(of) => &of.attrs[..],
            syn::ImplItem::Fn(of) => &of.attrs,
            syn::ImplItem::Type(of) => &of.attrs,
            syn::ImplItem::Macro(of) => &of.attrs,
            _ => &[],
        };
        if !conditions::leaves_out(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !conditions::leaves_out(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !conditions::leaves_out(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_expr_block(&mut self, block: &'ast syn::ExprBlock) {
        if !conditions::leaves_out(&block.attrs) {
            visit::visit_expr_block(self, block);
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.blocks += 1;
        visit::visit_block(self, block);
        self.blocks -= 1;
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(of) = &*call.func
            && of.qself.is_none()
            && let Some(name) = of.path.get_ident()
        {
            self.mention(&[name]);
        }
        visit::visit_expr_call(self, call);
    }

    /// A single lower-case name may be a variable, so it counts as a mention only if it is called.
    fn visit_expr_path(&mut self, of: &'ast syn::ExprPath) {
        if of.path.get_ident().is_none_or(is_capitalised) {
            visit::visit_expr_path(self, of);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let idents: Vec<_> = path.segments.iter().map(|segment| &segment.ident).collect();
            self.mention(&idents);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, of: &'ast syn::Macro) {
        self.visit_path(&of.path);
        self.tokens(of.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}
