"""Has a `torch` before torch is imported, as modules of Optuna do: it is before all of torch in sys.modules."""


class Lazy:
    def __getattr__(self, name):
        import torch

        return getattr(torch, name)


torch = Lazy()
