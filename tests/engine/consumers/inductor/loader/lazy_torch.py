"""Module with an attribute `torch` that precedes torch in sys.modules, as modules of Optuna do."""


class Lazy:
    def __getattr__(self, name):
        import torch

        return getattr(torch, name)


torch = Lazy()
