"""Warren: a safe, instant place for AI agents to run code.

`warren.Client` and what belongs to it is imported when it is first used: importing this package costs nothing.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # not typing's, whose import costs more than the rest of this file

if TYPE_CHECKING:
    from warren.sdk.public import *  # noqa: F403 - that module has the list


def __getattr__(name: str) -> object:
    # Modules of this package have small letters, and are found without this.
    if name[:1].isupper():
        from warren.sdk import public

        if name in public.__all__:
            return getattr(public, name)
    raise AttributeError(f"module 'warren' has no attribute {name!r}")


def __dir__() -> list[str]:
    from warren.sdk import public

    return sorted({*globals(), *public.__all__} - {"TYPE_CHECKING"})
