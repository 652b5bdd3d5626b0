//! The support library itself, on the driver under test.

use support::{context, gpu_test};

gpu_test! {
    needs 2;
    fn contexts_are_compared_by_handle() {
        assert!(context::current().is_null(), "a test starts with nothing current");
        let a = context::Foreign::create(0);
        let b = context::Foreign::create(0);
        assert_ne!(a.handle(), b.handle(), "two contexts of one device");
        context::push(a.handle());
        context::push(b.handle());
        assert_eq!(context::current(), b.handle());
        assert_eq!(context::pop(), Some(b.handle()));
        assert_eq!(context::pop(), Some(a.handle()));
        assert_eq!(context::pop(), None);
    }
}
