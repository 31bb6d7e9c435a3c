"""Actors with checkpoints: what is refused when the class is declared."""

from __future__ import annotations

import pytest

import sooner


class Hooks:
    def __sooner_checkpoint__(self):
        return None

    def __sooner_restore__(self, state):
        pass


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_concurrency": 2}, "max_concurrency=2"),
        ({"concurrency_groups": {"io": 1}}, "concurrency_groups"),
        ({"allow_out_of_order_execution": True}, "allow_out_of_order_execution=True"),
        ({"max_restarts": 0}, "needs restarts"),
    ],
)
def test_options_that_do_not_go_with_checkpoints(options, text):
    with pytest.raises(ValueError, match=text):
        sooner.remote(checkpoint_every=5, **options)(Hooks)
    with pytest.raises(ValueError, match=text):
        sooner.remote(Hooks).options(checkpoint_every=5, **options)


@pytest.mark.parametrize("value", [0, -1, 1.5, "many", True])
def test_a_number_of_calls_is_needed(value):
    with pytest.raises(ValueError, match="checkpoint_every"):
        sooner.remote(checkpoint_every=value)(Hooks)


def test_both_hooks_are_needed():
    class Half:
        def __sooner_checkpoint__(self):
            return None

    class Neither:
        pass

    with pytest.raises(TypeError, match=r"__sooner_checkpoint__.*__sooner_restore__.*Half lacks __sooner_restore__"):
        sooner.remote(checkpoint_every=5)(Half)
    with pytest.raises(TypeError, match="Neither lacks __sooner_checkpoint__ and __sooner_restore__"):
        sooner.remote(checkpoint_every=5)(Neither)


def test_hooks_that_cannot_be_called():
    class Asks(Hooks):
        def __sooner_checkpoint__(self, path):
            return path

    class Takes(Hooks):
        def __sooner_restore__(self):
            pass

    class Waits(Hooks):
        async def __sooner_checkpoint__(self):
            return None

    class Static(Hooks):
        @staticmethod
        def __sooner_checkpoint__():
            return None

    for cls, text in [(Asks, "is given nothing"), (Takes, "the state alone"), (Waits, "async"), (Static, "instance")]:
        with pytest.raises(TypeError, match=text):
            sooner.remote(checkpoint_every=5)(cls)


def test_methods_that_do_not_go_with_checkpoints():
    class Waits(Hooks):
        async def wait(self):
            pass

    class Yields(Hooks):
        def items(self):
            yield 1

    for cls, text in [(Waits, "async method Waits.wait"), (Yields, "generator Yields.items")]:
        with pytest.raises(ValueError, match=text):
            sooner.remote(checkpoint_every=5)(cls)


def test_a_restore_that_makes_something_else():
    from sooner._engine.checkpoints import restore

    class Wrong(Hooks):
        @classmethod
        def __sooner_restore__(cls, state):
            return state

    with pytest.raises(TypeError, match="returned int"):
        restore(Wrong, (), None, 3)
