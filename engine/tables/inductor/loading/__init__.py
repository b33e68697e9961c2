"""Parts of the loader: the choice of each product's kernel, and its place in a running torch."""
