//! The encoding of values: postcard for types, none for bytes.
//!
//! postcard's bytes do not contain their type. A value of another type is `Malformed` where the
//! difference shows, and otherwise a wrong value: both sides have to agree, and a type that changes
//! needs another gate name.

use std::marker::PhantomData;

use serde::{Serialize, de::DeserializeOwned};

use crate::error::{Error, ErrorKind};

/// The encoding of values of one type.
pub trait Codec {
    /// The type.
    type Value;

    /// Appends the bytes of a value.
    ///
    /// # Errors
    /// `Invalid`: the value refuses to be encoded. `to` is then unchanged.
    fn encode(value: &Self::Value, to: &mut Vec<u8>) -> Result<(), Error>;

    /// The value of just these bytes.
    ///
    /// # Errors
    /// `Malformed`: they are none, or more than one.
    fn decode(bytes: &[u8]) -> Result<Self::Value, Error>;
}

/// Any serde type, as postcard 1 encodes it (its wire format is stable). A decoder allocates in
/// proportion to the bytes, and recurses as deeply as they say: a type that contains itself takes
/// stack for each byte, one whose elements take no bytes (`Vec<()>`) time without bound. Neither is
/// for peers that are not trusted.
#[derive(Debug)]
pub struct Typed<T>(PhantomData<fn() -> T>);

impl<T: Serialize + DeserializeOwned> Codec for Typed<T> {
    type Value = T;

    #[inline]
    fn encode(value: &T, to: &mut Vec<u8>) -> Result<(), Error> {
        let before = to.len();
        postcard::serialize_with_flavor(value, Append(to)).map_err(|e| {
            to.truncate(before);
            unencodable::<T>(&e)
        })
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<T, Error> {
        match postcard::take_from_bytes(bytes) {
            Ok((value, [])) => Ok(value),
            Ok((_, rest)) => {
                Err(undecodable::<T>(bytes, &format!("{} bytes are left over", rest.len())))
            }
            Err(e) => Err(undecodable::<T>(bytes, &e.to_string())),
        }
    }
}

/// Bytes as they are.
#[derive(Debug)]
pub struct Raw;

impl Codec for Raw {
    type Value = Vec<u8>;

    #[inline]
    fn encode(value: &Vec<u8>, to: &mut Vec<u8>) -> Result<(), Error> {
        to.extend_from_slice(value);
        Ok(())
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(bytes.to_vec())
    }
}

/// Encodes into the beginning of a buffer; returns how many bytes it took.
///
/// # Errors
/// `TooLarge`: the buffer is too small. `Invalid`: the value refuses to be encoded.
pub fn encode_into<T: Serialize>(value: &T, to: &mut [u8]) -> Result<usize, Error> {
    let room = to.len();
    match postcard::to_slice(value, to) {
        Ok(bytes) => Ok(bytes.len()),
        Err(postcard::Error::SerializeBufferFull) => {
            let text = format!(
                "a value of type {} takes more than {room} bytes",
                std::any::type_name::<T>()
            );
            Err(Error::new(ErrorKind::TooLarge, text))
        }
        Err(e) => Err(unencodable::<T>(&e)),
    }
}

/// The buffer to which postcard appends.
struct Append<'a>(&'a mut Vec<u8>);

impl postcard::ser_flavors::Flavor for Append<'_> {
    type Output = ();

    #[inline]
    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

#[cold]
fn unencodable<T>(e: &postcard::Error) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!("a value of type {} cannot be encoded: {e}", std::any::type_name::<T>()),
    )
}

#[cold]
fn undecodable<T>(bytes: &[u8], why: &str) -> Error {
    let text = format!(
        "{} bytes that came are no {}: {why}; does the other side use the same type?",
        bytes.len(),
        std::any::type_name::<T>()
    );
    Error::new(ErrorKind::Malformed, text)
}

#[cfg(test)]
mod tests;
