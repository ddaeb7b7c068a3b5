//! An application-defined kind of resource: gauges, which can be looked up by name in the program
//! and are listed by `kumi resources`. Usage: `own_kind boiler=80 boiler=+15 cellar=12 boiler`.

use std::any::Any;

use kumihimo::resource::{Command, Entries, Error, Kind, Name, Row, Serial, Usage, table};

// ANCHOR: row
const GAUGE: Kind = Kind::FIRST_OWN;
static GAUGES: Entries<i64> = Entries::new(GAUGE);
struct Gauges;

impl Row for Gauges {
    fn kind(&self) -> Kind {
        GAUGE
    }
    fn open(&self, order: &mut dyn Any) -> Result<Serial, Error> {
        GAUGES.open(order.downcast_ref().copied().unwrap_or_default())
    }
    fn close(&self, serial: Serial) -> Result<(), Error> {
        GAUGES.close(serial).map(drop)
    }
    fn read(&self, serial: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
        let text = GAUGES.with(serial, |value| value.to_string())?;
        into.extend_from_slice(text.as_bytes());
        Ok(text.len())
    }
    fn write(&self, serial: Serial, from: &[u8]) -> Result<usize, Error> {
        let value = std::str::from_utf8(from).ok().and_then(|text| text.parse().ok());
        let value = value.ok_or_else(|| {
            Error::Invalid(format!("{:?} is not a number", String::from_utf8_lossy(from)))
        })?;
        GAUGES
            .with(serial, |gauge| *gauge = if from[0] == b'+' { *gauge + value } else { value })?;
        Ok(from.len())
    }
    fn control(&self, serial: Serial, command: &Command<'_>) -> Result<(), Error> {
        let Command::Own("reset") = command else {
            return Err(Error::Invalid("a gauge can be reset".into()));
        };
        GAUGES.with(serial, |gauge| *gauge = 0)
    }
    fn usage(&self, each: &mut dyn FnMut(Usage)) {
        GAUGES.usage(each, |value| format!("shows {value}"));
    }
}
// ANCHOR_END: row

fn main() -> Result<(), Error> {
    table().define(&Gauges)?;
    for argument in std::env::args().skip(1) {
        let (name, value) = argument
            .split_once('=')
            .map_or((&*argument, None), |(name, value)| (name, Some(value)));
        let name = Name::new(GAUGE, name)?;
        let make =
            || table().open(GAUGE, &mut 0i64).and_then(|id| table().name(&name, id).map(|()| id));
        let id = table().names().find(&name).or_else(|_| make())?;
        match value {
            Some("reset") => table().control(id, &Command::Own("reset"))?,
            Some(value) => drop(table().write(id, value.as_bytes())?),
            None => drop(table().read(id, &mut Vec::new())?),
        }
    }
    let name = |id| table().names().of_id(id).first().map(Name::to_string).unwrap_or_default();
    table().usage(Some(GAUGE), &mut |id, usage| println!("{id} {} {}", name(id), usage.state));
    Ok(())
}
