//! The driver's environment variables. The only test of its process, which nothing else reads them in.

use std::env;

use zinc_runtime::{CONNECTION_VARIABLES, Driver};

#[test]
fn only_unset_connection_variables_are_set() {
    let [compute, copy] = CONNECTION_VARIABLES;
    // SAFETY: this is the only thread that uses the environment.
    unsafe {
        env::set_var(compute, "4");
        env::remove_var(copy);
        Driver::prefer_one_connection();
    }
    assert_eq!(env::var(compute).as_deref(), Ok("4"));
    assert_eq!(env::var(copy).as_deref(), Ok("1"));
}
