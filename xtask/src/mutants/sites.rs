//! Finds what can be changed in a source file: places of its syntax, each with one change. What only tests compile, what
//! must be constant, assertions, seeded bugs and texts for people are left as they are.

use proc_macro2::{Span, extra::DelimSpan};
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, Lit, Stmt, UnOp};

/// The rewriting of a place, so that a switch chooses between the old code and the change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// An expression becomes another.
    Expression(String),
    /// A statement is left out.
    LeftOut,
    /// A function's body, which begins here, returns this at once.
    Returns(String),
}

/// A place, and one change of it.
#[derive(Clone, Debug)]
pub struct Site {
    /// The bytes of the file that are rewritten.
    pub place: Range<usize>,
    /// The change of them.
    pub change: Change,
    /// The change, for people.
    pub told: String,
}

/// Characters of the source that are shown to identify a place.
const SHOWN_CHARS: usize = 70;

/// The source of a place, as far as it is shown.
fn shown(source: &str) -> String {
    let words: Vec<&str> = source.split_whitespace().collect();
    words.join(" ").chars().take(SHOWN_CHARS).collect()
}

/// The places of a file that can be changed.
pub fn sites(text: &str) -> Result<Vec<Site>, String> {
    let file = syn::parse_file(text).map_err(|error| error.to_string())?;
    let mut finder = Finder { text, sites: Vec::new() };
    finder.visit_file(&file);
    Ok(finder.sites)
}

struct Finder<'a> {
    text: &'a str,
    sites: Vec<Site>,
}

/// The operator in a change's place; none if there is no such change.
fn other(operator: &BinOp) -> Option<(&'static str, &'static str)> {
    Some(match operator {
        BinOp::Eq(_) => ("==", "!="),
        BinOp::Ne(_) => ("!=", "=="),
        BinOp::Lt(_) => ("<", "<="),
        BinOp::Le(_) => ("<=", "<"),
        BinOp::Gt(_) => (">", ">="),
        BinOp::Ge(_) => (">=", ">"),
        BinOp::Add(_) => ("+", "-"),
        BinOp::Sub(_) => ("-", "+"),
        BinOp::Mul(_) => ("*", "+"),
        BinOp::Div(_) => ("/", "*"),
        BinOp::Rem(_) => ("%", "/"),
        BinOp::And(_) => ("&&", "||"),
        BinOp::Or(_) => ("||", "&&"),
        BinOp::BitAnd(_) => ("&", "|"),
        BinOp::BitOr(_) => ("|", "&"),
        BinOp::Shl(_) => ("<<", ">>"),
        BinOp::Shr(_) => (">>", "<<"),
        BinOp::AddAssign(_) => ("+=", "-="),
        BinOp::SubAssign(_) => ("-=", "+="),
        BinOp::MulAssign(_) => ("*=", "+="),
        BinOp::DivAssign(_) => ("/=", "*="),
        BinOp::BitAndAssign(_) => ("&=", "|="),
        BinOp::BitOrAssign(_) => ("|=", "&="),
        _ => return None,
    })
}

/// Values that a function of this type may return instead.
fn defaults(output: &syn::ReturnType) -> Vec<&'static str> {
    let syn::ReturnType::Type(_, returned) = output else { return vec![""] };
    let syn::Type::Path(path) = &**returned else { return Vec::new() };
    let Some(last) = path.path.segments.last() else { return Vec::new() };
    let of_unit = match &last.arguments {
        syn::PathArguments::AngleBracketed(all) => match all.args.first() {
            Some(syn::GenericArgument::Type(syn::Type::Tuple(tuple))) => tuple.elems.is_empty(),
            _ => false,
        },
        _ => false,
    };
    match last.ident.to_string().as_str() {
        "bool" => vec!["true", "false"],
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" => vec!["0", "1"],
        "Option" => vec!["None"],
        "Vec" => vec!["Vec::new()"],
        "Result" if of_unit => vec!["Ok(())"],
        _ => Vec::new(),
    }
}

/// True for a condition with a `let`, which is no expression of its own.
fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(both) => matches!(both.op, BinOp::And(_)) && (has_let(&both.left) || has_let(&both.right)),
        _ => false,
    }
}

/// True for a call whose value nobody takes.
fn is_call(expression: &Expr) -> bool {
    match expression {
        Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_) => true,
        Expr::Await(inner) => is_call(&inner.base),
        Expr::Try(inner) => is_call(&inner.expr),
        _ => false,
    }
}

impl Finder<'_> {
    fn source(&self, span: Span) -> &str {
        &self.text[span.byte_range()]
    }
    /// Notes a change, unless it would change a seeded bug.
    fn add(&mut self, span: Span, change: Change, told: String) {
        let place = span.byte_range();
        if !self.text[place.clone()].contains("Bug::") {
            self.sites.push(Site { place, change, told });
        }
    }
    fn expression(&mut self, span: Span, new: &str, told: &str) {
        let told = format!("{told} in `{}`", shown(self.source(span)));
        self.add(span, Change::Expression(new.to_string()), told);
    }
    /// A literal, which alone does not tell its place: its line does.
    fn literal(&mut self, span: Span, new: &str, old: &str) {
        let at = span.byte_range().start;
        let start = self.text[..at].rfind('\n').map_or(0, |end| end + 1);
        let line = shown(self.text[start..].lines().next().unwrap_or_default());
        self.add(span, Change::Expression(new.to_string()), format!("{old} becomes {new} in `{line}`"));
    }
    /// A condition that holds whatever is the case, or never.
    fn condition(&mut self, condition: &Expr, values: &[&str]) {
        if has_let(condition) || matches!(condition, Expr::Lit(_)) {
            return;
        }
        for value in values {
            self.expression(condition.span(), value, &format!("always {value}"));
        }
    }
    fn body(&mut self, signature: &syn::Signature, block: &Block) {
        if signature.constness.is_some() {
            return;
        }
        if !block.stmts.is_empty() {
            let start = open(&block.brace_token.span);
            for value in defaults(&signature.output) {
                let is_same = matches!(&block.stmts[..], [only] if self.source(only.span()) == value);
                if !is_same {
                    let told = format!("{} returns {value} at once", signature.ident);
                    let told = told.replace("  ", " ");
                    self.sites.push(Site { place: start..start, change: Change::Returns(value.to_string()), told });
                }
            }
        }
        self.visit_block(block);
    }
    /// True for what is not part of every product: tests, and what only seeded bugs need.
    fn is_apart(&self, attributes: &[syn::Attribute]) -> bool {
        let is_cfg = |attribute: &&syn::Attribute| attribute.path().is_ident("cfg");
        attributes.iter().filter(is_cfg).any(|attribute| {
            let text = self.source(attribute.span());
            ["test", "seeded-bugs", "ablations"].iter().any(|name| text.contains(name))
        })
    }
    /// True for a condition that holds only while a seeded bug is on.
    fn needs_bug(&self, condition: &Expr) -> bool {
        let text = self.source(condition.span());
        text.starts_with("active(Bug::") && !text.contains("||")
    }
}

/// Position at which a block's inside begins.
fn open(span: &DelimSpan) -> usize {
    span.open().byte_range().end
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_item(&mut self, item: &'a syn::Item) {
        let attributes = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Trait(item) => &item.attrs,
            // Everything else is made of types and constants.
            _ => return,
        };
        if !self.is_apart(attributes) {
            visit::visit_item(self, item);
        }
    }
    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        let name = item.trait_.as_ref().and_then(|(path, _)| path.segments.last());
        if !name.is_some_and(|name| name.ident == "Display" || name.ident == "Debug") {
            item.items.iter().for_each(|item| self.visit_impl_item(item));
        }
    }
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.body(&item.sig, &item.block);
    }
    fn visit_impl_item(&mut self, item: &'a syn::ImplItem) {
        if let syn::ImplItem::Fn(item) = item
            && !self.is_apart(&item.attrs)
        {
            self.body(&item.sig, &item.block);
        }
    }
    fn visit_trait_item(&mut self, item: &'a syn::TraitItem) {
        if let syn::TraitItem::Fn(item) = item
            && let Some(block) = &item.default
        {
            self.body(&item.sig, block);
        }
    }
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        if let Stmt::Expr(expression, Some(_)) = statement
            && is_call(expression)
        {
            let told = format!("left out `{}`", shown(self.source(statement.span())));
            self.add(statement.span(), Change::LeftOut, told);
        }
        visit::visit_stmt(self, statement);
    }
    fn visit_arm(&mut self, arm: &'a syn::Arm) {
        if let syn::Pat::Guard(guarded) = &arm.pat {
            if self.needs_bug(&guarded.guard) {
                return;
            }
            self.condition(&guarded.guard, &["true"]);
            self.visit_expr(&guarded.guard);
        }
        self.visit_expr(&arm.body);
    }
    fn visit_expr_if(&mut self, choice: &'a syn::ExprIf) {
        if !self.needs_bug(&choice.cond) {
            self.condition(&choice.cond, &["true", "false"]);
            self.visit_expr(&choice.cond);
            self.visit_block(&choice.then_branch);
        }
        if let Some((_, otherwise)) = &choice.else_branch {
            self.visit_expr(otherwise);
        }
    }
    fn visit_expr_while(&mut self, repeated: &'a syn::ExprWhile) {
        // One that always holds only hangs.
        self.condition(&repeated.cond, &["false"]);
        self.visit_expr(&repeated.cond);
        self.visit_block(&repeated.body);
    }
    fn visit_expr_binary(&mut self, both: &'a syn::ExprBinary) {
        let is_chain = matches!(both.op, BinOp::And(_)) && (has_let(&both.left) || has_let(&both.right));
        if let Some((old, new)) = other(&both.op).filter(|_| !is_chain) {
            let changed = format!("({}) {new} ({})", self.source(both.left.span()), self.source(both.right.span()));
            self.expression(both.span(), &changed, &format!("{old} becomes {new}"));
        }
        visit::visit_expr_binary(self, both);
    }
    fn visit_expr_unary(&mut self, one: &'a syn::ExprUnary) {
        if matches!(one.op, UnOp::Not(_)) {
            let changed = self.source(one.expr.span()).to_string();
            self.expression(one.span(), &changed, "! is left out");
        }
        visit::visit_expr_unary(self, one);
    }
    fn visit_expr_lit(&mut self, literal: &'a syn::ExprLit) {
        match &literal.lit {
            Lit::Bool(found) => {
                let (old, new) = (found.value, (!found.value).to_string());
                self.literal(found.span, &new, &old.to_string());
            }
            Lit::Int(found) => {
                let Ok(value) = found.base10_parse::<u64>() else { return };
                let new = format!("{}{}", value.wrapping_add(1), found.suffix());
                self.literal(found.span(), &new, &value.to_string());
            }
            _ => {}
        }
    }
    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        let other = if call.method == "max" { "min" } else { "max" };
        if (call.method == "max" || call.method == "min") && call.args.len() == 1 {
            let (receiver, argument) = (self.source(call.receiver.span()), self.source(call.args[0].span()));
            let changed = format!("{receiver}.{other}({argument})");
            self.expression(call.span(), &changed, &format!("{} becomes {other}", call.method));
        }
        visit::visit_expr_method_call(self, call);
    }
    fn visit_expr_repeat(&mut self, array: &'a syn::ExprRepeat) {
        self.visit_expr(&array.expr);
    }
    // What must be constant, and what is no expression.
    fn visit_expr_const(&mut self, _: &'a syn::ExprConst) {}
    fn visit_pat(&mut self, _: &'a syn::Pat) {}
    fn visit_type(&mut self, _: &'a syn::Type) {}
    fn visit_generic_argument(&mut self, _: &'a syn::GenericArgument) {}
    fn visit_attribute(&mut self, _: &'a syn::Attribute) {}
}
