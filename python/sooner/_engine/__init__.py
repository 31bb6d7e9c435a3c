"""Code that runs around user code in drivers and workers; the engine calls most of it.

Below are all names of this package that the engine uses, as imports that only type checkers read: the same
names stand in `crates/sooner-python/src/python_side.rs`. Nothing is imported here when a program runs.
"""

TYPE_CHECKING = False

if TYPE_CHECKING:
    from sooner._engine.advice import get_in_loop as get_in_loop
    from sooner._engine.aio import await_ref as await_ref
    from sooner._engine.aio import close_generator as close_generator
    from sooner._engine.aio import deliver as deliver
    from sooner._engine.aio import next_item as next_item
    from sooner._engine.aio import on_completed as on_completed
    from sooner._engine.aio import to_asyncio as to_asyncio
    from sooner._engine.aio import to_concurrent as to_concurrent
    from sooner._engine.async_actor import cancel as cancel
    from sooner._engine.checkpoints import hook_failed as hook_failed
    from sooner._engine.checkpoints import restore as restore
    from sooner._engine.driver import auto_init as auto_init
    from sooner._engine.driver import runs_event_loop as runs_event_loop
    from sooner._engine.driver import show as show
    from sooner._engine.driver import warn as warn
    from sooner._engine.local import serve as serve
    from sooner._engine.local import wake as wake
    from sooner._engine.program import follow as follow
    from sooner._engine.program import state as state
    from sooner._engine.threads import use as use
    from sooner._engine.tidying import keeps_streams as keeps_streams
    from sooner._engine.worker import ActorExit as ActorExit
    from sooner._engine.worker import actor_begins as actor_begins
    from sooner._engine.worker import actor_stands as actor_stands
    from sooner._engine.worker import builtin_method as builtin_method
    from sooner._engine.worker import class_method as class_method
    from sooner._engine.worker import clean_up as clean_up
    from sooner._engine.worker import end_child as end_child
    from sooner._engine.worker import end_line as end_line
    from sooner._engine.worker import exit_process as exit_process
    from sooner._engine.worker import interrupt as interrupt
    from sooner._engine.worker import maker as maker
    from sooner._engine.worker import method_code as method_code
    from sooner._engine.worker import show_gpus as show_gpus
    from sooner._errors.culprit import explain_pickle_failure as explain_pickle_failure
    from sooner._errors.culprit import was_raised_by_handler as was_raised_by_handler
    from sooner._errors.packing import actor_init_error as actor_init_error
    from sooner._errors.packing import argument_error as argument_error
    from sooner._errors.packing import call_notes as call_notes
    from sooner._errors.packing import call_site as call_site
    from sooner._errors.packing import pack_task_error as pack_task_error
    from sooner._errors.packing import system_error as system_error
    from sooner._errors.packing import unpack_task_error as unpack_task_error
    from sooner._progress.html import ref_html as ref_html
    from sooner._values.pickling import dumps as dumps
    from sooner._values.pickling import passing as passing
    from sooner.actor import is_async as is_async
    from sooner.actor import put_owned as put_owned
    from sooner.buffers import sealed as sealed
    from sooner.exceptions import LocalNodeDiedError as LocalNodeDiedError
    from sooner.exceptions import ObjectStoreFullError as ObjectStoreFullError
    from sooner.exceptions import OufOfBandObjectRefSerializationException as OufOfBandObjectRefSerializationException
    from sooner.exceptions import RpcError as RpcError
    from sooner.exceptions import UntrustedPathError as UntrustedPathError
    from sooner.generator import DynamicObjectRefGenerator as DynamicObjectRefGenerator
    from sooner.ids import JobID as JobID
    from sooner.ids import TaskID as TaskID
