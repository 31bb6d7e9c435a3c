//! Tells the code which Python it is compiled for (`cfg(Py_3_14)` and the like).

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
