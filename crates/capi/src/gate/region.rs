//! Regions: memory passed by reference.

use std::ffi::{c_int, c_void};

use kumihimo::gate::{Region as Shared, RegionMut};
use kumihimo::thread;

use crate::error::{Failure, catch_failure};
use crate::gate::bytes::{self, cleared_out, non_null, non_null_mut};

/// `kumi_region`.
#[derive(Debug)]
pub struct Region(State);

enum State {
    /// Being written by its owner.
    Open(RegionMut),
    Sealed(Shared),
    /// Sealing failed.
    Lost,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            State::Open(_) => "Open",
            State::Sealed(_) => "Sealed",
            State::Lost => "Lost",
        })
    }
}

/// Maximum number of regions of a request or a reply.
const MOST: usize = 4;

impl Region {
    /// Creates a handle, which the C program owns.
    pub(crate) fn sealed(region: Shared) -> *mut Region {
        Box::into_raw(Box::new(Region(State::Sealed(region))))
    }

    /// Returns the region for passing, if it is sealed.
    pub(crate) fn shared(&self) -> Result<Shared, Failure> {
        match &self.0 {
            State::Sealed(region) => Ok(region.clone()),
            _ => Err(Failure::invalid("the region is not sealed: call kumi_region_seal first")),
        }
    }
}

/// Returns the regions of a list.
///
/// # Safety
/// `regions` is NULL, or points to `count` handles.
pub(crate) unsafe fn listed(
    regions: *const *const Region,
    count: usize,
) -> Result<Vec<Shared>, Failure> {
    if count > MOST {
        return Err(Failure::invalid(format!("{count} regions: at most {MOST} are allowed")));
    }
    let mut passed = Vec::with_capacity(count);
    for i in 0..count {
        // SAFETY: the caller's contract.
        let region = unsafe {
            non_null(
                *non_null(regions, "the list of regions")
                    .map(|first| std::ptr::from_ref(first).add(i))?,
                "a region",
            )
        }?;
        passed.push(region.shared()?);
    }
    Ok(passed)
}

/// Creates a sealed region with a copy. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_region_copy(
    out: *mut *mut Region,
    data: *const c_void,
    length: usize,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let (out, data) = unsafe { (cleared_out(out)?, bytes::slice(data, length, "data")?) };
        *out = Region::sealed(Shared::copy_of(data)?);
        Ok(())
    })
}

/// Creates a region to be written in place. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_region_new(
    out: *mut *mut Region,
    length: usize,
    data: *mut *mut c_void,
) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let (out, data) = unsafe { (cleared_out(out)?, cleared_out(data)?) };
        let mut region = RegionMut::new(length)?;
        *data = region.as_mut_ptr().cast();
        *out = Box::into_raw(Box::new(Region(State::Open(region))));
        Ok(())
    })
}

/// Seals a region. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_region_seal(region: *mut Region) -> c_int {
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let region = unsafe { non_null_mut(region, "region") }?;
        match std::mem::replace(&mut region.0, State::Lost) {
            State::Open(open) => region.0 = State::Sealed(open.seal()?),
            other => region.0 = other,
        }
        region.shared().map(drop)
    })
}

/// Returns a region's bytes. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_region_data(
    region: *const Region,
    length: *mut usize,
) -> *const c_void {
    let mut data: *const c_void = std::ptr::null();
    catch_failure(|| {
        // SAFETY: the interface's contract.
        let region = unsafe { non_null(region, "region") }?;
        let bytes: &[u8] = match &region.0 {
            State::Open(open) => open,
            State::Sealed(shared) => shared,
            State::Lost => return Err(Failure::invalid("sealing the region has failed")),
        };
        if !length.is_null() {
            // SAFETY: the interface's contract.
            *unsafe { non_null_mut(length, "length") }? = bytes.len();
        }
        data = bytes.as_ptr().cast();
        Ok(())
    });
    data
}

/// Frees a region; NULL has no effect. See kumihimo.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_region_free(region: *mut Region) {
    catch_failure(|| {
        if !region.is_null() {
            // SAFETY: the interface's contract: our handle, which is not used any more.
            let region = unsafe { Box::from_raw(region) };
            thread::without_cancellation(|| drop(region));
        }
        Ok(())
    });
}
