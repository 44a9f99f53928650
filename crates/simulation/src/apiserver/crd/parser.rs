//! The grammar of CEL, as far as our rules use it.

use regex::Regex;

/// An expression.
#[derive(Clone, Debug)]
pub enum Expr {
    Bool(bool),
    Int(i64),
    Text(String),
    Variable(String),
    Field(Box<Expr>, String),
    Has(Box<Expr>, String),
    Call(Option<Box<Expr>>, String, Vec<Expr>),
    Matches(Box<Expr>, Regex),
    Not(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Compare(Box<Expr>, Comparison, Box<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// Reads an expression; `None` if it says something that is not understood here.
pub fn parse(text: &str) -> Option<Expr> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0 };
    let expression = parser.or()?;
    (parser.at == parser.tokens.len()).then_some(expression)
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Int(i64),
    Text(String),
    Sign(&'static str),
}

const SIGNS: [&str; 14] = ["||", "&&", "==", "!=", "<=", ">=", "<", ">", "!", "(", ")", ".", ",", "-"];

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = vec![];
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = |fits: fn(char) -> bool| rest.find(|c| !fits(c)).unwrap_or(rest.len());
        let (token, taken) = if first.is_ascii_digit() {
            let end = length(|c| c.is_ascii_digit());
            (Token::Int(rest[..end].parse().ok()?), end)
        } else if first.is_ascii_alphabetic() {
            let end = length(|c| c.is_ascii_alphanumeric() || c == '_');
            (Token::Word(rest[..end].to_owned()), end)
        } else if first == '\'' {
            let end = rest[1..].find('\'')?;
            (Token::Text(rest[1..=end].to_owned()), end + 2)
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign))?;
            (Token::Sign(sign), sign.len())
        };
        tokens.push(token);
        rest = rest[taken..].trim_start();
    }
    Some(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn take(&mut self, sign: &'static str) -> bool {
        let found = self.tokens.get(self.at) == Some(&Token::Sign(sign));
        self.at += usize::from(found);
        found
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn or(&mut self) -> Option<Expr> {
        let mut left = self.and()?;
        while self.take("||") {
            left = Expr::Or(Box::new(left), Box::new(self.and()?));
        }
        Some(left)
    }

    fn and(&mut self) -> Option<Expr> {
        let mut left = self.comparison()?;
        while self.take("&&") {
            left = Expr::And(Box::new(left), Box::new(self.comparison()?));
        }
        Some(left)
    }

    fn comparison(&mut self) -> Option<Expr> {
        use Comparison::{AtLeast, AtMost, Equal, Greater, Less, NotEqual};
        let left = self.unary()?;
        let signs =
            [("==", Equal), ("!=", NotEqual), ("<=", AtMost), (">=", AtLeast), ("<", Less), (">", Greater)];
        for (sign, comparison) in signs {
            if self.take(sign) {
                return Some(Expr::Compare(Box::new(left), comparison, Box::new(self.unary()?)));
            }
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<Expr> {
        if self.take("!") {
            return Some(Expr::Not(Box::new(self.unary()?)));
        }
        let mut value = self.primary()?;
        while self.take(".") {
            let Token::Word(name) = self.next()? else { return None };
            value = if self.take("(") {
                method(value, name, self.arguments()?)?
            } else {
                Expr::Field(Box::new(value), name)
            };
        }
        Some(value)
    }

    fn primary(&mut self) -> Option<Expr> {
        match self.next()? {
            Token::Int(number) => Some(Expr::Int(number)),
            Token::Text(text) => Some(Expr::Text(text)),
            Token::Word(word) if word == "true" || word == "false" => Some(Expr::Bool(word == "true")),
            Token::Word(word) if word == "has" => {
                if !self.take("(") {
                    return None;
                }
                match self.arguments()?.pop()? {
                    Expr::Field(of, name) => Some(Expr::Has(of, name)),
                    _ => None,
                }
            }
            Token::Word(word) if self.take("(") => Some(Expr::Call(None, word, self.arguments()?)),
            Token::Word(word) => Some(Expr::Variable(word)),
            Token::Sign("(") => {
                let inner = self.or()?;
                self.take(")").then_some(inner)
            }
            Token::Sign(_) => None,
        }
    }

    /// The rest of a call, after its opening parenthesis.
    fn arguments(&mut self) -> Option<Vec<Expr>> {
        let mut arguments = vec![];
        if self.take(")") {
            return Some(arguments);
        }
        loop {
            arguments.push(self.or()?);
            if self.take(")") {
                return Some(arguments);
            }
            if !self.take(",") {
                return None;
            }
        }
    }
}

/// A call on a value. A regular expression is read here, once.
fn method(value: Expr, name: String, arguments: Vec<Expr>) -> Option<Expr> {
    match arguments.as_slice() {
        [Expr::Text(pattern)] if name == "matches" => {
            Some(Expr::Matches(Box::new(value), Regex::new(pattern).ok()?))
        }
        _ => Some(Expr::Call(Some(Box::new(value)), name, arguments)),
    }
}
