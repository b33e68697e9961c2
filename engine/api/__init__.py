"""The functions and classes that `import gemmtune` offers: short callers of the layers below."""
