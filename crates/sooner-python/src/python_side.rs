//! The names in the Python package that the engine calls. They are spelled here and nowhere else.
//!
//! `sooner/_engine/__init__.py` lists the same names by import, so that the type checkers see them.
//! `tests/test_python_side.py` compares the two lists, and looks whether each callable takes its arguments.

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

/// A name of a module of the package.
pub struct PythonName {
    module: &'static str,
    name: &'static str,
    /// How many positional arguments it is called with. Empty if it is not called.
    counts: &'static [usize],
}

impl PythonName {
    /// The object with this name. Its module is imported if need be.
    pub fn get<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import(self.module)?.getattr(self.name)
    }

    /// Calls the object.
    pub fn call<'py>(&self, py: Python<'py>, args: impl PyCallArgs<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.get(py)?.call1(args)
    }
}

macro_rules! names {
    ($($module:literal { $($constant:ident = $name:ident $counts:tt;)* })*) => {
        $($(
            pub const $constant: PythonName =
                PythonName { module: $module, name: stringify!($name), counts: &$counts };
        )*)*

        const ALL: &[PythonName] = &[$($($constant,)*)*];
    };
}

names! {
    "sooner._engine.advice" {
        GET_IN_LOOP = get_in_loop [1];
    }
    "sooner._engine.aio" {
        AWAIT_REF = await_ref [1];
        CLOSE_GENERATOR = close_generator [1, 2];
        DELIVER = deliver [1];
        NEXT_ITEM = next_item [1];
        ON_COMPLETED = on_completed [2];
        TO_ASYNCIO = to_asyncio [1];
        TO_CONCURRENT = to_concurrent [2];
    }
    "sooner._engine.async_actor" {
        CANCEL_CALL = cancel [1];
    }
    "sooner._engine.checkpoints" {
        HOOK_FAILED = hook_failed [3];
        RESTORE = restore [4];
    }
    "sooner._engine.driver" {
        AUTO_INIT = auto_init [0];
        RUNS_EVENT_LOOP = runs_event_loop [0];
        SHOW = show [2];
        WARN = warn [1];
    }
    "sooner._engine.local" {
        LOCAL_SERVE = serve [0];
        LOCAL_WAKE = wake [0];
    }
    "sooner._engine.program" {
        PROGRAM_FOLLOW = follow [1];
        PROGRAM_STATE = state [0];
    }
    "sooner._engine.threads" {
        USE_THREADS = use [1];
    }
    "sooner._engine.tidying" {
        KEEPS_STREAMS = keeps_streams [0];
    }
    "sooner._engine.worker" {
        ACTOR_BEGINS = actor_begins [4];
        ACTOR_EXIT = ActorExit [];
        ACTOR_STANDS = actor_stands [1];
        BUILTIN_METHOD = builtin_method [2];
        CLASS_METHOD = class_method [2];
        CLEAN_UP = clean_up [1];
        END_CHILD = end_child [1];
        END_LINE = end_line [0];
        EXIT_PROCESS = exit_process [1];
        INTERRUPT = interrupt [2];
        MAKER = maker [1];
        METHOD_CODE = method_code [2];
        SHOW_GPUS = show_gpus [1];
    }
    "sooner._errors.culprit" {
        EXPLAIN_PICKLE_FAILURE = explain_pickle_failure [3];
        WAS_RAISED_BY_HANDLER = was_raised_by_handler [1];
    }
    "sooner._errors.packing" {
        ACTOR_INIT_ERROR = actor_init_error [2];
        ARGUMENT_ERROR = argument_error [3];
        CALL_NOTES = call_notes [2];
        CALL_SITE = call_site [0];
        PACK_TASK_ERROR = pack_task_error [6];
        SYSTEM_ERROR = system_error [2];
        UNPACK_TASK_ERROR = unpack_task_error [1];
    }
    "sooner._progress.html" {
        REF_HTML = ref_html [1];
    }
    "sooner._values.pickling" {
        // With keyword arguments beside the value.
        DUMPS = dumps [1];
        PASSING = passing [];
    }
    "sooner.actor" {
        IS_ASYNC = is_async [1];
        PUT_OWNED = put_owned [2];
    }
    "sooner.buffers" {
        SEALED = sealed [1];
    }
    "sooner.exceptions" {
        LOCAL_NODE_DIED_ERROR = LocalNodeDiedError [1];
        OBJECT_STORE_FULL_ERROR = ObjectStoreFullError [];
        OUT_OF_BAND_ERROR = OufOfBandObjectRefSerializationException [1];
        RPC_ERROR = RpcError [1];
        UNTRUSTED_PATH_ERROR = UntrustedPathError [1];
    }
    "sooner.generator" {
        DYNAMIC_GENERATOR = DynamicObjectRefGenerator [1];
    }
    "sooner.ids" {
        JOB_ID = JobID [];
        TASK_ID = TaskID [];
    }
}

/// What the engine calls in Python: `[(module, name, [numbers of positional arguments])]`.
#[pyfunction]
pub fn python_side() -> Vec<(&'static str, &'static str, &'static [usize])> {
    ALL.iter().map(|each| (each.module, each.name, each.counts)).collect()
}
