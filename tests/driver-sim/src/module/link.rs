//! The inputs of a linker.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::entry::jit::Answers;
use crate::handle::Id;
use crate::module::ptx::Ptx;

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) context: Id,
    pub(crate) answers: Answers,
    pub(crate) inputs: Vec<Input>,
    /// The result of linking. The program may read it until the linker is destroyed.
    pub(crate) image: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) ptx: Arc<Ptx>,
}

impl Link {
    /// Returns all inputs as one text, with a NUL, or the linker's error messages.
    pub(crate) fn link(&self) -> Result<Vec<u8>, String> {
        let mut complaints = String::new();
        let mut defined = BTreeMap::new();
        for Input { name: input, ptx, .. } in &self.inputs {
            for name in ptx.defines() {
                if let Some(first) = defined.insert(name, input) {
                    complaints += &format!(
                        "error   : Multiple definition of '{name}' in '{input}', first defined in \
                         '{first}'\n"
                    );
                }
            }
        }
        for Input { name: input, ptx, .. } in &self.inputs {
            for name in ptx.needs.iter().filter(|name| !defined.contains_key(name)) {
                complaints += &format!("error   : Undefined reference to '{name}' in '{input}'\n");
            }
        }
        if !complaints.is_empty() {
            return Err(complaints);
        }
        let texts = self.inputs.iter().map(|input| input.text.as_str());
        let mut image = texts.collect::<Vec<_>>().join("\n").into_bytes();
        image.push(0);
        Ok(image)
    }
}
