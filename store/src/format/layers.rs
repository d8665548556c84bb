//! Bytes of a volume's layers (see `docs/format`). Operations and errors are stored by their names, which never change.

use super::bytes::{Reader, Writer, corrupt};
use base::limits::LAYERS_MAX;
use base::{Error, Kind, Layer, Operations, Result};

const READ_ONLY: u8 = 1;
const DELAY: u8 = 2;
const FAULT: u8 = 3;

/// Appends layers: at least one, for what has none is written as before there were any.
pub fn put_layers(out: &mut Vec<u8>, layers: &[Layer]) {
    assert!((1..=LAYERS_MAX).contains(&layers.len()), "a volume with layers has 1 to {LAYERS_MAX}");
    let mut writer = Writer(out);
    writer.u8(layers.len() as u8);
    for layer in layers {
        match layer {
            Layer::ReadOnly => {
                writer.u8(READ_ONLY);
            }
            Layer::Delay { operations, ns } => {
                writer.u8(DELAY).counted(bytes(operations)).u64(*ns);
            }
            Layer::Fault { operations, kind, every } => {
                writer.u8(FAULT).counted(bytes(operations)).counted(kind.name().as_bytes()).u64(*every);
            }
        }
    }
}

/// The name of operations; nothing stands for all.
fn bytes(operations: &Operations) -> &'static [u8] {
    operations.name().unwrap_or_default().as_bytes()
}

/// Reads layers. Errors: `Corrupt`; `Newer` for a layer, an operation or an error that this build does not know, since a layer
/// must not be left out in silence.
pub fn take_layers(reader: &mut Reader<'_>) -> Result<Box<[Layer]>> {
    let count = reader.u8()?;
    if !(1..=LAYERS_MAX).contains(&usize::from(count)) {
        return Err(corrupt("a volume has more layers than any, or says that it has none"));
    }
    (0..count).map(|_| take_layer(reader)).collect()
}

fn take_layer(reader: &mut Reader<'_>) -> Result<Layer> {
    let layer = match reader.u8()? {
        READ_ONLY => Layer::ReadOnly,
        DELAY => Layer::Delay { operations: take_operations(reader)?, ns: reader.u64()? },
        FAULT => {
            let (operations, name) = (take_operations(reader)?, reader.counted()?);
            let kind = std::str::from_utf8(name).ok().and_then(Kind::of_name);
            let kind = kind.ok_or_else(|| newer("a fault layer answers with an error of a newer version"))?;
            Layer::Fault { operations, kind, every: reader.u64()? }
        }
        0 => return Err(corrupt("a volume has a layer without a code")),
        _ => return Err(newer("a volume has a layer of a newer version")),
    };
    layer.checked().map_err(|error| corrupt("a layer's parameters are out of bounds").with(error))
}

fn take_operations(reader: &mut Reader<'_>) -> Result<Operations> {
    let name = reader.counted()?;
    let name = std::str::from_utf8(name).map_err(|_| newer("a layer acts on an operation of a newer version"))?;
    let named = Operations::of(Some(name).filter(|name| !name.is_empty()));
    named.map_err(|_| newer("a layer acts on an operation of a newer version").with(name))
}

fn newer(what: &'static str) -> Error {
    Error::new(Kind::Newer, what)
}
