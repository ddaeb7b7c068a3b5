//! Recognises the concrete type behind a generic parameter that may borrow.

use std::any::TypeId;
use std::marker::PhantomData;

/// Returns `value` as a `B` if that is its type, regardless of lifetimes.
///
/// # Safety
/// `A` and `B` may differ in their lifetimes: the caller keeps nothing of `B` for longer than
/// `value` is borrowed.
pub(crate) unsafe fn view<A: ?Sized, B>(value: &A) -> Option<&B> {
    // SAFETY: the same type but for lifetimes, which the caller's promise covers.
    (type_id::<A>() == type_id::<B>()).then(|| unsafe { &*std::ptr::from_ref(value).cast::<B>() })
}

/// The type ID of `A` with all lifetimes replaced by `'static`: `TypeId::of` refuses types that
/// borrow.
pub(crate) fn type_id<A: ?Sized>() -> TypeId {
    trait Named {
        fn id(&self) -> TypeId
        where
            Self: 'static;
    }
    impl<A: ?Sized> Named for PhantomData<A> {
        fn id(&self) -> TypeId
        where
            Self: 'static,
        {
            TypeId::of::<A>()
        }
    }
    let marker = PhantomData::<A>;
    let named: &dyn Named = &marker;
    // SAFETY: the same pointer and vtable. Nothing is read through it: the id does not depend on
    // lifetimes.
    unsafe { std::mem::transmute::<&dyn Named, &(dyn Named + 'static)>(named) }.id()
}
