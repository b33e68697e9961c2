"""Search spaces: one public file per space, and one folder of helpers per family of kernels."""
