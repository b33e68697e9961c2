"""Names in torch's modules that come and go. Needs the standard library alone."""

from typing import Any

absent: list[str] = []
"""Names that were asked for and that this torch lacks, such as `torch._inductor.choices.InductorChoices`."""


def private(module: str, name: str) -> Any:  # noqa: ANN401 (whatever torch has under the name)
    """Return a name of a module of torch; a class without content if this torch lacks it, which `absent` then names.

    An exported loader asks here instead of importing, so that its own import ends well under every torch. With a name
    absent, `install` uses no table.
    """
    try:
        return getattr(__import__(module, fromlist=[name]), name)
    except Exception:  # a module of torch may fail in any way
        absent.append(f"{module}.{name}")
        return type(name, (), {})
